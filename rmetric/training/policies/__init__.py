"""Repair without stopping: what is done about a step that looks wrong. One policy a file."""

from __future__ import annotations

from rmetric.lazy import names_of

_HOME_OF = {
    "Decision": "rmetric.training.policies.base",
    "Policies": "rmetric.training.policies.base",
    "Policy": "rmetric.training.policies.base",
    "Repair": "rmetric.training.policies.base",
    "Suspicion": "rmetric.training.policies.trigger",
    "RecomputeStep": "rmetric.training.policies.recompute_step",
    "RestoreState": "rmetric.training.policies.restore_state",
    "SkipUpdate": "rmetric.training.policies.skip_update",
    "LowerLearningRate": "rmetric.training.policies.lower_learning_rate",
    "ClipGradients": "rmetric.training.policies.clip_gradients",
    "SmoothSingularValues": "rmetric.training.policies.smooth_singular_values",
    "QkNormalisation": "rmetric.training.policies.qk_normalisation",
    "ResetRouterBias": "rmetric.training.policies.reset_router_bias",
}

__all__ = list(_HOME_OF)

__getattr__ = names_of(__name__, _HOME_OF)
