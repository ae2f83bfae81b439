"""Layouts of trainers that a general rule reads: what a person sees in the log is what is read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.importers.layouts import POINTS, STEPS, Layouts, Seen, every, loss

LAYOUTS = Layouts()
layout = LAYOUTS.add


def places(batches: int = 10) -> Iterator[tuple[int, int, int]]:
    """Steps with their epochs, and their places in these."""
    for step in STEPS:
        yield step, (step - 1) // batches + 1, (step - 1) % batches + 1


@layout(Seen(grad_norm=1.5, note="several processes have written this log"))
def two_processes_in_turn_one_of_them_late() -> Iterator[str]:
    for step in STEPS:
        for rank in (0, 1):
            if step > rank:
                yield (
                    f"[rank{rank}]:\x1b[31mstep: {step - rank:2d}  \x1b[32mloss: {loss(step - rank):7.4f}  "
                    f"grad_norm: 1.5  tps: 7,12{rank}\x1b[39m"
                )


@layout(Seen(evaluations=3, note="several processes"))
def processes_by_their_numbers() -> Iterator[str]:
    for step in STEPS:
        for process in (3, 0):
            yield f"{process}:  step {step:4d}/ 900 | loss: {loss(step):.4f} |"
        if step % 10 == 0:
            yield f"3: validation loss at step {step} | loss value: {loss(step) + 0.1:.4f} |"


@layout(Seen())
def steps_before_each_line_that_look_like_processes() -> Iterator[str]:
    for step in STEPS:
        yield f"{step}: step {step} loss {loss(step):.4f}"


@layout(Seen(every(20)))
def a_bar_without_a_total() -> Iterator[str]:
    yield "\r".join(f"{step * 20}it [00:10,  8it/s, loss={loss(step):.3f}]" for step in STEPS)


@layout(Seen(grad_norm=1.5, learning_rate=2e-4, evaluations=3, note="taken from 'eval/all/CE loss'"))
def a_header_and_indented_lines() -> Iterator[str]:
    yield "    Setting/Peak (MB)=12,345"
    for step in STEPS:
        yield f"2024-05-01 10:00:00.123 host:0 trainer:52 INFO [step={step}/7000,epoch=1,eta=1:02:03]"
        yield "    optim/grad norm=1.5000"
        yield "    optim/LR (group 0)=2.0000e-04"
        yield f"    train/CE loss={loss(step):.3f}"
        yield f"    throughput/total_tokens={step * 4096:,}"
        if step % 10 == 0:
            yield "2024-05-01 10:00:59.123 host:0 evaluator:10 INFO [eval_step=1/8]"
            yield f"    eval/all/CE loss={loss(step) + 0.1:.3f}"


@layout(Seen(evaluations=3))
def source_code_before_the_training() -> Iterator[str]:
    yield "    step = 3"
    yield "        val_loss = 0.5"
    yield "        is_last = 7"
    for step in STEPS:
        yield f"step:{step}/20344 train_loss:{loss(step):.4f}"
        if step % 10 == 0:
            yield f"step:{step}/20344 val_loss:{loss(step) + 0.1:.4f}"


@layout(Seen())
def an_indented_remark_after_a_whole_report() -> Iterator[str]:
    for step in STEPS:
        yield f"  step {step} loss {loss(step):.3f}"
        yield f"  # the note of somebody, 6.0 at {step}00 of all"


@layout(Seen(range(POINTS), grad_norm=1.5))
def a_dictionary_over_several_lines() -> Iterator[str]:
    for step in STEPS:
        yield "{'gradient_norm': Array(1.5, dtype=float32),"
        yield f" 'loss': Array({loss(step)}, dtype=float32),"
        yield f" 'step': {step - 1}}}"


@layout(Seen(every(100)))
def a_line_that_announces_the_step() -> Iterator[str]:
    for step in STEPS:
        yield f"INFO: Step {step * 100} per-step time 0.3s"
        yield f"INFO: {{'total_loss': {loss(step)},"
        yield " 'clone': 0.1}"


@layout(Seen(note="rows count"))
def a_line_that_announces_the_step_now_and_then() -> Iterator[str]:
    for step in STEPS:
        if step % 10 == 1:
            yield f"[Rank 0] step={step + 9}, skipped=0, mom=[[0.9, 0.95]]"
        yield f"{{'loss': {loss(step)}, 'learning_rate': 0.0001}}"


@layout(Seen(learning_rate=3e-4))
def cells_of_names_and_values() -> Iterator[str]:
    for step in STEPS:
        yield "-" * 40
        rows = ("time/", ""), ("   fps", 501), ("   iterations", step), ("train/", "")
        for name, value in (*rows, ("   learning_rate", 0.0003), ("   loss", loss(step)), ("   value", 7.1)):
            yield f"| {name:22s}| {value!s:12s}|"
        yield "-" * 40


@layout(Seen(evaluations=POINTS, note="epochs count"))
def a_table_between_blanks() -> Iterator[str]:
    yield "Using device: cuda"
    yield "  epoch    train_loss    valid_acc    valid_loss     dur"
    yield "-------  ------------  -----------  ------------  ------"
    for step in STEPS:
        yield f"{step:7d}        {loss(step):.4f}       0.{step + 20}        {loss(step) + 0.1:.4f}  0.1{step}"


@layout(Seen(every(50), evaluations=POINTS))
def a_table_of_a_notebook() -> Iterator[str]:
    yield " [1500/1500 07:26, Epoch 3/3]"
    yield "Step\tTraining Loss\tValidation Loss"
    for step in STEPS:
        yield f"{step * 50}\t{loss(step):.6f}\t{loss(step) + 0.1:.6f}"


@layout(Seen(evaluations=POINTS, note="epochs count"))
def a_table_in_a_frame() -> Iterator[str]:
    yield "┏━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓"
    yield "┃ Epoch ┃ Train Loss ┃ Val Loss ┃"
    yield "┡━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩"
    for step in STEPS:
        yield f"│ {step:5d} │ {loss(step):10.4f} │ {loss(step) + 0.1:8.4f} │"
    yield "└───────┴────────────┴──────────┘"


@layout(Seen(range(POINTS), evaluations=3))
def a_counter_of_several_words_beside_one_of_the_evaluations() -> Iterator[str]:
    for step in STEPS:
        yield f"completed step: {step - 1}, seconds: 0.631, total_weights: 1024, loss: {loss(step):.3f}"
        if step % 10 == 0:
            yield f"eval metrics after step: {step - 1}, loss={loss(step) + 0.1:.3f}, total_weights=77.0"


@layout(Seen(evaluations=3, note="rows count"))
def a_counter_that_only_the_evaluations_have() -> Iterator[str]:
    for step in STEPS:
        yield f"loss {loss(step):.3f} on (shard)"
        if step % 10 == 0:
            yield f"step {step}: val loss {loss(step) + 0.1:.3f}"


@layout(Seen(note="epochs count"))
def a_counter_that_stands_still() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch [{step}/30], Step [100/100], Loss: {loss(step):.4f}"


@layout(Seen(range(POINTS), evaluations=POINTS, note="the number before the rest of a line counts"))
def rounds_in_brackets() -> Iterator[str]:
    for step in STEPS:
        yield f"[{step - 1}]\ttrain-logloss:{loss(step):.5f}\teval-logloss:{loss(step) + 0.1:.5f}"


@layout(Seen(every(10), note="the number before"))
def steps_in_brackets_after_the_place_of_the_logger() -> Iterator[str]:
    for step in STEPS:
        yield f"I0307 05:49:05.438520 140284617180928 writer.py:48] [{step * 10}] collection=train loss={loss(step)}"


@layout(Seen(every(200), note="batches count"))
def epoch_and_batch_in_brackets() -> Iterator[str]:
    for _, epoch, batch in places():
        yield f"[{epoch}, {batch * 200:5d}] loss: {loss(10 * (epoch - 1) + batch):.3f}"


@layout(Seen(every(10), learning_rate=1e-4, note="batches count"))
def training_before_its_batches() -> Iterator[str]:
    for step in STEPS:
        yield f"Training  [{step * 10:6d}/125000]  eta: 1 day, 2:03:04  lr: 0.0001 (0.0001)  loss: {loss(step)} (5)"


@layout(Seen(every(50), evaluations=3, note="batches count"))
def workers_in_parentheses_before_the_batch() -> Iterator[str]:
    for step, epoch, batch in places():
        start = "2023-01-01 10:00:00,123 INFO"
        yield f"{start} [train.py:898] (0/4) Epoch {epoch}, batch {batch * 50}, loss[loss={loss(step)}, over 9 frames]"
        if batch == 10:
            yield f"{start} [train.py:932] (0/4) Epoch {epoch}, validation: loss={loss(step) + 0.1}, over 5.0 frames."


@layout(Seen(every(100), evaluations=3, grad_norm=1.5, note="batches count"))
def ranges_of_batches_and_means_of_epochs() -> Iterator[str]:
    for step, epoch, batch in places():
        start = "[gpu01:0/2] 2025-07-19 08:49:04,080"
        yield (
            f"{start} (trainer:732) INFO: {epoch}epoch:train:{batch * 100 - 99}-{batch * 100}batch: iter_time=2e-04, "
            f"loss_att=1.1, loss={loss(step):.3f}, grad_norm=1.5, train_time=1.8"
        )
        if batch == 10:
            yield (
                f"{start} (trainer:338) INFO: {epoch}epoch results: [train] iter_time=0.001, loss_att=1.0, loss=9.9, "
                f"time=10 minutes, total_count={epoch * 1000}, [valid] loss_att=1.2, loss={loss(step) + 0.1:.3f}"
            )


@layout(
    Seen(
        [100 * step + at for step in range(POINTS) for at in (1, 100)],
        [shown for step in STEPS for shown in (9.9, loss(step))],
        note="batches count",
    )
)
def a_bar_that_goes_back_with_backspaces() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch {step}/30"
        yield f"1/100 [>..] - loss: 9.9{chr(8) * 30}100/100 [====] - loss: {loss(step):.4f} - acc: 0.9"


@layout(Seen(evaluations=3, grad_norm=1.5))
def the_step_between_a_loss_and_its_value() -> Iterator[str]:
    for step in STEPS:
        yield f"Train loss {step} {loss(step):.6f} Grad Norm 1.500000 1.50s/it"
        if step % 10 == 0:
            yield f"Validation loss {step}: {loss(step) + 0.1:9f}  "


@layout(Seen(note="the number before"))
def values_before_their_names() -> Iterator[str]:
    for step in STEPS:
        yield f"{step:3d} 34.56 ms run, 12.30 ms python, {loss(step):.2f} loss, 0.12 acc, 0.001 LR, 12.34 GB used"


@layout(Seen(evaluations=3, learning_rate=1e-3))
def the_step_in_parentheses() -> Iterator[str]:
    for step in STEPS:
        yield f"[10:11:12] Train Metrics (step {step}) - NLL Loss: {loss(step):.5f} | Learning Rate: 1.000e-03"
        if step % 10 == 0:
            yield f"[10:11:12] Validation Metrics (step {step}) - NLL Loss: {loss(step) + 0.1:.5f}"


@layout(Seen())
def a_step_after_a_quoted_message() -> Iterator[str]:
    for step in STEPS:
        yield f'ts=2025-01-03T10:11:12Z level=info msg="train step" step={step} loss={loss(step):.4f}'


@layout(Seen(note="several processes"))
def processes_of_a_launcher() -> Iterator[str]:
    for step in STEPS:
        for process in (0, 1):
            yield f"[1,{process}]<stdout>:step {step} loss {loss(step) + process:.4f}"


@layout(Seen(note="several processes"))
def processes_by_their_ids() -> Iterator[str]:
    for step in STEPS:
        for process in (0, 1):
            yield f"(Worker pid={4711 + process}, ip=10.0.0.1) step {step} loss {loss(step) + process:.4f}"


@layout(Seen(evaluations=3, note="batches count"))
def a_bar_that_states_the_validation_at_its_end() -> Iterator[str]:
    for epoch in (0, 1, 2):
        shown = [f"{at}/10 [00:01<00:10, 8.33it/s, train_loss={loss(10 * epoch + at):.3f}]" for at in range(1, 11)]
        last = 10 * epoch + 10
        shown += [f"10/10 [00:02<00:00, 8.33it/s, train_loss={loss(last):.3f}, val_loss={loss(last) + 0.1:.3f}]"]
        yield "\r".join(f"Epoch {epoch}:  50%|####      | {bar}" for bar in shown)


@layout(Seen())
def lines_of_a_container() -> Iterator[str]:
    for step in STEPS:
        yield json.dumps({"log": f"step {step} loss {loss(step):.4f}\n", "stream": "stdout", "time": "2025-01-03"})


@layout(Seen(every(40), note="the only loss of its kind"))
def a_bar_of_steps_with_how_full_it_is() -> Iterator[str]:
    yield "\r".join(f"steps:  {step}%|#  | {step * 40}/4000 [00:10<10:00, avr_loss={loss(step):.3f}]" for step in STEPS)


@layout(Seen(every(20), learning_rate=0.01, evaluations=3, note="single numbers between"))
def names_and_numbers_between_single_blanks() -> Iterator[str]:
    yield "# step loss val_loss lr"
    for step in STEPS:
        yield f"{step * 20} {loss(step):.4f} {loss(step) + 0.1 if step % 10 == 0 else math.nan:.4f} 1e-2"


@layout(Seen(every(50), learning_rate=0.01))
def names_in_two_lines() -> Iterator[str]:
    yield "Training on single CPU."
    yield "|=====================================================================================|"
    yield "|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Mini-batch  |  Base Learning  |"
    yield "|         |             |   (hh:mm:ss)   |   Accuracy   |     Loss     |      Rate       |"
    yield "|=====================================================================================|"
    for step in STEPS:
        yield f"|       1 |  {step * 50:10d} |       00:00:01 |       10.00% |  {loss(step):10.4f}  |          0.0100 |"


@layout(Seen(learning_rate=1e-3))
def units_and_signs_between() -> Iterator[str]:
    for step in STEPS:
        yield f"🚀 step {step} ▸ 📉 loss {loss(step):.4f} ▸ 1234 tok/s ▸ lr 1.0e-03 rest: 3.0 samples/s left: 3"


@layout(Seen())
def a_tensor_of_one_number() -> Iterator[str]:
    for step in STEPS:
        yield f"step: {step} loss: tensor([{loss(step):.4f}], grad_fn=<MeanBackward0>)"


@layout(Seen(every(10)))
def tabs_and_returns_as_syslog_writes_them() -> Iterator[str]:
    yield "".join(f"#015step#011{step * 10}#011loss={loss(step):.4f}" for step in STEPS)


@layout(Seen(evaluations=POINTS, learning_rate=1e-3))
def chinese() -> Iterator[str]:
    for step in STEPS:
        yield f"第{step}步：训练损失 {loss(step):.4f}，验证损失 {loss(step) + 0.1:.4f}，学习率 1e-3"


@layout(Seen(evaluations=POINTS, note="epochs count"))
def portuguese() -> Iterator[str]:
    for step in STEPS:
        yield f"Época {step}/{POINTS} - perda: {loss(step):.4f} - perda de validação: {loss(step) + 0.1:.4f}"


def batches_of_an_evaluation(step: int, count: int) -> Iterator[tuple[int, float]]:
    """The batches of an evaluation, around the loss that it has."""
    return ((batch, loss(step) + 0.1 + 0.2 * (batch - (count + 1) / 2)) for batch in range(1, count + 1))


@layout(Seen(evaluations=3, note="batches count"))
def bars_of_evaluations_with_batches_of_their_own() -> Iterator[str]:
    for step, epoch, batch in places():
        yield f"Epoch {epoch} train: {batch}0%|█| {batch}/10 [00:10<00:10,  3.21it/s, loss={loss(step):.4f}]"
        if batch == 10:
            for number, held_out in batches_of_an_evaluation(step, 4):
                yield f"Epoch {epoch} val: 25%|█| {number}/4 [00:10<00:10,  3.21it/s, loss={held_out:.4f}]"


@layout(Seen(evaluations=3, note="batches count"))
def an_evaluation_whose_batches_bear_its_name() -> Iterator[str]:
    for step, epoch, batch in places():
        yield f"Train: {epoch} [ {batch:4}/10 ( {batch}0%)]  Loss: {loss(step):.4f} ({loss(step):.3f})  LR: 1.000e-03"
        if batch == 10:
            for number, held_out in batches_of_an_evaluation(step, 4):
                yield f"Test: [ {number:4}/4]  Time: 0.123 (0.130)  Loss:  {held_out:7.4f} ({held_out:6.3f})"


@layout(Seen(evaluations=3, note="batches count"))
def bars_that_do_not_say_of_which_epoch_they_are() -> Iterator[str]:
    for step, _, batch in places():
        yield f"{batch}0%|█| {batch}/10 [00:10<00:10,  3.21it/s, loss={loss(step):.4f}]"
        if batch == 10:
            for number, held_out in batches_of_an_evaluation(step, 4):
                yield f"Validating: 25%|█| {number}/4 [00:10<00:10,  3.21it/s, loss={held_out:.4f}]"


@layout(Seen(evaluations=3))
def an_evaluation_that_counts_its_own_batches_of_the_epoch() -> Iterator[str]:
    for step, epoch, batch in places():
        yield json.dumps({"split": "train", "epoch": epoch, "step": batch, "loss": loss(step)})
        if batch == 10:
            for number, held_out in batches_of_an_evaluation(step, 5):
                yield json.dumps({"split": "val", "epoch": epoch, "step": number, "loss": held_out})


@layout(Seen(every(50), learning_rate=1e-3, evaluations=3))
def iterations_of_an_evaluation_after_those_of_the_training() -> Iterator[str]:
    for step, _, batch in places():
        yield f"03/14 09:00:00 - mmengine - Iter(train) [{50 * step:5d}/9000]  lr: 1.0e-03  loss: {loss(step):.4f}"
        if batch == 10:
            yield f"03/14 09:00:00 - mmengine - Iter(val) [50/50]    loss: {loss(step) + 0.1:.4f}  time: 0.08"


@layout(Seen(evaluations=3, note="batches count"))
def an_epoch_of_all_before_a_batch_of_all() -> Iterator[str]:
    for step, epoch, batch in places():
        yield f"[{epoch}/3][{batch}/10] loss: {loss(step):.4f}"
        if batch == 10:
            yield f"[{epoch}/3][{batch}/10] val_loss: {loss(step) + 0.1:.4f}"


@layout(Seen(evaluations=3))
def micro_batches_beside_steps() -> Iterator[str]:
    for step, epoch, batch in places():
        yield f"Epoch {epoch} | iter {16 * step} step {step} | loss train: {loss(step):.4f}, val: n/a | iter time: 2 s"
        if batch == 10:
            yield f"iter {16 * step}: val loss {loss(step) + 0.1:.4f}, val time: 1212.12 ms"


@layout(Seen(range(2501, 2501 + POINTS)))
def a_step_of_the_epoch_beside_that_of_the_training() -> Iterator[str]:
    for step, _, batch in places():
        yield f"STEP: {batch}/10 -- GLOBAL_STEP: {2500 + step}"
        yield f"     | > loss: {loss(step):.4f}"


@layout(Seen(learning_rate=1e-3, grad_norm=1.5))
def a_frame_of_pandas() -> Iterator[str]:
    yield "    step  train_loss     lr  grad_norm"
    for step in STEPS:
        yield f"{step - 1:<3d} {step:4d}  {loss(step):10.6f}  0.001        1.5"


@layout(Seen(learning_rate=1e-3))
def a_table_with_numbers_that_fill_their_column() -> Iterator[str]:
    yield "    step       loss         lr"
    for step in STEPS:
        number = f"{loss(step):11.4f}" if step % 2 else f" {loss(step):.8f}"
        yield f"{step:8d}{number}   0.001000"


@layout(Seen(every(10), note="several processes"))
def processes_of_horovod() -> Iterator[str]:
    for step in STEPS:
        for rank in (0, 1):
            yield f"[{rank}]<stdout>:Step #{10 * step}\tLoss: {loss(step) + 2 * rank:.4f}"


@layout(Seen(learning_rate=1e-3))
def lines_that_two_handlers_write() -> Iterator[str]:
    for step in STEPS:
        message = f"step {step}/600 | train loss {loss(step):.4f} | lr 1.0e-03"
        yield f"2025-03-14 09:00:06,123 - train - INFO - {message}"
        yield f"INFO:train:{message}"


@layout(Seen(learning_rate=1e-3, evaluations=3))
def a_table_with_empty_cells() -> Iterator[str]:
    yield "  step    train_loss    val_loss       lr"
    yield "------  ------------  ----------  -------"
    for step in STEPS:
        held_out = f"{loss(step) + 0.1:10.4f}" if step % 10 == 0 else 10 * " "
        yield f"{step:6d}  {loss(step):12.4f}  {held_out}  1.0e-03"


@layout(Seen(grad_norm=1.5, note="several processes"))
def processes_after_the_time() -> Iterator[str]:
    for step in STEPS:
        for rank in (0, 1):
            yield f"2025-03-14 09:00:00,050 INFO rank={rank} step={step} loss={loss(step):.4f} grad_norm=1.5"


@layout(Seen([980 + steps for steps in every(10)]))
def thousands_with_a_line_between() -> Iterator[str]:
    for step in STEPS:
        yield f"step {980 + 10 * step:_} loss {loss(step):.4f}"


@layout(Seen(learning_rate=1e-3, grad_norm=1.5, note="the only loss of its kind"))
def marian() -> Iterator[str]:
    for step in STEPS:
        yield f"[2025-03-14 09:08:13] Ep. 1 : Up. {step} : Cost {loss(step):.4f} * 288 : gNorm 1.5 : L.r. 1.0000e-03"


@layout(Seen(every(10), learning_rate=1e-3, evaluations=POINTS, note="batches count"))
def a_bar_whose_last_one_says_more() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch {step}/{POINTS}"
        yield f"10/10 [==] - ETA: 0s - loss: {loss(step):.4f}"
        yield f"10/10 [==] - 2s - loss: {loss(step):.4f} - val_loss: {loss(step) + 0.1:.4f} - lr: 1.0000e-03"


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_a_person_sees_is_read(name: str, tmp_path: Path) -> None:
    LAYOUTS.check(name, tmp_path)
