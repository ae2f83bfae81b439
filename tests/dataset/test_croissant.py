"""The published sets as others read them: Croissant metadata, checksums, and the loader of the data card."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rmetric.dataset.layout import SCHEMA
from rmetric.dataset.read import read_runs
from rmetric.errors import UserError
from rmetric.files import checksum

mlc = pytest.importorskip("mlcroissant", reason="needs the extra 'dev'")

from studies.real_runs import croissant  # noqa: E402 - needs mlcroissant
from tests.helpers import ROOT  # noqa: E402

pytestmark = [  # mlcroissant is older than the rdflib and the pandas that it runs with
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning"),
]

DATA = ROOT / "data"
CARD = (DATA / "README.md").read_text(encoding="utf-8")


def test_the_committed_metadata_and_checksums_are_of_the_committed_sets(tmp_path: Path) -> None:
    kept = [*croissant.data_files(DATA), DATA / croissant.CARD]
    for path in kept:
        (tmp_path / path.name).symlink_to(path)
    croissant.write(tmp_path)
    for name in (croissant.METADATA, croissant.CHECKSUMS):
        same = (tmp_path / name).read_bytes() == (DATA / name).read_bytes()
        assert same, f"data/{name} is out of date: python -m studies.real_runs.croissant"


def test_checksums_are_those_of_sha256sum() -> None:
    lines = (DATA / croissant.CHECKSUMS).read_text().splitlines()
    named = dict(reversed(line.split("  ")) for line in lines)
    known = {"real_runs.parquet", "real_runs_index.csv", "zoo.parquet", "zoo_3.parquet", "nanogpt.parquet"}
    assert named.keys() >= known
    assert named["nanogpt.parquet"] == checksum(DATA / "nanogpt.parquet")


def test_mlcroissant_finds_no_fault_in_the_metadata() -> None:
    issues = mlc.Dataset(str(DATA / croissant.METADATA)).metadata.ctx.issues
    assert not issues.errors
    assert not issues.warnings


@pytest.mark.slow
def test_mlcroissant_reads_the_steps_of_a_set(tmp_path: Path) -> None:
    for name in ("nanogpt.parquet", "nanogpt_index.csv", "README.md"):
        shutil.copy(DATA / name, tmp_path)
    croissant.write(tmp_path)
    records = mlc.Dataset(str(tmp_path / croissant.METADATA)).records(croissant.RECORD_SET)
    (first, second) = itertools.islice(records, 2)
    younger = {"grad_agreement", "settings_changed", "trained_parameters", "planned_changes", "reward"}  # than this set
    assert {*first} == {f"steps/{name}" for name in SCHEMA.names if name not in younger}
    wanted = pq.read_table(DATA / "nanogpt.parquet", columns=["step", "training_loss"]).slice(0, 2).to_pylist()
    for record, row in zip((first, second), wanted, strict=True):
        assert record["steps/set"] == b"nanogpt"
        assert record["steps/step"] == row["step"]
        assert record["steps/training_loss"] == pytest.approx(row["training_loss"])


def test_a_column_that_the_card_does_not_describe_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(re.sub(r"^\| `grad_norm`.*\n", "", CARD, flags=re.M), encoding="utf-8")
    with pytest.raises(UserError, match="column grad_norm; add it"):
        croissant.metadata(tmp_path)


@pytest.mark.slow
def test_the_loader_of_the_card_gives_the_whole_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", CARD, re.S) if "def load" in block]
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    names: dict = {}
    exec(block.replace("real_runs.parquet", "real_runs_transfer.parquet"), names)
    wanted = read_runs(DATA / "real_runs_transfer.parquet")
    assert [*names["runs"]] == [run.name for run in wanted]
    for run in wanted:
        found = names["runs"][run.name]
        assert found["step"].to_list() == run.observations.step.tolist()
        assert {*found["run"]} == {run.name}
        assert json.loads(found["config"].iloc[0])["experiment_id"] == run.config["experiment_id"]
        assert found["outcome"].nunique() == 1
        loss = found["training_loss"].to_numpy(float)
        assert np.array_equal(loss, run.observations.columns["training_loss"].astype(np.float32), equal_nan=True)


def test_the_metadata_has_a_checksum_a_file() -> None:
    described = json.loads((DATA / croissant.METADATA).read_text(encoding="utf-8"))
    files = [item for item in described["distribution"] if item["@type"] == "cr:FileObject"]
    assert {item["contentUrl"] for item in files} == {path.name for path in croissant.data_files(DATA)}
    assert all(re.fullmatch(r"[0-9a-f]{64}", item["sha256"]) for item in files)
