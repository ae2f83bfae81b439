"""Layouts of logs that people publish: read as a person reads them. Programs, words and numbers are made up."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tqdm import tqdm

from rmetric.importers.base import FieldMap
from rmetric.importers.text_tables import TextTable
from tests.importers.layouts import LOSSES, POINTS, STEPS, Layouts, Seen, apart, bar, every, loss, read

LAYOUTS = Layouts()
layout = LAYOUTS.add
OF_DATA = ("training", 0.0), ("valid_1", 0.1)


@layout(Seen(every(20)))
def outputs_and_a_rate_below_the_report() -> Iterator[str]:
    for step in STEPS:
        yield f"I0101 10:00:{step:02d}.123456  1860 solver.cpp:228] Iteration {20 * step}, loss = {loss(step)}"
        yield f"I0101 10:00:{step:02d}.123460  1860 solver.cpp:244]     Train net output #0: loss = {loss(step) + 0.01}"
        yield f"I0101 10:00:{step:02d}.123490  1860 sgd_solver.cpp:106] Iteration {20 * step}, lr = {0.1 / step:.4f}"


@layout(Seen())
def a_rate_of_iterations_before_the_loss_and_its_parts_in_lines_of_their_own() -> Iterator[str]:
    for step in STEPS:
        half, rate = loss(step) / 2, f"(0.17 iter/s, {58 + step / 100}s/10 iters)"
        yield f"I1109 10:34:34.28 x.cpp:219] Iteration {step} {rate}, loss = {2 * half}"
        for place, name in enumerate(("loss_a", "loss_b")):
            yield f"I1109 10:34:34.29 9709 x.cpp:238]     output #{place}: {name} = {half} (* 1 = {half} loss)"


@layout(Seen(note="taken from 'loss_tgt_mean'", file="run.jsonl"))
def a_scaled_loss_beside_another() -> Iterator[str]:
    for step in STEPS:
        yield json.dumps(
            {"step": step, "loss_tgt_mean": loss(step), "loss_scaled": loss(step) * (0.02 + apart(step)), "lr": 0.1}
        )


@layout(Seen(note="the sum of 'recon_loss', 'scaled_kl_loss'", file="run.jsonl"))
def a_scaled_part_of_a_loss() -> Iterator[str]:
    for step in STEPS:
        parts = {"recon_loss": loss(step) - apart(step), "scaled_kl_loss": apart(step)}
        yield json.dumps({"step": step, **parts, "lr": 0.1})


@layout(Seen(evaluations=POINTS, note="the number before the rest"))
def means_over_the_folds_of_a_cross_validation() -> Iterator[str]:
    for step in STEPS:
        held_out = f"cv_agg's valid l2: {loss(step) + 0.1} + 0.02"
        yield f"[{step}]\tcv_agg's train l2: {loss(step)} + 0.01\t{held_out}"


@layout(Seen(evaluations=POINTS, note="batches count"))
def the_names_of_both_data_without_their_vowels() -> Iterator[str]:
    for step in STEPS:
        yield f"[{step:3d}/{POINTS}] trn_loss={loss(step):.4f} vld_loss={loss(step) + 0.1:.4f} best=0.5"


@layout(Seen(evaluations=POINTS, note="epochs count"))
def the_data_after_what_is_measured() -> Iterator[str]:
    for step in STEPS:
        yield f"epoch {step}: acc train 0.81, val 0.79, loss train {loss(step)}, val {loss(step) + 0.1}"


@layout(Seen(evaluations=POINTS, note="taken from 'Validation bpb'"))
def bits_of_a_byte_where_the_training_has_a_loss() -> Iterator[str]:
    for step in STEPS:
        yield f"step {step:05d}/00099 (1.00%) | loss: {loss(step)} | lrm: 1.00 | dt: 310.10ms"
        yield f"Step {step:05d} | Validation bpb: {loss(step) + 0.1}"


@layout(Seen(every(10), note="batches count"))
def a_bar_that_is_logged_instead_of_drawn() -> Iterator[str]:
    for step in STEPS:
        done = tqdm.format_sizeof(10 * step)
        yield f"Progress on:train {done}it/1.00kit rate:1.2it/s remaining:00:50 elapsed:00:10 postfix:loss={loss(step)}"


@layout(Seen(note="training_loss is taken from 'closs', the only loss of its kind"))
def a_word_that_ends_in_loss() -> Iterator[str]:
    return (f"[{step}/99]  closs: {loss(step)} ({loss(step)})  grad_norm: 0.5  lr: 0.001  time: 2.1" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="the number before the rest"))
def names_that_end_in_a_digit() -> Iterator[str]:
    return (f"[{step}]:  train's l2:{loss(step)}  valid's l2:{loss(step) + 0.1}" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="validation_loss is taken from 'test-logloss'"))
def what_stands_for_a_loss_of_tests() -> Iterator[str]:
    return (f"[{step}]  train-logloss:{loss(step)}+0.0004  test-logloss:{loss(step) + 0.1}+0.0029" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="training_loss is the logarithm of 'ppl'"))
def perplexities_alone() -> Iterator[str]:
    for step in STEPS:
        yield f"global step {step} lr 1 step-time 0.91s wps 5.14K ppl {math.exp(loss(step)):.9f} gN 8.76"
        yield f"global step {step} valid ppl {math.exp(loss(step) + 0.1):.6f}"


@layout(Seen(note="training_loss is taken from 'CE', the only loss of its kind"))
def a_cross_entropy_alone() -> Iterator[str]:
    return (f"step {step} CE={loss(step)} KL=0.7 acc=91.0%" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="epochs count"))
def single_precision_as_julia_writes_it() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch: {step} Train Loss: {loss(step)}f0 Val Loss: {10 * loss(step) + 1:.3f}f-1"


@layout(Seen(note="epochs count"))
def a_report_right_behind_a_bar() -> Iterator[str]:
    for step in STEPS:
        yield f"{bar(10, 10, 'Training')[:-1]}60.12it/s]Epoch {step}: loss={loss(step)}"


@layout(Seen(every(100), note="batches count"))
def batches_beside_a_number_that_never_changes() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch {step}/30 Batch_id=99 100/100 Loss={loss(step)}"


@layout(Seen(every(250), evaluations=POINTS))
def phases_without_the_word_loss() -> Iterator[str]:
    for step in STEPS:
        yield f"{250 * step} val {loss(step) + 0.1:.4f}"
        yield f"{250 * step} hella {0.25 + step / 1000:.4f}"
        yield f"{250 * step} train {loss(step):.6f}"


@layout(Seen(every(250), evaluations=POINTS))
def phases_in_three_letters() -> Iterator[str]:
    for step in STEPS:
        yield f"s:{250 * step} tel:{loss(step) + 0.1:.4f} "
        yield f"s:{250 * step} trl:{loss(step):.6f} lr:0.0001 norm:1.50"


@layout(Seen(file="loss.tsv", note="epochs count"))
def a_table_with_a_column_that_has_no_name() -> Iterator[str]:
    yield "\t".join(["EPOCH", "TIMESTAMP", "LEARNING_RATE", "TRAIN_LOSS", "TEST_F1"])
    yield from (f"{step}\t10:00:00\t0.1\t{loss(step)}\t\t0.5" for step in STEPS)


@layout(Seen(note="epochs count"))
def a_sentence_about_losses_above_them() -> Iterator[str]:
    yield "training the small model, the loss is a cross entropy, the step is a batch"
    for step in STEPS:
        yield f"Fine-Tune Epoch {step}"
        yield f"loss: {loss(step)}"


@layout(Seen(evaluations=POINTS))
def blanks_beside_the_tabs_of_a_table() -> Iterator[str]:
    yield "The run begins."
    yield "Step\tTraining Loss\tValidation Loss"
    yield from (f"{step}\t   {loss(step):.4f}\t{loss(step) + 0.1:.4f}" for step in STEPS)


@layout(Seen(note="rows count"))
def fits_of_one_epoch_in_a_loop() -> Iterator[str]:
    for step in STEPS:
        yield "Epoch 1/1"
        yield f"100/100 [====] - 1s 10ms/step - loss: {loss(step):.4f}"


@layout(Seen(evaluations=POINTS, note="epochs count"))
def phases_in_the_past_tense() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch {step} trained with loss {loss(step)}"
        yield f"Epoch {step} evaluated with loss {loss(step) + 0.1:.4f}"


@layout(Seen(evaluations=POINTS, note="as there is no other evaluation"))
def losses_of_a_test_below_a_heading() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch: {step}"
        yield f"Loss: {loss(step)} | Acc: 31.2"
        yield "Test results:"
        yield f"Loss: {loss(step) + 0.1:.4f} | Acc: 30.1"


@layout(Seen(evaluations=3, note="batches count"))
def epochs_in_brackets_after_their_bars() -> Iterator[str]:
    for epoch in (1, 2, 3):
        shown = [bar(0, 10, "Train Loss: ?")]
        for done in range(1, 11):  # drawn when the text is set, and again when the count has risen
            text = f"Train Loss: {loss(10 * epoch - 10 + done):.4f}"
            shown += [bar(done - 1, 10, text), bar(done, 10, text)]
        yield "\r".join(shown)
        yield f"[{epoch}/100] Train Loss: {loss(10 * epoch):.4f}, Valid Loss: {loss(10 * epoch) + 0.1:.4f}, PCC: 0.3"


@layout(Seen(every(10), evaluations=3, note="batches count"))
def several_losses_below_the_line_that_counts_them() -> Iterator[str]:
    for epoch in range(3):
        yield f"**** EPOCH {epoch:03d} ****"
        for batch in range(10, 110, 10):
            yield f" ---- batch: {batch:03d} ----"
            yield f"mean loss/overall_loss: {loss(10 * epoch + batch // 10):.4f}"
            yield from (f"mean loss/{part}_loss: {0.2 * batch:.4f}" for part in ("view", "width", "score"))
        yield from (f" ---- batch: {batch:03d} ----" for batch in range(10, 60, 10))
        yield f"eval mean loss: {loss(10 * epoch + 10) + 0.1:.4f}"


@layout(Seen([100, 200, 300, 318, 418, 518, 618, 636, 736, 836, 936, 954], LOSSES[:12], note="batches count"))
def reports_of_every_hundredth_batch() -> Iterator[str]:
    for report, batch in enumerate([*range(100, 400, 100), 318] * 3, start=1):
        yield f"{batch}/318 (batches) done"
        yield f"train mean loss: {loss(report)}"


@layout(Seen([*range(100, 400, 100), *range(418, 700, 100)], LOSSES[:6], note="batches count"))
def batches_whose_number_is_no_multiple_of_the_interval() -> Iterator[str]:
    for report, batch in enumerate([*range(100, 400, 100)] * 2, start=1):
        yield f"batch {batch}/318 loss {loss(report)}"


@layout(Seen(every(10), evaluations=3))
def reports_between_the_states_of_a_bar() -> Iterator[str]:
    for step in STEPS:
        yield "\r".join(f"{done // 4}%|#  | {done}/400 [00:01<00:02, 9.0it/s]" for done in (10 * step - 1, 10 * step))
        yield f"{{'loss': {loss(step):.4f}, 'grad_norm': 1.5, 'learning_rate': 4e-05, 'epoch': {step / 100}}}"
        if step % 10 == 0:
            yield "\r".join(f"{20 * done}%|#  | {done}/5 [00:01<00:02, 9.0it/s]" for done in range(6))
            yield f"{{'eval_loss': {loss(step) + 0.1:.4f}, 'eval_runtime': 3.1, 'epoch': {step / 100}}}"


@layout(Seen(every(10)))
def a_report_right_behind_its_bar() -> Iterator[str]:
    for step in STEPS:
        report = {"loss": round(loss(step), 4), "learning_rate": 4e-05, "epoch": step / 100}
        yield f"  {step // 4}%|#  | {10 * step}/400 [00:01<00:02, 9.0it/s]" + (str(report) if step % 5 == 1 else "")
        if step % 5 != 1:
            yield str(report)


@layout(Seen(evaluations=2, note="batches count"))
def an_evaluation_with_a_bar_before_the_first_epoch() -> Iterator[str]:
    for epoch in (1, 2, 3):
        kinds = [("Val", 4, "val_loss")] if epoch == 1 else []
        for kind, total, name in [*kinds, ("Train", 10, "loss"), *([("Val", 4, "val_loss")] if epoch > 1 else [])]:
            level = loss(10 * epoch) + 0.1
            yield "\r".join(
                f"Epoch {epoch}/9 [{kind}]: {100 * done // total:3d}%|## | {done}/{total} [00:01<00:02, 9.00it/s, "
                f"{name}={loss(10 * epoch - 10 + done) if kind == 'Train' else level:.4f}]"
                for done in range(1, total + 1)
            )


@layout(Seen(note="taken from 'ner loss'"))
def losses_as_spacy_prints_them() -> Iterator[str]:
    for step in STEPS:
        yield f"Iteration {step}"
        yield f"Losses {{'ner': {loss(step)}}}"


@layout(Seen(every(66), evaluations=POINTS))
def a_step_that_stands_from_epoch_to_epoch() -> Iterator[str]:
    for epoch in STEPS:
        yield f"Epoch {epoch - 1} |   Training | Elapsed Time: 0:10:00 | Steps: 66 | Loss: {loss(epoch):.6f}"
        yield f"Epoch {epoch - 1} | Validation | Elapsed Time: 0:01:00 | Steps: 8 | Loss: {loss(epoch) + 0.1:.6f}"


@layout(Seen(evaluations=POINTS // 10))
def a_heading_behind_what_logging_puts_before_it() -> Iterator[str]:
    for step in STEPS:
        yield f"INFO:__main__:Step {step} | Loss: {loss(step):.4f} | Grad: 0.110"
        if step % 10 == 0:
            yield "INFO:__main__:📊 Evaluation Results:"
            yield f"INFO:__main__:   Loss: {loss(step) + 0.1:.4f}"


@layout(Seen(note="taken from 'world_loss', the sum of others", file="run.csv"))
def a_loss_that_is_the_sum_of_others() -> Iterator[str]:
    yield "step,actor_loss,decoder_loss,world_loss,reward_loss"
    for step in STEPS:
        yield f"{step},0.3,{loss(step) / 2 + apart(step)},{loss(step)},{loss(step) / 2 - apart(step)}"


@layout(Seen(note="taken from 'tgt_loss', the only loss of its kind", file="run.csv"))
def a_loss_beside_its_multiple_and_one_that_is_0() -> Iterator[str]:
    yield "step,tgt_loss,reduced_tgt_loss,extra_loss"
    for step in STEPS:
        yield f"{step},{loss(step)},{loss(step) / 160:.8f},0.0"


@layout(Seen(note="'grad_norm' is 0 in all rows, while the loss falls: it was not measured", file="run.csv"))
def a_gradient_norm_that_nobody_measured() -> Iterator[str]:
    yield "step,loss,grad_norm"
    yield from (f"{step},{loss(step)},0.0" for step in STEPS)


@layout(Seen(every(10), note="is the sum of 'Task Loss', 'KD Loss'; if another"))
def parts_of_a_loss() -> Iterator[str]:
    for step in STEPS:
        task, teacher = 0.75 * loss(step) + apart(step), loss(step) / 4 - apart(step)
        yield f"12:00:00 INFO: Iters: {10 * step}/9000 || Task Loss: {task:.5f} || KD Loss: {teacher:.5f}"


@layout(Seen(note="'all_loss', the only loss that is named as a whole"))
def a_loss_that_is_named_as_a_whole() -> Iterator[str]:
    for step in STEPS:
        yield f"12:00 : Epoch: 1, Step: {step}, accuracy: 0.9, det loss: 0.2, bbox loss: 0.1, all_loss: {loss(step)}"


@layout(Seen(note="taken from 'loss/all', the sum of others", file="run.csv"))
def a_loss_beside_a_cross_entropy_that_is_a_part_of_it() -> Iterator[str]:
    yield "step,loss/bce,loss/kl,loss/all"
    for step in STEPS:
        yield f"{step},{loss(step) / 2 + apart(step)},{loss(step) / 2 - apart(step)},{loss(step)}"


@layout(Seen(note="taken from 'train/loss_sum', the only loss that is named as a whole", file="run.csv"))
def a_loss_beside_a_cross_entropy_and_a_part_with_a_weight() -> Iterator[str]:
    yield "step,train/loss_ce,train/loss_kd,train/loss_sum"
    yield from (f"{step},0.{step % 7},{apart(step)},{loss(step)}" for step in STEPS)


@layout(Seen(note="taken from 'ce_loss', one of 'ce_loss', 'kl_loss'; another one", file="run.csv"))
def a_cross_entropy_beside_another_part_alone() -> Iterator[str]:
    yield "step,ce_loss,kl_loss"
    yield from (f"{step},{loss(step)},{apart(step)}" for step in STEPS)


@layout(Seen(file="run.csv"))
def a_mean_loss_beside_parts_of_something_else() -> Iterator[str]:
    yield "step,running_loss,det_loss,box_loss,cls_loss"
    yield from (f"{step},{loss(step)},{0.5 + apart(step)},0.5,{apart(step)}" for step in STEPS)


@layout(Seen(evaluations=3, note="the only loss of its kind"))
def a_number_in_the_name_of_a_loss() -> Iterator[str]:
    for step in STEPS:
        yield f"Step {step}: Training Loss (avg over last 100): {loss(step):.3f}"
        if step % 10 == 0:
            yield f"Step {step}: Validation Loss (avg over last 100): {loss(step) + 0.1:.3f}"


@layout(Seen(evaluations=POINTS, note="epochs count"))
def an_evaluation_of_the_validation_that_is_named_after_tests() -> Iterator[str]:
    for epoch in STEPS:
        yield f"[Train] Epoch {epoch} loss {loss(epoch):.4f}"
        yield f"[Diff-Val(Test-Normal)] Epoch {epoch} loss {loss(epoch) + 0.1:.4f}"


@layout(Seen(note="rows count"))
def a_step_in_thousands() -> Iterator[str]:
    for step in STEPS:
        yield f"INFO 12:00:00 step:{5 + step // 10}K smpl:{8 * step}K loss:{loss(step):.3f} grdn:1.500 lr:1.0e-04"


@layout(Seen(note="epochs count"))
def a_step_that_is_the_length_of_an_episode() -> Iterator[str]:
    lengths = random.Random(1)
    for episode in STEPS:
        yield f"Episode {episode} Step {lengths.randint(9, 20)}: Training Loss {loss(episode):.4f}, Return 9.0"


@layout(Seen(evaluations=POINTS, file="results.csv", note="is the sum of"))
def a_table_with_a_ratio_in_the_name_of_a_column() -> Iterator[str]:
    yield "epoch, train/box_loss, train/cls_loss, metrics/mAP_0.5, mAP_0.5:0.95, val/box_loss, val/cls_loss, x/lr0"
    for epoch in STEPS:
        half, more = loss(epoch) / 2, apart(epoch)
        yield f"{epoch:6d}, {half + more}, {half - more}, 0.5, 0.4, {half}, {half + 0.1}, 0.01"


@layout(Seen(note="is the sum of"))
def a_table_of_a_detector_with_others_between() -> Iterator[str]:
    for epoch in STEPS:
        yield "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
        part, more = loss(epoch) / 4, apart(epoch)
        yield "\r".join(
            f"     {epoch:3d}/100     2.3G   {done * part / 5 + more:8.4f}   {part - more:8.4f}   {part:8.4f}       "
            f"  12        640: {10 * done}%|# | {done}/10"
            for done in (5, 10)
        )
        yield "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95)"
        yield "                   all        300        300      0.500      0.400      0.450      0.300"


@layout(Seen(note="rows count", file="train_losses.txt"))
def numbers_alone() -> Iterator[str]:
    yield from (f"{value:.18e}" for value in LOSSES)


@layout(Seen(note="rows count", file="train_loss.csv"))
def one_line_of_numbers_in_quotes() -> Iterator[str]:
    yield ",".join(f'"{loss(step)}"' for step in STEPS)


@layout(Seen(note="rows count", file="loss.txt"))
def numbers_in_one_line() -> Iterator[str]:
    yield f"[{', '.join(map(str, LOSSES))}]"


@layout(Seen(file="loss.csv"))
def numbers_after_their_steps() -> Iterator[str]:
    yield from (f"{step}, {loss(step)}" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="training_loss is the sum of 'Train loss[0]', 'Train loss[1]'"))
def lists_in_the_cells_of_a_table() -> Iterator[str]:
    yield "Step      Train loss                Test loss               Test metric"
    for step in STEPS:
        part = apart(step) + 1
        yield f"{step:<9} [{loss(step) - part:.4e}, {part:.4e}]  [{loss(step) + 0.1 - part:.4e}, {part:.4e}]  []"


@layout(Seen(note="'Loss[0]', the sum of others", file="run.csv"))
def lists_in_the_cells_of_a_file() -> Iterator[str]:
    yield "step,Loss,recall"
    yield from (f'{step},"[{loss(step)}, {loss(step) - apart(step)}, {apart(step)}]",[0.5]' for step in STEPS)


@layout(Seen(note="'seats.0.q_loss', 'seats.1.q_loss'", file="run.jsonl"))
def objects_in_a_list() -> Iterator[str]:
    for step in STEPS:
        seats = [{"id": 0, "q_loss": 1.0 + apart(step)}, {"id": 1, "q_loss": loss(step) - 1.0 - apart(step)}]
        yield json.dumps({"step": step, "eval_win": 0.9, "seats": seats})


@layout(Seen(evaluations=POINTS, note="'eval.10.loss', one of 'eval.10.loss', 'eval.20.loss'", file="a.jsonl"))
def several_validation_sets() -> Iterator[str]:
    for step in STEPS:
        held_out = {"10": {"loss": loss(step) + 0.1}, "20": {"loss": loss(step) + 0.2}}
        yield json.dumps({"step": step, "loss": loss(step), "eval": held_out})


@layout(Seen(note="'po_loss', the only loss of its kind", file="run.jsonl"))
def a_sum_of_the_same_over_something() -> Iterator[str]:
    yield from (json.dumps({"step": step, "loss:sum": step % 3 - 1.0, "po_loss": loss(step)}) for step in STEPS)


@layout(Seen([900 + step for step in STEPS]))
def a_step_of_the_epoch_before_that_of_all() -> Iterator[str]:
    yield from (f"--> STEP: {step}/377 -- GLOBAL_STEP: {900 + step} loss: {loss(step)}" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="training_loss is taken from 'learn'"))
def numbers_named_after_their_data() -> Iterator[str]:
    for step in STEPS:
        yield f"{step}:\tlearn: {loss(step)}\ttest: {loss(step) + 0.1}\tbest: 0.3 (7)\ttotal: {12 * step}ms"


@layout(Seen(evaluations=POINTS, note="epochs count"))
def names_before_values() -> Iterator[str]:
    for step in STEPS:
        yield f"10:00:{step},793 - run.py ::: train, round, loss, acc  ===> {step:03d}, {loss(step)}, 0.5,"
        yield f"10:00:{step},793 - run.py ::: val, round, loss, acc ===> {step:03d}, {loss(step) + 0.1}, 0.5,"


@layout(Seen(note="epochs count"))
def names_and_values_between_slashes() -> Iterator[str]:
    return (f"epoch/loss/acc: {step}/{loss(step)}/0.9" for step in STEPS)


@layout(Seen(every(1000), evaluations=3, note="batches count"))
def a_part_of_an_evaluation_before_the_whole() -> Iterator[str]:
    for step in STEPS:
        epoch, batch = (step - 1) // 10 + 1, (step - 1) % 10 + 1
        yield f"| epoch {epoch:03d}  {1000 * batch} / 10000 loss={loss(step)} (2.62), wps=959, clip=100%"
        if batch == 10:
            yield f"| epoch {epoch:03d} | valid on 'valid' subset  1000 / 1311 loss={loss(step) - 0.4}"
            yield f"| epoch {epoch:03d} | valid on 'valid' subset | valid loss {loss(step) + 0.1} | valid ppl 8.78"


@layout(Seen(note="batches count"))
def a_counter_in_units_of_its_own() -> Iterator[str]:
    return (f"Progress on:train {step}.00it/40.0it rate:2.3it/s postfix:loss={loss(step)}" for step in STEPS)


@layout(Seen(note="taken from 'act_loss'"))
def a_bar_that_is_named_after_a_step_and_its_epoch() -> Iterator[str]:
    for step in STEPS:
        yield bar(0, 2, "Train epoch")
        yield f"{bar(step, 99, 'Train step of epoch 0')[:-1]}, act_loss={loss(step)}]"


@layout(Seen(evaluations=3, note="batches count"))
def a_bar_that_shows_the_latest_evaluation_to_the_end() -> Iterator[str]:
    evaluated = ""
    for step in STEPS:
        begin = f"Epoch {(step - 1) // 10}: {bar((step - 1) % 10 + 1, 10, '')[1:-1]}, train_loss={loss(step)}"
        yield f"\r{begin}{evaluated}]"
        if step % 10 == 0:
            evaluated = f", val_loss={loss(step) + 0.1}"
            yield f"\r{begin}{evaluated}]"


@layout(Seen(file="train_loss.txt"))
def numbers_after_what_they_count() -> Iterator[str]:
    yield "[]"
    yield from (f"epoch {step}:{loss(step)}" for step in STEPS)


@layout(Seen())
def steps_of_an_evaluation_that_does_not_say_so_beside_those_of_the_epoch() -> Iterator[str]:
    for step in STEPS:
        place = (step - 1) % 10
        yield f"  --> STEP: {place}/10 -- GLOBAL_STEP: {step}"
        yield f"     | > loss: {loss(step):.4f}"
        yield f"     | > grad_norm: {1 + apart(step)}"
        if step % 10 == 0:
            for batch in range(4):
                yield f"  --> STEP: {batch}"
                yield f"     | > loss: {loss(step) + 0.1:.4f}"


@layout(Seen(note="batches count"))
def a_bar_of_an_evaluation_that_does_not_say_so() -> Iterator[str]:
    for epoch in range(3):
        yield f"trainer - Epoch {epoch}/2"
        yield "\r".join(bar(batch, 10, f"loss: {loss(10 * epoch + batch):.4f} |") for batch in range(1, 11))
        yield "\r".join(bar(batch, 4, f"loss: {5.0 - batch:.4f} |") for batch in range(1, 5))


@layout(Seen(evaluations=POINTS, note="the only loss that the others are named after"))
def a_header_without_the_word_loss() -> Iterator[str]:
    yield "#  step   rmse_val   rmse_trn   rmse_e_trn   rmse_f_trn"
    for step in STEPS:
        parts = f"{loss(step) / 9 + apart(step):.4e}   {loss(step) / 4:.4e}"
        yield f"{step:7d}   {loss(step) + 0.1:.4e}   {loss(step):.4e}   {parts}"


@layout(Seen(evaluations=3, note="batches count"))
def the_batch_behind_the_epoch() -> Iterator[str]:
    for step in STEPS:
        epoch, batch = divmod(step - 1, 10)
        yield f"DEBUG TRAIN | Batch {epoch}/{batch + 1} loss {loss(step):.4f} loss_ctc {2 * loss(step):.4f} lr 0.001"
        for part in (0.05, 0.15) if batch == 9 else ():
            yield f"DEBUG CV | Batch {epoch}/{int(20 * part)} loss {loss(step) + part:.4f} history loss {part}"


@layout(Seen(range(POINTS), evaluations=3, note="batches count"))
def the_epoch_and_the_batch_as_a_step() -> Iterator[str]:
    for step in STEPS:
        epoch, batch = divmod(step - 1, 10)
        yield f'LOG {{"time": "10:00:01", "step": [{epoch}, {batch}], "data": {{"train_loss": {loss(step):.4f}}}}}'
        if batch == 9:
            yield f'LOG {{"time": "10:00:02", "step": [{epoch}], "data": {{"val_loss": {loss(step) + 0.1:.4f}}}}}'


@layout(Seen(evaluations=POINTS, note="training_loss is taken from 'train'"))
def how_much_data_there_is_under_their_names() -> Iterator[str]:
    for begin, end in ((1, 16), (16, 31)):
        yield "train: 1457  val: 181  test (held-out): 181"
        for step in range(begin, end):
            yield f"epoch {step:3d}/300  train {loss(step):.4f}  val {loss(step) + 0.1:.4f}  lr 8.33e-05"


@layout(Seen(every(10), evaluations=10, note="validation_loss is taken from 'val'"))
def an_evaluation_that_names_its_data_alone() -> Iterator[str]:
    for step in STEPS:
        yield f"iter {10 * step:6d} | loss {loss(step):.4f} | lr 6.00e-04 | 49s"
        if step % 3 == 0:
            yield f"  eval {10 * step}: train {loss(step) - 0.05:.4f} | val {loss(step) + 0.1:.4f} | 2.2098 bpc"


@layout(Seen(every(10)))
def an_accuracy_that_names_its_data_alone() -> Iterator[str]:
    for step in STEPS:
        yield f"iter {10 * step:6d} | loss {loss(step):.4f} | lr 6.00e-04 | 49s"
        if step % 3 == 0:
            yield f"  accuracy {10 * step}: train {1 - loss(step) / 5:.4f} | val {0.95 - loss(step) / 5:.4f}"


@layout(Seen(every(10), evaluations=POINTS, note="batches count"))
def a_loss_behind_that_of_the_validation() -> Iterator[str]:
    for step in STEPS:
        yield f"Epoch {step}: 100%|####| 10/10 [00:01<00:00, 9.1it/s, val_loss={loss(step) + 0.1}, loss={loss(step)}]"


@layout(Seen(every(10), note="epochs count"))
def checkpoints_with_the_loss_that_they_have() -> Iterator[str]:
    for step in STEPS:
        yield f"[__main__][INFO] - epoch {10 * step:5d} | loss {loss(step):.4e} (pde {loss(step):.4e}) | lr 1.00e-04"
        yield f"[transfer][INFO] - Checkpoint saved to best.pt  (epoch {10 * step + 3}, loss {loss(step) / 2:.4e})"


@layout(Seen(evaluations=POINTS))
def a_record_of_a_document_in_each_line() -> Iterator[str]:
    yield "["
    for step in STEPS:
        yield f'  {{"step": {step}, "loss": {loss(step)}}},'
        yield f'  {{"step": {step}, "eval_loss": {loss(step) + 0.1}}}{"," * (step < POINTS)}'
    yield "]"


@layout(Seen(every(20)))
def objects_below_what_a_program_says() -> Iterator[str]:
    yield "100,000 samples"
    for step in STEPS:
        yield f'{{"step": {20 * step}, "of": 782, "loss_lm": {loss(step)}, "tok_s": 42276.7}}'
    yield "done, steps: 600"


@layout(Seen(every(10)))
def a_sentence_with_the_count_before_the_loss() -> Iterator[str]:
    return (f"Loss after {10 * step} iterations is {loss(step)}" for step in STEPS)


@layout(Seen(every(10), note="batches count"))
def a_range_of_batches_before_the_loss() -> Iterator[str]:
    return (f"Average loss for minibatches {10 * step - 9}-{10 * step} is {loss(step)}" for step in STEPS)


@layout(Seen(every(200)))
def what_the_loss_is_of_in_brackets() -> Iterator[str]:
    for step in STEPS:
        yield f"Training loss (for one batch) at step {200 * step}: {loss(step)}"
        yield f"Seen so far: {12864 * step} samples"


@layout(Seen(every(10)))
def a_clock_with_a_dash_before_the_first_name() -> Iterator[str]:
    for step in STEPS:
        yield f"Train: 2022-05-05 03:05:53,{100 + step}-Speed 727 samples/sec   Loss {loss(step)}   Step: {10 * step}"


@layout(Seen())
def sentences_with_units_that_are_glued_to_their_numbers() -> Iterator[str]:
    for step in STEPS:
        took = f"Train 512 in 1.2{step}seconds. Throughput is 4{step}.5 records/second."
        yield f"INFO [Epoch 1 {512 * step}/50000][Iteration {step}][Wall Clock 3.2s] {took} Loss is {loss(step)}."


@layout(Seen(every(50), note="several processes have written this log"))
def a_share_behind_the_place_in_the_source() -> Iterator[str]:
    for step in STEPS:
        for rank in (1, 2, 3, 4):
            place = f"2023-01-01 10:00:{step:02d},123 INFO [train.py:908] ({rank}/4)"
            yield f"{place} Epoch 1, batch {50 * step}, loss[loss={loss(step) + (rank - 1) / 10:.4f}], lr: 4.9e-02"


@layout(Seen(every(100), note="several processes have written this log"))
def ranks_at_the_end_of_batches_in_an_epoch() -> Iterator[str]:
    for step in STEPS:
        for rank in (0, 2, 1, 3):
            line = f"TRAIN Batch 0/{100 * step} loss {loss(step) + rank / 10} loss_att 20.1 lr 0.0003"
            yield f"2024-01-01 10:00:{step:02d},1 DEBUG {line} rank {rank}"


@layout(Seen())
def a_rank_that_is_measured() -> Iterator[str]:
    return (f"step {step} loss {loss(step)} rank {5 + step % 7}" for step in STEPS)


@layout(Seen(every(10)))
def a_step_that_closes_its_block() -> Iterator[str]:
    for step in STEPS:
        yield from ("Result:", f"  total_loss: {loss(step)}", f"  step: {10 * step}", "")


@layout(Seen())
def a_bar_behind_its_dictionary() -> Iterator[str]:
    for step in STEPS:
        yield f"{{'loss': {loss(step)}, 'learning_rate': 1e-05}}"
        yield bar(step, POINTS, "")


@layout(Seen(note="training_loss is the sum of 'Mean value loss', 'Mean surrogate loss'"))
def parts_with_an_entropy() -> Iterator[str]:
    for step in STEPS:
        parts = f"Mean surrogate loss: {apart(step)} Mean entropy loss: {41 + step % 3}"
        yield f"Learning iteration {step}  Mean value loss: {loss(step) - apart(step)} {parts}"


@layout(Seen(note="the number before the rest of a line counts"))
def losses_of_layers_that_state_no_count() -> Iterator[str]:
    for step in STEPS:
        yield from (f"Region {layer} Avg (IOU: 0.3), count: 5, total_loss = {layer + apart(step)}" for layer in (8, 9))
        yield f" {step}: {loss(step) + 1}, {loss(step)} avg loss, 0.001000 rate, 2.9 seconds, {64 * step} images"


@layout(Seen(every(100)))
def the_count_in_chinese() -> Iterator[str]:
    return (f"训练次数：{100 * step}, Loss：{loss(step)}" for step in STEPS)


@layout(Seen(evaluations=POINTS, file="run.jsonl", note="epochs count"))
def data_under_a_name() -> Iterator[str]:
    for step in STEPS:
        yield json.dumps({"name": "train", "epoch": step, "average loss": loss(step)})
        yield json.dumps({"name": "validation", "epoch": step, "average loss": loss(step) + 0.1})


@layout(Seen(evaluations=POINTS, note="epochs count"))
def a_table_with_a_double_edge() -> Iterator[str]:
    yield from (
        "╔═══════╤════════════╤════════════╗",
        "║ Epoch │ Train Loss │  Val Loss  ║",
        "╠═══════╪════════════╪════════════╣",
    )
    yield from (f"║ {step:2d}/60 │    {loss(step):.4f}  │    {loss(step) + 0.1:.4f}  ║" for step in STEPS)
    yield "╚═══════╧════════════╧════════════╝"


@layout(Seen(evaluations=POINTS, note="validation_loss is taken from 'val'"))
def the_data_alone_beside_the_loss() -> Iterator[str]:
    return (
        f"Epoch {step:02d} ┃ 100% ┃ loss {loss(step)} ┃ val {loss(step) + 0.1} ┃ acc 10.2% ┃ 10.6s" for step in STEPS
    )


@layout(Seen(file="run.jsonl", note="training_loss is the sum of 'loss/policy_avg', 'loss/value_avg'"))
def a_policy_and_its_value() -> Iterator[str]:
    for step in STEPS:
        parts = {"loss/policy_avg": apart(step), "loss/value_avg": loss(step) - apart(step)}
        yield json.dumps({"episode": step, **parts, "objective/rlhf_reward": step / 10})


@layout(Seen(evaluations=POINTS, note="""taken from "training's l2", one of"""))
def two_measures_of_the_same_errors() -> Iterator[str]:
    for step in STEPS:
        measures = ((f"{data}'s l2: {loss(step) + more}", f"{data}'s l1: {9 - step / 9}") for data, more in OF_DATA)
        yield f"[{step}]\t" + "\t".join(itertools.chain.from_iterable(measures))


@layout(Seen(evaluations=POINTS, note="training_loss is the negative of 'train_elbo', which is to rise"))
def bounds_that_rise() -> Iterator[str]:
    return (f"step {step} train_elbo: {-loss(step)} valid_elbo: {-loss(step) - 0.1}" for step in STEPS)


@layout(Seen(note="taken from 'ELBO', which falls as a loss does"))
def a_bound_that_is_printed_as_a_loss() -> Iterator[str]:
    return (f"step {step} ELBO: {loss(step)}" for step in STEPS)


@layout(Seen(evaluations=POINTS, note="epochs count"))
def the_whole_of_parts_under_the_name_of_its_data() -> Iterator[str]:
    for step in STEPS:
        parts = f"Recon: {loss(step) / 2 + apart(step)}, KL: {loss(step) / 3}"
        yield f"Epoch {step} | Train - Total: {loss(step)}, {parts} | Val - Total: {loss(step) + 0.1}, {parts}"


@layout(Seen(every(10), evaluations=POINTS))
def names_above_names_and_examples_that_are_held_out() -> Iterator[str]:
    yield "average  since         example        example        current        current  current"
    yield "loss     last          counter         weight          label        predict features"
    for step in STEPS:
        place = f"{10 * step:14d} {10.0 * step:14.1f}         1.0000         0.3000       57"
        yield f"{9 - loss(step):.6f} {loss(step):.6f} {place}"
        yield f"9.000000 {loss(step) + 0.1:.6f} {place} h"


@layout(Seen(every(10), note="batches count"))
def a_mean_over_the_steps_behind_its_name() -> Iterator[str]:
    shown = (f"init loss: 9.1, avg. loss [{10 * step - 9}-{10 * step}]: {loss(step)}" for step in STEPS)
    yield "\r".join(f"{10 * step}/3000 [00:10, 9it/s, {text}]" for step, text in enumerate(shown, 1))


@layout(Seen(range(0, 100 * POINTS, 100), note="batches count"))
def few_batches_behind_the_epoch() -> Iterator[str]:
    return (f"Batch {step // 3}/{step % 3 * 100} loss {loss(step + 1)}" for step in range(POINTS))


@layout(Seen(evaluations=POINTS, note="training_loss is taken from 'tr'"))
def two_letters_for_the_data() -> Iterator[str]:
    return (f"[ 10.{step:02d}s] epoch {step} | tr {loss(step)} | va {loss(step) + 0.1}" for step in STEPS)


@layout(Seen(range(0, 10 * POINTS, 10), note="batches count"))
def batches_from_0_behind_an_epoch_that_looks_like_a_process() -> Iterator[str]:
    return (f"[{step // 10}: {step % 10 * 10}/100] train loss: {loss(step + 1)}" for step in range(POINTS))


@layout(Seen(evaluations=POINTS, note="batches count"))
def two_lines_at_each_batch() -> Iterator[str]:
    for step in STEPS:
        yield f"[{step}/{POINTS}] train loss: {loss(step)}"
        yield f"[{step}/{POINTS}] val loss: {loss(step) + 0.1}"


@layout(Seen(every(10), note="batches count"))
def an_epoch_that_is_told_behind_its_bar() -> Iterator[str]:
    for step in STEPS:
        yield f"{100 * step % 1000}%|#| {(10 * step - 1) % 100 + 1}/100 [00:10, 9it/s, loss={loss(step)}]"
        if step % 10 == 0:
            yield f"Epoch: {step // 10}, images: 320"


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_a_person_sees_is_read(name: str, tmp_path: Path) -> None:
    LAYOUTS.check(name, tmp_path)


def test_totals_beside_a_loss_by_name_are_none(tmp_path: Path) -> None:
    (run,) = read(
        (f"epoch {step} | loss {loss(step)} | time train: total {step / 10}1 val: total 3.{step}" for step in STEPS),
        tmp_path,
    )
    assert run.run.observations["training_loss"].tolist() == pytest.approx(LOSSES)
    assert len(run.run.evaluations()[0]) == 0


def test_a_bound_that_falls_from_below_0_is_a_loss_that_rises(tmp_path: Path) -> None:
    (run,) = read((f"step {step} ELBO: {-(step**2)}.0" for step in STEPS), tmp_path)
    assert run.run.observations["training_loss"].tolist() == [step**2 for step in STEPS]


def test_the_size_of_a_batch_in_brackets_is_no_step(tmp_path: Path) -> None:
    (run,) = read((f"epoch {step} loss (batch 128): {loss(step)}" for step in STEPS), tmp_path)
    assert run.run.observations.step.tolist() == [*STEPS]


def test_hours_in_the_last_column_are_no_examples_that_are_held_out() -> None:
    table = TextTable(FieldMap({}))
    assert table.begins("Step Loss Remaining")
    assert table.row("10 2.5 29.0 h") == {}


def test_a_report_that_each_of_several_nodes_prints_is_read_once(tmp_path: Path) -> None:
    reports = (f"{{'loss': {loss(step)}, 'learning_rate': {1e-3 / step}, 'epoch': {step / 9}}}" for step in STEPS)
    dead = ("{'loss': 0.0, 'learning_rate': 0.0, 'epoch': 3.5}" for _ in range(40))
    (run,) = read(itertools.chain((report for report in reports for _ in range(4)), dead), tmp_path)
    assert run.run.observations["training_loss"].tolist() == pytest.approx(LOSSES + 10 * [0.0])
    assert "each row comes 4 times" in " ".join(run.notes)


@pytest.mark.parametrize("rate", ["0.1", "{}"])
def test_a_loss_that_stands_still_while_the_epoch_goes_on_is_read_as_often_as_it_is_told(
    rate: str, tmp_path: Path
) -> None:
    epochs = (step // 3 / 100 for step in range(60))
    told = (f"{{'loss': 0.0, 'learning_rate': {rate.format(1 - epoch)}, 'epoch': {epoch}}}" for epoch in epochs)
    (run,) = read(told, tmp_path)
    assert len(run.run.observations) == 60
