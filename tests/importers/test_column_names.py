"""Other people's column names: the mapping that a user gives, and the aliases."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.importers import ALIASES, FieldMap, Row, flattened, parse_mapping, read_run, runs_of
from rmetric.importers.column_choice import chosen
from rmetric.importers.names import meanings
from rmetric.importers.survey import Survey
from rmetric.measurements import MAPPED


def understood(record: dict[str, Any], fields: FieldMap | None = None) -> dict[str, Any]:
    """A record under our names, as it is read where it is a whole log."""
    columns = chosen(Survey.of([Row(1, record)]), fields or FieldMap({}))
    counter = columns.counter_of(record)
    return columns.values(record) | ({} if counter is None else {"step": record[counter]})


def test_an_unknown_field_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match="unknown field of the log 'trainin_loss'; did you mean 'training_loss'"):
        parse_mapping(["trainin_loss=loss"])


@pytest.mark.parametrize("text", ["training_loss", "training_loss=", "=loss", "training_loss = "])
def test_half_a_mapping_says_how_it_must_read(text: str) -> None:
    with pytest.raises(UserError, match=r"must read our_name=their_name|unknown field"):
        parse_mapping([text])


def test_a_field_that_is_mapped_twice_is_an_error() -> None:
    with pytest.raises(UserError, match="'step' twice"):
        parse_mapping(["step=a", "step=b"])


def test_names_of_the_monitor_in_the_trackers_of_others() -> None:
    assert understood({"rmetric/update_rms": 1e-3, "rmetric/lambda": 2.0}) == {
        "update_rms": 1e-3, "lambda": 2.0,
    }  # fmt: skip


def test_humps_of_a_name_part_its_words() -> None:
    assert understood({"globalStep": 3, "trainLoss": 2.5, "GradNorm": 1.0}) == {
        "step": 3, "training_loss": 2.5, "grad_norm": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("train_mse", "training_loss"),
        ("actor.param_groups.lr", "learning_rate"),
        ("LossPi", "training_loss"),
        ("rollout/ep_rew_mean", "reward"),
        ("AverageEpRet", "reward"),
        ("Mean total reward", "reward"),
        ("Environment/Cumulative Reward", "reward"),
        ("running_reward", "reward"),
        ("rolling_reward", "reward"),
        ("reward_sum", "reward"),
        ("mean 100 episode reward", "reward"),
        ("val_mean_ce", "validation_loss"),
        ("Vali Loss", "validation_loss"),
        ("vld_loss", "validation_loss"),
        ("neg_elbo", "training_loss"),
        ("neg_log_lik", "training_loss"),
        ("val/negative_log_likelihood", "validation_loss"),
        ("test_loss", "validation_loss"),
        ("gNorm", "grad_norm"),
        ("total_norm", "grad_norm"),
        ("global_norm", "grad_norm"),
        ("opt/gradnorm_preclip", "grad_norm"),
        ("gradnorm/total", "grad_norm"),
        ("clip/grad_norm_before", "grad_norm"),
        ("grad_norm.pre_clip", "grad_norm"),
        ("||g||", "grad_norm"),
        ("Train lr-DecoupledSGDW/group0", "learning_rate"),
        ("critic/rewards/mean", "reward"),
        ("L.r.", "learning_rate"),
        ("trainer/learning_rate", "learning_rate"),
        ("param_group_0/lr", "learning_rate"),
        ("metrics.train.lr", "learning_rate"),
        ("taux d'apprentissage", "learning_rate"),
        ("Trainingsverlust", "training_loss"),
        ("Validierungsverlust", "validation_loss"),
    ],
)
def test_names_of_other_tools_and_languages(theirs: str, ours: str) -> None:
    assert [found for found, _ in meanings(theirs, FieldMap({}))] == [ours]


@pytest.mark.parametrize("place", ["train_loss.py", "INFO [val_loss.cpp", "utils/grad_norm.RS"])
def test_a_source_file_before_the_number_of_its_line_is_no_measurement(place: str) -> None:
    assert not meanings(place, FieldMap({}))


def test_what_an_evaluation_calls_a_loss_and_is_better_the_higher_is_none() -> None:
    assert not meanings("valid_psnr_loss", FieldMap({})) and not meanings("test/ssim loss", FieldMap({}))
    assert meanings("train_ssim_loss", FieldMap({}))


@pytest.mark.parametrize(
    "name", ["Validation loss decreased", "val_loss improved from", "val_loss did not improve from"]
)
def test_the_best_so_far_is_no_evaluation(name: str) -> None:
    assert not meanings(name, FieldMap({}))


@pytest.mark.parametrize("name", ["improved_wgan_loss", "improved loss", "improved_ddpm/loss", "decrease_loss"])
def test_a_loss_of_something_improved_is_one(name: str) -> None:
    assert [ours for ours, _ in meanings(name, FieldMap({}))] == ["training_loss"]


def test_no_alias_stands_for_two_fields() -> None:
    everything = [alias for aliases in ALIASES.values() for alias in aliases] + list(MAPPED)
    assert len(everything) == len(set(everything))
    assert set(ALIASES) <= set(MAPPED)


@pytest.mark.parametrize(("our_name", "aliases"), ALIASES.items())
def test_every_alias_is_understood_whatever_its_case_and_punctuation(our_name: str, aliases: tuple[str, ...]) -> None:
    for alias in aliases:
        assert understood({alias.replace("_", "/").title(): 1}) == {our_name: 1}


def test_an_explicit_mapping_wins_over_aliases_and_takes_their_name_away_from_them() -> None:
    fields = FieldMap({"validation_loss": "loss"})
    assert understood({"loss": 2.0, "val_loss": 3.0}, fields) == {"validation_loss": 2.0}


def test_one_column_can_serve_two_fields() -> None:
    fields = FieldMap({"validation_loss": "loss", "training_loss": "loss"})
    assert understood({"loss": 2.0}, fields) == {"validation_loss": 2.0, "training_loss": 2.0}


def test_our_own_name_wins_over_an_alias_in_the_same_record() -> None:
    assert understood({"loss": 1.0, "training_loss": 2.0}) == {"training_loss": 2.0}


def test_a_null_does_not_hide_the_value_under_another_alias() -> None:
    assert understood({"train_loss": None, "loss": 1.0}) == {"training_loss": 1.0}


def test_the_number_of_remembered_names_is_bounded() -> None:
    fields, used = FieldMap({}), []
    tracemalloc.start()
    for number in range(20_000):
        assert not fields.targets(f"layer {number}") and fields.targets("loss")
        if number in (6_000, 19_999):
            used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert used[1] - used[0] < 100_000  # 14,000 names would take ten times as much


def test_nested_objects_are_flattened_to_a_bounded_depth() -> None:
    nested: dict[str, object] = {"x": 1}
    for _ in range(100):
        nested = {"a": nested}
    assert len(flattened(nested)) == 1


@pytest.mark.parametrize("name", ["gradnorm/layers.0", "gradnorm_max", "clip_grad_norm", "grad_norm.post_clip"])
def test_norms_of_a_layer_and_after_clipping_and_settings_are_not_the_gradient_norm(name: str) -> None:
    assert not meanings(name, FieldMap({}))


def test_of_several_gradient_norms_that_before_clipping_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": step, "loss": 3 - step / 9, "grad_norm_after": 1.0, "grad_norm/fc": 2.0, "clip/grad_norm_before": 3.0}
        for step in range(9)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_run(log).observations["grad_norm"].tolist() == [3.0] * 9


def test_columns_that_may_be_a_gradient_norm_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss,grad_l2\n" + "".join(f"{step},{3 - step / 9},{step / 7}\n" for step in range(9)))
    (logged,) = runs_of(log)
    assert logged.notes == [
        "no column is known as a gradient norm; if one is, name it with --map grad_norm=NAME ('grad_l2')"
    ]


def test_the_first_of_several_sets_may_be_that_of_the_training(tmp_path: Path) -> None:
    log = tmp_path / "train.txt"
    log.write_text("".join(f"[{n}]\tvalid_0-mse:{3 - n / 9:.4f}\tvalid_1-mse:{4 - n / 9:.4f}\n" for n in range(9)))
    (logged,) = runs_of(log)
    hint = "if 'valid_0-mse' is of the training data, say so with --map training_loss=valid_0-mse"
    assert f"no column is known as a training loss; {hint}" in logged.notes
    observations = read_run(log, mapping={"training_loss": "valid_0-mse"}, on_damage=lambda *_: None).observations
    assert (observations["validation_loss"] - observations["training_loss"] > 0.9).all()


def test_counters_are_proposed_for_no_loss(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,val_loss,steps_done\n" + "".join(f"{n},{3 - n / 9},{n}\n" for n in range(9)))
    (logged,) = runs_of(log)
    assert logged.notes == []


@pytest.mark.parametrize("mapping", [{}, {"grad_norm": "|g|"}])
def test_the_sign_of_a_norm_is_a_name_on_the_console(tmp_path: Path, mapping: dict[str, str]) -> None:
    log = tmp_path / "train.txt"
    log.write_text("".join(f"it {step:5d} | loss {3 - step / 9:.4f} | |g| 0.3{step} | lr 0.1\n" for step in range(9)))
    observations = read_run(log, mapping=mapping).observations
    assert observations["grad_norm"].tolist() == [float(f"0.3{step}") for step in range(9)]
    assert (observations["learning_rate"] == 0.1).all()
