"""Reading a folder, scoring it once, and noticing what has changed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rmetric.detectors import (
    DETECTORS,
    Detector,
    GradientNorm,
    LossSpike,
    StreamingDetector,
    make_detector,
    register_detector,
)
from rmetric.engines import engine, parallel_map
from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scoring import by_run, score_study
from rmetric.evaluation.studies import load_study
from rmetric.registry import load_plugin
from rmetric.replay import replay_log
from rmetric.signals import Weights
from rmetric.versions import foreign_code
from tests.evaluation.builders import build_log


def plugin_text(name, body, declared=""):
    """A plugin with a detector of that name."""
    return (
        "from dataclasses import dataclass\nfrom pathlib import Path\nimport numpy as np\n"
        "from rmetric.detectors import Detector, register_detector\n"
        f"@register_detector({name!r})\n@dataclass(kw_only=True)\nclass {name.title()}(Detector):\n    {declared}\n"
        f"    threshold: float = 0.5\n    def score_run(self, observations):\n        {body}\n"
    )


def test_all_logs_are_read_in_order(logs):
    study = load_study(logs, jobs=1)
    assert [run.name for run in study.runs] == sorted(path.stem for path in logs.glob("*.jsonl"))
    assert len(set(study.checksums)) == 12
    assert study.note == "" and study.warnings() == []


def test_a_relative_folder_is_read_by_processes_that_stand_elsewhere(logs, monkeypatch):
    with engine("local", jobs=2):
        list(parallel_map(abs, range(20), 2))  # they are started here
        monkeypatch.chdir(logs.parent)
        assert len(load_study(logs.name, jobs=2).runs) == 12


def test_a_log_that_lost_its_first_line_is_told(logs):
    headless = min(logs.glob("*.jsonl"))
    headless.write_text("".join(headless.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    (told,) = load_study(logs, jobs=1).warnings()
    assert told.startswith("1 of 12 logs have no first line") and headless.stem in told


def test_two_processes_read_and_score_the_same(logs):
    one, two = load_study(logs, jobs=1), load_study(logs, jobs=2)
    assert one.checksums == two.checksums
    detectors = {"loss_spike": LossSpike()}
    first, second = (score_study(study, detectors, jobs=jobs) for study, jobs in ((one, 1), (two, 2)))
    assert np.array_equal(first["loss_spike"], second["loss_spike"], equal_nan=True)


def test_damage_and_incomplete_logs_are_counted_and_kept(logs):
    first, second = sorted(logs.glob("*.jsonl"))[:2]
    lines = first.read_text(encoding="utf-8").splitlines(keepends=True)
    first.write_text("".join([*lines[:5], "{broken\n", *lines[5:]]), encoding="utf-8")
    cut = second.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]
    second.write_text("".join(cut), encoding="utf-8")
    study = load_study(logs, jobs=1)
    assert len(study.runs) == 12
    damaged, incomplete = study.warnings()
    assert damaged.startswith("1 of 12 logs are damaged (1 problems)") and "line 6" in damaged
    assert incomplete.startswith("1 of 12 logs are incomplete") and second.stem in incomplete


REAL_RUNS = sorted((Path(__file__).resolve().parent.parent / "data" / "real_runs").glob("*.jsonl"))


@pytest.mark.parametrize("path", REAL_RUNS, ids=lambda path: path.stem)
def test_a_log_without_drift_is_judged_as_replay_judges_it(path, tmp_path):
    (tmp_path / path.name).write_bytes(path.read_bytes())
    study = load_study(tmp_path, jobs=1)
    scores = score_study(study, {"r_metric": make_detector("r_metric")}, jobs=1)["r_metric"]
    replayed: list[np.ndarray] = []
    replay_log(path, sink=lambda columns: replayed.append(columns["r_metric"]))
    assert np.array_equal(scores, np.concatenate(replayed))
    assert scores.max() > 0.57


def test_the_sample_stands_in_and_says_so(tmp_path):
    (tmp_path / "sample").mkdir()
    build_log(tmp_path / "sample", "run", onset=None, failure=None, seed=1)
    assert "committed sample" in load_study(tmp_path, jobs=1).note


def test_no_logs_is_an_error_of_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no \.jsonl logs"):
        load_study(tmp_path)


def test_logs_in_the_words_of_others_are_an_error_unless_one_of_ours_is_among_them(tmp_path):
    foreign = "".join(f'{{"step": {step}, "loss": 2.5}}\n' for step in range(50))
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(foreign, encoding="utf-8")
    with pytest.raises(UserError, match=r"holds no logs of this project; .*rmetric convert"):
        load_study(tmp_path, jobs=1)
    (tmp_path / "c.jsonl").write_text('{"event": "METRICS", "step": 1, "grad_norm": 1.0}\n', encoding="utf-8")
    assert len(load_study(tmp_path, jobs=1).runs) == 3


def test_scores_are_kept_until_a_log_or_a_setting_changes(logs, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    calls = []
    for kind in (GradientNorm, LossSpike):
        honest = kind.score_run

        def counting(self, observations, honest=honest):
            calls.append(self.name)
            return honest(self, observations)

        monkeypatch.setattr(kind, "score_run", counting)
    detectors = {"grad_norm": GradientNorm()}

    def score(found=detectors):
        calls.clear()
        result = score_study(load_study(logs, jobs=1), found, cache=cache, jobs=1)
        return result["grad_norm"], len(calls)

    first, computed = score()
    assert computed == 12
    again, computed = score()
    assert computed == 0 and np.array_equal(first, again)
    assert score({"grad_norm": GradientNorm(threshold=5.0)})[1] == 12
    score()
    (kept,) = cache.glob("scores_grad_norm_*.npy")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert score()[1] == 12
    assert score({**detectors, "loss_spike": LossSpike()})[1] == 12
    assert set(calls) == {"loss_spike"}
    log = next(iter(logs.glob("*.jsonl")))
    log.write_text(log.read_text(encoding="utf-8").replace('"grad_norm": 1.0', '"grad_norm": 2.0'), encoding="utf-8")
    assert score()[1] == 12

    assert score()[1] == 0
    monkeypatch.setattr(GradientNorm, "version", 2)
    assert score()[1] == 12
    fitted = tmp_path / "fitted.json"
    fitted.write_text('{"scale": 1.0}', encoding="utf-8")
    monkeypatch.setattr(GradientNorm, "fitted_files", (fitted,))
    assert (score()[1], score()[1]) == (12, 0)
    fitted.write_text('{\n "scale": 1.0\n}', encoding="utf-8")
    assert score()[1] == 0
    fitted.write_text('{"scale": 2.0}', encoding="utf-8")
    assert score()[1] == 12


def test_scores_are_those_of_the_detector_run_by_run(logs):
    study = load_study(logs, jobs=1)
    for name in ("r_metric", "loss_spike"):
        detector = make_detector(name)
        scores = by_run(study, score_study(study, {name: detector}, jobs=1)[name])
        for run, found in zip(study.runs, scores, strict=True):
            assert np.array_equal(found, detector.score_run(run.observations), equal_nan=True)


def test_a_detector_of_a_plugin_is_scored_in_other_processes(logs, tmp_path, clean_registries):
    plugin = tmp_path / "always.py"
    plugin.write_text(plugin_text("always", "return np.ones(len(observations))"), encoding="utf-8")
    load_plugin(plugin)
    evaluator = Evaluator.of(load_study(logs, jobs=2), ["r_metric", "always"], jobs=2, plugins=[plugin], draws=20)
    counts = evaluator.counts("always", "strict")
    assert counts.tp.sum() == 0  # on from the first step: it warns nobody
    assert counts.fp.sum() == 12
    assert evaluator.counts("always", "paper").tp.sum() == 4


def test_the_text_of_a_plugin_counts_and_ours_does_not(logs, tmp_path, clean_registries):
    plugin = tmp_path / "constant.py"

    def score(value):
        text = plugin_text("constant", f"return np.full(len(observations), {value})")
        plugin.write_text(text, encoding="utf-8")
        sys.modules.pop("constant", None)
        DETECTORS.discard("constant")
        spec = importlib.util.spec_from_file_location("constant", plugin)
        sys.modules["constant"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["constant"])
        study = load_study(logs, jobs=1)
        return score_study(study, {"constant": make_detector("constant")}, cache=tmp_path, jobs=1)["constant"][0]

    # Of another length: Python takes its compiled file for a source of the same second and length.
    assert [score(1.0), score(12.5)] == [1.0, 12.5]
    assert foreign_code(type(make_detector("constant")))
    assert not any(foreign_code(type(make_detector(name))) for name in ("r_metric", "isolation_forest", "qk_entropy"))


@pytest.mark.parametrize(
    ("declared", "kept"), [("", False), ("fitted_files = ()", True), ("fitted_files = (WEIGHT,)", True)]
)
def test_scores_of_a_plugin_are_kept_only_if_it_says_what_it_reads(declared, kept, logs, tmp_path, clean_registries):
    plugin = tmp_path / "fitted.py"
    text = plugin_text("fitted", "return np.full(len(observations), np.load(WEIGHT))", declared)
    weight = "WEIGHT = Path(__file__).with_name('weight.npy')\n@register"
    plugin.write_text(text.replace("@register", weight), encoding="utf-8")

    def score():
        scores = score_study(load_study(logs, jobs=1), {"fitted": make_detector("fitted")}, cache=tmp_path, jobs=1)
        return scores["fitted"][:1][0], scores["fitted"].file.stat().st_ino

    np.save(tmp_path / "weight.npy", 1.0)
    load_plugin(plugin)
    assert (score() == score()) == kept
    np.save(tmp_path / "weight.npy", 2.0)
    assert score()[0] == (1.0 if declared.endswith("()") else 2.0)


@pytest.mark.parametrize("files", ["weights.json", ("weights.json",), Path("weights.json")])
def test_fitted_files_that_are_no_tuple_of_paths_are_refused(files, clean_registries):
    with pytest.raises(ValueError, match=r"has fitted_files .*weights\.json.*; a tuple of paths is due"):

        @register_detector("loose")
        class Loose(Detector):
            fitted_files = files


def test_the_evaluator_weighs_the_signals_as_the_detector_does(logs):
    evaluator = Evaluator.of(load_study(logs, jobs=1), ["r_metric"], jobs=1, draws=20)
    assert np.array_equal(Weights().weigh(*evaluator.signals_3N), evaluator.scores["r_metric"])


def test_a_study_is_scored_alike_wherever_it_is_and_an_optional_detector_where_it_is_named(logs, clean_registries):
    @register_detector("needy")
    @dataclass(kw_only=True)
    class Needy(Detector):
        threshold: float = 0.5
        extra = "live"
        reads = ("training_loss",)

        def score_run(self, observations):
            return np.zeros(len(observations))

    def scored(**named):
        return [*Evaluator.of(load_study(logs, jobs=1), jobs=1, draws=20, **named).detectors]

    assert "needy" not in scored() and "grad_norm" in scored()
    assert scored(names=["needy"]) == scored(among=["needy"]) == ["needy"]


def test_logs_without_a_seed_or_records_do_not_stop_the_evaluation(logs):
    (logs / "zz_empty.jsonl").write_text("", encoding="utf-8")
    lines = [{"event": "EXPERIMENT_START", "config": {}}, {"event": "EXPERIMENT_FAILURE", "step": 5}]
    (logs / "zz_bare.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    evaluator = Evaluator.of(load_study(logs, jobs=1), ["r_metric", "grad_norm"], jobs=1, draws=20)
    assert [truth.kind for truth in evaluator.timeline.truths].count("incomplete") == 1
    assert evaluator.summary("grad_norm", "strict")["recall"].value == 1.0


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return observations['nothing']", r"broken\.py, line 11: Broken\.score_run fails in run \w+: KeyError"),
        ("return observations.step[1:] * 1.0", r"detector broken gives scores of shape \(\d+,\) for the \d+ records"),
        ("observations['training_loss'][:] = 0.0", r"Broken\.score_run fails .*: assignment destination is read-only"),
        ("observations.columns['training_loss'] = 0.0", r"Broken\.score_run fails .* not support item assignment"),
        (
            "return ['high'] * len(observations)",
            r"detector broken gives scores of type <U4 for run \w+; numbers are due",
        ),
        ("return [[0.0]] + [0.0] * (len(observations) - 1)", r"detector broken gives scores for run \w+ that are no"),
    ],
)
def test_a_detector_of_a_plugin_that_breaks_is_named_with_the_run(body, told, logs, tmp_path, clean_registries):
    plugin = tmp_path / "broken.py"
    plugin.write_text(plugin_text("broken", body), encoding="utf-8")
    load_plugin(plugin)
    with pytest.raises(UserError, match=told):
        score_study(load_study(logs, jobs=1), {"broken": make_detector("broken")}, jobs=2, plugins=[plugin])


@pytest.mark.parametrize("make", [np.float32, np.array, lambda number: pytest.importorskip("torch").tensor(number)])
def test_one_number_without_a_dimension_is_a_score(make, logs):
    class Even(StreamingDetector):
        def update(self, observation):
            return make(0.25)

    scores = Even(threshold=0.5).extend(load_study(logs, jobs=1).runs[0].observations)
    assert scores.dtype == np.float64 and set(scores.tolist()) == {0.25}


def test_a_masked_score_is_no_score(logs, clean_registries):
    @register_detector("masked")
    @dataclass(kw_only=True)
    class Masked(Detector):
        threshold: float = 0.5

        def score_run(self, observations):
            return np.ma.masked_less(np.arange(len(observations)), 3)

    scores = score_study(load_study(logs, jobs=1), {"masked": make_detector("masked")}, jobs=1)["masked"]
    np.testing.assert_array_equal(scores[:5], [np.nan, np.nan, np.nan, 3.0, 4.0])


@pytest.mark.parametrize(
    ("score", "told"),
    [("None", "None"), ("'0.5'", "'0.5'"), ("np.ones(1)", r"array\(\[1.\]\)"), ("10**400", r"10+\.\.\.0+")],
)
def test_a_score_that_is_no_number_is_told_with_the_plugin_the_detector_the_record_and_the_run(
    score, told, logs, tmp_path, clean_registries
):
    plugin = tmp_path / "odd.py"
    plugin.write_text(
        "from dataclasses import dataclass\nimport numpy as np\n"
        "from rmetric import StreamingDetector, register_detector\n"
        "@register_detector('odd')\n@dataclass(kw_only=True)\nclass Odd(StreamingDetector):\n"
        "    threshold: float = 0.5\n    def update(self, observation):\n"
        f"        return {score} if observation.step > 40 else np.float32(0.1)\n",
        encoding="utf-8",
    )
    load_plugin(plugin)
    message = rf"plugin {plugin}: detector odd gives {told} for the record at step \d+ .*\(run \w+\)$"
    with pytest.raises(UserError, match=message):
        score_study(load_study(logs, jobs=1), {"odd": make_detector("odd")}, jobs=1, plugins=[plugin])


@pytest.mark.parametrize(
    ("imports", "changed"),
    [
        ("import beside_it", "beside_it.py"),
        ("import beside_it", "through_it.py"),
        ("from inner import part", "inner/part.py"),
        ("from inner import part", "inner/__init__.py"),
        ("from inner.part import *", "inner/other.py"),
        ("def late():\n    import inner.part", "inner/part.py"),
    ],
)
def test_what_a_plugin_imports_from_below_its_folder_counts_with_it(imports, changed, tmp_path, monkeypatch):
    files = {
        "with_help.py": f"{imports}\nclass Kind: pass\n",
        "beside_it.py": "def late():\n    import through_it\n",
        "inner/part.py": "from . import other\n",
        **dict.fromkeys(["through_it.py", "inner/__init__.py", "inner/other.py", "unused.py"], ""),
    }
    kind = _written(files, tmp_path, monkeypatch, "with_help").Kind
    before = foreign_code(kind)
    (tmp_path / "unused.py").write_text("FACTOR = 25\n", encoding="utf-8")
    assert foreign_code(kind) == before
    (tmp_path / changed).write_text("FACTOR = 25\n", encoding="utf-8")
    assert foreign_code(kind) != before


@pytest.mark.parametrize(
    ("module", "changed", "counts"),
    [
        ("a_package.deep.kinds", "a_package/near.py", True),
        ("a_package.deep.kinds", "a_package/far.py", True),
        ("a_package.deep.kinds", "b.py", False),
        ("by_itself", "b.py", False),
    ],
)
def test_what_an_installed_package_imports_from_itself_counts_with_it(module, changed, counts, tmp_path, monkeypatch):
    files = {
        "a_package/deep/kinds.py": "from .. import near\nfrom a_package.far import b\nimport b\nclass Kind: pass\n",
        "a_package/far.py": "import b\n",
        "by_itself.py": "import b\nclass Kind: pass\n",
        **dict.fromkeys(["a_package/__init__.py", "a_package/deep/__init__.py", "a_package/near.py", "b.py"], ""),
    }
    installed = tmp_path / "site-packages"
    kind = _written(files, installed, monkeypatch, module).Kind
    before = foreign_code(kind)
    (installed / changed).write_text("FACTOR = 25\n", encoding="utf-8")
    assert (foreign_code(kind) != before) == counts


def _written(files, folder, monkeypatch, module):
    """A module of files that are written for it; others of their names are forgotten."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    ours = {name.partition("/")[0].removesuffix(".py") for name in files}
    for loaded in [*sys.modules]:
        if loaded.partition(".")[0] in ours:
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(module)
