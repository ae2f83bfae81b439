from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.faults import FAULTS
from rmetric.registry import Registry, load_plugin, plugin_errors
from studies.paper.plan import StudyPlan
from studies.paper.run import SIMULATION
from studies.runner import run_study

PLUGIN = '''
from dataclasses import dataclass
from rmetric.faults import Fault, register_fault

@register_fault("NIC_FLAP")
@dataclass(frozen=True, kw_only=True)
class NicFlap(Fault):
    """A link drops now and then."""
    source = "a test"

    def simulate(self, state, active, rng):
        state.stall_s += active * 2.0
'''


@pytest.fixture
def fruit() -> Registry[int]:
    registry = Registry[int]("fruit")
    for value, name in enumerate(("Apple", "pear", "QUINCE_2")):
        registry.add(name, value)
    return registry


def test_names_come_in_the_order_of_registration(fruit: Registry[int]) -> None:
    fruit.add("aa", 3)
    assert list(fruit) == ["Apple", "pear", "QUINCE_2", "aa"]
    assert dict(fruit.items()) == {"Apple": 0, "pear": 1, "QUINCE_2": 2, "aa": 3}
    assert len(fruit) == 4


def test_a_name_can_be_registered_once_only(fruit: Registry[int]) -> None:
    with pytest.raises(ValueError, match="'pear' is already registered, by 1"):
        fruit.add("pear", 7)
    assert fruit["pear"] == 1


@pytest.mark.parametrize("name", ["", "A+B", "a b", "../x", "_x", "-x", ".x", "ä", "x\n", "a/b"])
def test_a_name_that_cannot_stand_in_a_file_name_is_refused(fruit: Registry[int], name: str) -> None:
    with pytest.raises(ValueError, match="must consist of"):
        fruit.add(name, 7)
    assert name not in fruit


@pytest.mark.parametrize(
    ("typed", "meant"), [("aple", "Apple"), ("APPLE", "Apple"), ("quince2", "QUINCE_2"), ("Pera", "pear")]
)
def test_a_near_miss_is_answered_with_the_nearest_name(fruit: Registry[int], typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=rf"unknown fruit '{typed}'; did you mean '{meant}'\?"):
        fruit[typed]


def test_a_far_miss_lists_what_is_known_and_guesses_nothing(fruit: Registry[int]) -> None:
    with pytest.raises(UserError) as caught:
        fruit["zzzzzz"]
    assert str(caught.value) == "unknown fruit 'zzzzzz' (known: Apple, pear, QUINCE_2)"


def test_a_discarded_name_can_be_used_again(fruit: Registry[int]) -> None:
    fruit.discard("pear")
    assert "pear" not in fruit
    assert fruit.add("pear", 9) == 9
    fruit.discard("never there")


@pytest.fixture
def plugin(tmp_path: Path, clean_registries: None) -> Path:
    file = tmp_path / "my_fault.py"
    file.write_text(PLUGIN)
    return file


def test_a_plugin_registers_its_fault_and_loading_it_twice_is_harmless(plugin: Path) -> None:
    load_plugin(plugin)
    made = FAULTS["NIC_FLAP"]
    load_plugin(str(plugin))
    assert FAULTS["NIC_FLAP"] is made


def test_a_plugin_that_is_no_python_file_is_the_users_error(tmp_path: Path) -> None:
    file = tmp_path / "fault.txt"
    file.write_text(PLUGIN)
    with pytest.raises(UserError, match=r"must end in \.py"):
        load_plugin(file)


def test_a_broken_plugin_says_what_is_wrong_and_can_be_mended(plugin: Path) -> None:
    plugin.write_text("import no_such_module_anywhere")
    with pytest.raises(UserError, match="ModuleNotFoundError"):
        load_plugin(plugin)
    plugin.write_text(PLUGIN)
    load_plugin(plugin)
    assert "NIC_FLAP" in FAULTS


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("state.stall_s += active / zero", "NameError: .*'zero'"),
        ("raise SystemExit('not on this machine')", "SystemExit: not on this machine$"),
    ],
)
def test_an_error_in_a_plugin_is_told_with_its_place_and_the_run(
    code: str, error: str, jobs: int, plugin: Path, tmp_path: Path, clean_registries: None
) -> None:
    plugin.write_text(PLUGIN.replace("state.stall_s += active * 2.0", code))
    load_plugin(plugin)
    plan = StudyPlan(repetitions=1, controls=1, steps=100).only(["mistral-7b"], ["NIC_FLAP"])
    told = rf"{plugin}, line 12: NicFlap.simulate fails in run run_\d+_mistral-7b_nic_flap_\w+: {error}"
    with pytest.raises(UserError, match=told) as caught:
        run_study(plan, tmp_path, backend=SIMULATION, jobs=jobs, plugins=[plugin])
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("code", ["", "0", "'not on this machine'"])
def test_a_plugin_that_ends_python_as_it_is_loaded_is_told(code: str, plugin: Path) -> None:
    plugin.write_text(f"import sys\nsys.exit({code})\n")
    with pytest.raises(UserError, match=rf"^plugin {plugin} could not be loaded: SystemExit: "):
        load_plugin(plugin)


def test_an_error_that_is_no_plugins_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), plugin_errors("some"):
        _ = 1 / 0
    with pytest.raises(UserError, match=r"^mine$"), plugin_errors("some"):
        raise UserError("mine")


def test_a_plugin_without_the_method_of_its_kind_is_refused_when_it_is_loaded(plugin: Path) -> None:
    plugin.write_text(PLUGIN.replace("def simulate", "def simulated"))
    with pytest.raises(UserError, match="fault 'NIC_FLAP' lacks simulate"):
        load_plugin(plugin)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_plugin_imports_what_lies_beside_it_as_it_is_loaded_and_later(
    jobs: int, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in (f"early_{jobs}", f"late_{jobs}"):
        (tmp_path / f"{name}.py").write_text("SECONDS = 1.0\n")
    late = f"import late_{jobs}; state.stall_s += active * (early.SECONDS + late_{jobs}.SECONDS)"
    plugin.write_text(f"import early_{jobs} as early\n{PLUGIN.replace('state.stall_s += active * 2.0', late)}")
    load_plugin(plugin)
    plan = StudyPlan(repetitions=1, controls=1, steps=100).only(["mistral-7b"], ["NIC_FLAP"])
    (tmp_path / "logs").mkdir()
    assert run_study(plan, tmp_path / "logs", backend=SIMULATION, jobs=jobs, plugins=[plugin]).made == 4


def test_what_lies_beside_a_plugin_hides_nothing(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_registries: None
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('this is not of Python')\n")
    plugin.write_text(f"import colorsys\n{PLUGIN}")
    load_plugin(plugin)
    assert "NIC_FLAP" in FAULTS
