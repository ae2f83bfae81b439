"""All records of all runs as one CSV file, and the held-out losses that the truth was made of as another."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rmetric.records import MEASUREMENTS, VERDICTS
from rmetric.reporting.case_study.findings import CaseResults


def metrics_frame(results: CaseResults) -> pd.DataFrame:
    """One row a record: ``run, step, since_onset``, all measurements, the normalised signals, R, ``alerts``.

    ``alerts`` lists the detectors that have alerted so far in the run with the step of their first alert, such as
    ``r_metric@21 numerics@281``. ``since_onset`` is empty for a run without a fault.
    """
    return pd.concat([_run_frame(results, index) for index in range(len(results.runs))], ignore_index=True)


def held_out_frame(results: CaseResults) -> pd.DataFrame:
    """One row a judged step: ``step, twin`` and one column a run; held-out loss in nats, empty after a run's end."""
    study = results.study
    names = ["twin", *(run.name for run in results.runs)]
    return pd.DataFrame({"step": study.judged_steps, **{name: study.held_out[name] for name in names}})


def to_csv(frame: pd.DataFrame) -> bytes:
    """As CSV at full precision: an empty cell was *not measured*, ``inf`` was *not finite*."""
    return frame.to_csv(index=False, lineterminator="\n", na_rep="").encode()


def _run_frame(results: CaseResults, index: int) -> pd.DataFrame:
    run, truth, value = results.runs[index], results.truths[index], results.r_metric[index]
    observations = run.observations
    since = np.full(len(observations), np.nan) if truth.onset is None else observations.step - truth.onset
    verdicts = dict(zip(("r_metric", "lambda_norm", "sigma_sq_norm", "delta_l_norm"), value, strict=True))
    return pd.DataFrame(
        {
            "run": run.name,
            "step": observations.step,
            "since_onset": pd.array(since, dtype="Int64"),
            **{name: observations[name] for name in MEASUREMENTS},
            **{name: verdicts[name] for name in VERDICTS},
            "alerts": _alerts_so_far(results, index),
        }
    )


def _alerts_so_far(results: CaseResults, index: int) -> list[str]:
    """Of each record; causal detectors only, since no record can know what one makes of the whole run."""
    detectors = results.evaluator.detectors
    first = {
        name: step
        for name, detector in detectors.items()
        if detector.causal and (step := results.first_alert(index, name)) is not None
    }
    known = sorted(first.items(), key=lambda item: item[1])
    return [
        " ".join(f"{name}@{step}" for name, step in known if step <= now)
        for now in results.runs[index].observations.step.tolist()
    ]
