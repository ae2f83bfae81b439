"""Console output in the layouts of many training programs; each generator yields the lines of a run."""

from __future__ import annotations

from collections.abc import Iterator

from sample_values import EVERY, POINTS, loss, steps, validation


def nanogpt() -> Iterator[str]:
    """nanoGPT: a mean over both splits now and then, and every iteration."""
    yield "number of parameters: 10.65M"
    yield "using fused AdamW: True"
    for step, evaluated in steps():
        yield f"iter {step}: loss {loss(step):.4f}, time 23.51ms, mfu 12.3%"
        if evaluated:
            yield f"step {step}: train loss {loss(step):.4f}, val loss {validation(step):.4f}"


def modded_nanogpt() -> Iterator[str]:
    """modded-nanogpt: its own source code first."""
    yield "import torch"
    yield "        val_loss = 0.0"
    yield "            print(f'step:{step}/{args.num_iterations} val_loss:{val_loss:.4f}')"
    yield "    learning_rate : float = 0.0036"
    for step, evaluated in steps():
        yield f"step:{step}/{POINTS} train_loss:{loss(step):.4f} train_time:{step * 250}ms step_avg:250.10ms"
        if evaluated:
            yield f"step:{step}/{POINTS} val_loss:{validation(step):.4f} train_time:{step * 250}ms step_avg:250.10ms"


def llm_c() -> Iterator[str]:
    """llm.c."""
    yield "| max_sequence_length T | 1024                                               |"
    for step, evaluated in steps():
        yield (
            f"step {step:4d}/{POINTS} | loss {loss(step):.6f} (-0.12z)| norm 1.2345 (+0.30z)| lr 3.00e-04 | "
            "210.40 ms | 41.2% bf16 MFU | 2491520 tok/s"
        )
        if evaluated:
            yield f"val loss {validation(step):.6f}"


def nanochat() -> Iterator[str]:
    """nanochat."""
    for step, evaluated in steps():
        yield (
            f"step {step:05d}/{POINTS:05d} ({100 * step / POINTS:.2f}%) | loss: {loss(step):.6f} | lrm: 1.00 | "
            "dt: 412.20ms | tok/sec: 1,271,001 | mfu: 47.10 | total time: 1.20m"
        )
        if evaluated:
            yield f"Step {step:05d} | Validation loss: {validation(step):.4f}"


def litgpt() -> Iterator[str]:
    """litgpt: two iterations a step."""
    for step, evaluated in steps():
        yield (
            f"Epoch 1 | iter {step} step {(step + 1) // 2} | loss train: {loss(step):.3f}, val: n/a | "
            f"iter time: 350.11 ms{' (step)' if step % 2 == 0 else ''} remaining time: 0:10:12"
        )
        if evaluated:
            yield f"iter {step}: val loss {validation(step):.4f}, val time: 1200.11 ms"


def torchtitan() -> Iterator[str]:
    """torchtitan, in colour."""
    for step, evaluated in steps():
        yield (
            f"[rank0]:\x1b[31mstep: {step:2d}  \x1b[32mloss: {loss(step):7.4f}  \x1b[38;2;180;60;0mgrad_norm:  1.2000  "
            "\x1b[38;2;54;234;195mmemory:  7.14GiB(7.52%)  \x1b[34mtps: 1,234  \x1b[36mtflops: 10.10  \x1b[35mmfu: 3.20%\x1b[39m"
        )
        if evaluated:
            yield f"[rank0]:\x1b[32mvalidate step: {step:2d}  \x1b[33mloss: {validation(step):7.4f}  memory:  7.14GiB(7.52%)"


def megatron() -> Iterator[str]:
    """Megatron-LM and Megatron-DeepSpeed."""
    for step, evaluated in steps():
        yield (
            f" [2024-01-01 10:00:00] iteration {step:8d}/{POINTS:8d} | consumed samples: {step * 64:12d} | elapsed time "
            f"per iteration (ms): 22306.6 | learning rate: 9.850E-05 | global batch size:    64 | lm loss: "
            f"{loss(step):.6E} | loss scale: 32768.0 | grad norm: 1.250 | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |"
        )
        if evaluated:
            yield "-" * 80
            yield f" validation loss at iteration {step} | lm loss value: {validation(step):.6E} | lm loss PPL: 5.1E+01 |"


