"""Training with JAX and Optax, watched by the numbers that it reports.

pip install -e . jax optax                                      # in a clone; no torch
python examples/train_jax.py run.jsonl
rmetric diagnose run.jsonl                                      # afterwards, or `rmetric watch run.jsonl` meanwhile
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import optax

import rmetric

STEPS = 200


def predict(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Outputs, (B, 1), of inputs, (B, 32)."""
    return jax.nn.relu(x @ weights["into"]) @ weights["out"]


def main() -> None:
    """Train a small regression."""
    p = argparse.ArgumentParser(description="Training with JAX, watched by the numbers that it reports.")
    p.add_argument("log", nargs="?", default="run.jsonl")
    args = p.parse_args()

    keys = jax.random.split(jax.random.key(0), STEPS + 3)
    weights = {"into": 0.2 * jax.random.normal(keys[0], (32, 64)), "out": 0.1 * jax.random.normal(keys[1], (64, 1))}
    target = jax.random.normal(keys[2], (32, 1))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 20, STEPS)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    state = optimizer.init(weights)

    @jax.jit
    def train(weights, state, x):
        loss, gradients = jax.value_and_grad(lambda w: jnp.mean((predict(w, x) - x @ target) ** 2))(weights)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss, optax.tree.norm(gradients)

    with rmetric.MetricsMonitor(log=args.log) as monitor:
        for step in range(STEPS):
            x = jax.random.normal(keys[step + 3], (64, 32))
            weights, state, loss, grad_norm = train(weights, state, x)
            monitor.step(loss, grad_norm=grad_norm, learning_rate=schedule(step))


if __name__ == "__main__":
    main()