def gpt_neox() -> Iterator[str]:
    """GPT-NeoX: a line of DeepSpeed's beside its own."""
    for step, evaluated in steps():
        yield f"[2024-01-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[6e-05], mom=[[0.9, 0.95]]"
        yield (
            f" samples/sec: 12.345 | iteration {step:8d}/{POINTS:8d} | elapsed time per iteration (ms): 5184.2 | learning "
            f"rate: 6.000E-05 | approx flops per GPU: 41.2TFLOPS | lm_loss: {loss(step):.6E} | loss scale: 4096.0 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if evaluated:
            yield f" validation results at iteration {step} | lm_loss value: {validation(step):.6E} | lm_loss_ppl value: 5.1E+01 |"


def fairseq() -> Iterator[str]:
    """fairseq."""
    for step, evaluated in steps():
        yield (
            f"2021-01-01 10:00:00 | INFO | train_inner | epoch 001: {step:6d} / {POINTS} loss={loss(step)}, "
            f"nll_loss={loss(step) - 0.1:.3f}, ppl=14.2, wps=1234.5, ups=1.1, wpb=1000.0, bsz=32.0, num_updates={step}, "
            "lr=1e-05, gnorm=2.131, loss_scale=16, train_wall=12, gb_free=9.8, wall=100"
        )
        if evaluated:
            yield (
                f"2021-01-01 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss {validation(step)} | "
                f"nll_loss {validation(step) - 0.1:.3f} | ppl 15.1 | wps 0 | wpb 1000 | bsz 32 | num_updates {step}"
            )
    yield f"2021-01-01 10:00:00 | INFO | train | epoch 001 | loss 3.0 | nll_loss 2.9 | ppl 8.2 | num_updates {POINTS}"


def algoperf() -> Iterator[str]:
    """AlgoPerf's absl log: evaluations stated twice, and before training lines of earlier steps."""
    for step, evaluated in steps():
        yield f"I0307 05:49:05.438520 140284617180928 logging_writer.py:48] [{step}] global_step={step}, grad_norm=0.5, loss={loss(step)}"
        if evaluated:
            at = step + 0.5 if step < POINTS else step
            yield (
                f"I0307 05:49:06.438520 140284617180928 submission_runner.py:469] Time since start: 10.80s, \tStep: {int(at)}, \t"
                f"{{'train/loss': Array({loss(step)}, dtype=float32), 'validation/loss': Array({validation(step)}, dtype=float32), "
                f"'test/loss': Array(9.0, dtype=float32)}}"
            )


def wordlm() -> Iterator[str]:
    """Word language model of the PyTorch examples: batches of epochs."""
    for step, evaluated in steps():
        epoch, batch = (step - 1) // EVERY + 1, (step - 1) % EVERY + 1
        yield (
            f"| epoch {epoch:3d} | {batch * 200:5d}/ 2000 batches | lr 20.00 | ms/batch 12.12 | loss {loss(step):5.2f} | "
            f"ppl  2079.22"
        )
        if evaluated:
            yield "-" * 89
            yield f"| end of epoch {epoch:3d} | time: 41.38s | valid loss {validation(step):5.2f} | valid ppl   247.15"
    yield "| End of training | test loss  4.74 | test ppl   114.95"


def mmengine_console() -> Iterator[str]:
    """mmengine's log, with the environment before it."""
    yield "2023/06/05 20:09:42 - mmengine - INFO - "
    yield "    numpy_random_seed: 21"
    yield "    GCC: gcc (Ubuntu 7.5.0-3ubuntu1~18.04) 7.5.0"
    for step, _ in steps():
        epoch, batch = (step - 1) // EVERY + 1, (step - 1) % EVERY + 1
        yield (
            f"2023/06/05 20:10:13 - mmengine - INFO - Epoch(train)   [{epoch}][{batch:2d}/{EVERY}]  lr: 4.000000e-08  eta: 4:59:11  "
            f"time: 9.978710  data_time: 9.013012  memory: 1234  loss: {loss(step):.6f}  loss_kpt: 0.421912  acc_pose: 0.007440"
        )


def paddle() -> Iterator[str]:
    """Paddle's trainer: a batch number that begins again, and the mean of each epoch."""
    for step, evaluated in steps():
        epoch, batch = (step - 1) // EVERY, (step - 1) % EVERY
        yield (
            f"2022-04-12 17:06:10,849 - INFO - epoch: {epoch}, batch_id: {batch * 500}, AUC:0.500000, loss:{loss(step)}, "
            "avg_reader_cost: 0.00058 sec, ips: 1000.71910 ins/s"
        )
        if evaluated:
            yield f"2022-04-12 17:24:35,400 - INFO - epoch: {epoch} done, AUC: 0.874769, loss:3.5, epoch time: 1105.58 s"


def trainer_console() -> Iterator[str]:
    """Dictionaries that Hugging Face's Trainer prints between progress bars, with the mean of the run at the end."""
    for step, evaluated in steps():
        yield f" {step}%|▎         | {step}/{POINTS} [00:17<09:42,  8.20s/it]"
        yield str({"loss": loss(step), "grad_norm": 1.25, "learning_rate": 4e-05, "epoch": step / 100})
        if evaluated:
            yield str({"eval_loss": validation(step), "eval_runtime": 3.1, "epoch": step / 100})
    yield str({"train_runtime": 131.8, "train_samples_per_second": 3.6, "train_loss": 3.0, "epoch": POINTS / 100})


def slurm_of_a_newer_trainer() -> Iterator[str]:
    """The same with numbers as texts, after a job's first lines."""
    yield "Starting at Sun Apr 13 01:52:20 EDT 2025"
    yield "| 51%   76C    P0            298W /  300W |   46292MiB /  49140MiB |     99%      Default |"
    for step, evaluated in steps():
        yield str({"loss": f"{loss(step)}", "grad_norm": "1.25", "learning_rate": "4e-05", "epoch": f"{step / 100}"})
        if evaluated:
            yield str({"eval_loss": f"{validation(step)}", "epoch": f"{step / 100}"})


def progress_bar() -> Iterator[str]:
    """A progress bar that is written over."""
    yield "\r".join(
        f"{step:3d}%|####      | {step}/{POINTS} [00:01<00:10, 30.1it/s, loss={loss(step)}]" for step, _ in steps()
    )


def epochs_in_words() -> Iterator[str]:
    """A script of somebody's own: an epoch over several lines."""
    for step, _ in steps():
        yield f"Epoch: {step}/{POINTS}"
        yield "Time Taken: 27.69s - LR: 9.90e-05"
        yield f"Train Loss: {loss(step):.4f} - Train Perplexity: 568.18"
        yield f"Valid Loss: {validation(step):.4f} - Valid Perplexity: 481.62"


def keras_console() -> Iterator[str]:
    """Keras, one line an epoch after a header line."""
    for step, _ in steps():
        yield f"Epoch {step}/{POINTS}"
        yield f"100/100 [==============================] - 1s 10ms/step - loss: {loss(step)} - accuracy: 0.9 - val_loss: {validation(step)}"


def sweep() -> Iterator[str]:
    """Three runs in one file, told apart by nothing but the epoch."""
    for run in range(3):
        yield f"  sampling {run}"
        for step, _ in steps():
            yield f"  [FT] ep={step - 1}: loss={loss(step)} acc=91.5% lr=0.009990"


def detectron2_console() -> Iterator[str]:
    """detectron2's console."""
    for step, _ in steps():
        yield (
            f"[03/15 10:00:00 d2.utils.events]:  eta: 0:10:00  iter: {step * 20 - 1}  total_loss: {loss(step)}  loss_cls: 0.8  "
            "loss_box_reg: 0.3  time: 0.5012  data_time: 0.0101  lr: 0.0002  max_mem: 3000M"
        )
