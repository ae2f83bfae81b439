"""Tables as the author's ``generate_paper_tables.py`` makes them from a folder of logs.

python tables.py FOLDER

F1 of R and of four baselines over all logs; the same by model; detections by fault. An alert anywhere counts.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import IsolationForest

R_THRESHOLD, Z, WINDOW, RISES, GRAD_NORM = 0.57, 3.0, 100, 3, 100.0


def read(path):
    config, records, failed = None, [], None
    with open(path) as file:
        for line in file:
            event = json.loads(line)
            if event["event"] == "EXPERIMENT_START":
                config = event["config"]
            elif event["event"] == "METRICS":
                records.append(event)
            elif event["event"] == "EXPERIMENT_FAILURE":
                failed = event["step"]
            elif event["event"] == "EXPERIMENT_SUCCESS":
                failed = None
    return config, pd.DataFrame(records), failed


def alerts(frame):
    loss = frame["validation_loss"]
    spike = (loss - loss.rolling(WINDOW, min_periods=2).mean()) / loss.rolling(WINDOW, min_periods=2).std()
    rises = (loss.diff() > 0).rolling(RISES).sum()
    known = loss.dropna().to_numpy().reshape(-1, 1)
    forest = IsolationForest(n_estimators=20, random_state=0).fit_predict(known) if len(known) > 1 else np.ones(1)
    return {
        "R-Metric": bool((frame["r_metric"] > R_THRESHOLD).any()),
        "loss spike": bool((spike > Z).any()),
        "loss slope": bool((rises >= RISES).any()),
        "gradient norm": bool((frame["grad_norm"] > GRAD_NORM).any()),
        "Isolation Forest": bool((forest == -1).any()),
    }


def f1(rows, detector):
    hits = sum(row["failed"] and row[detector] for row in rows)
    wrong = sum(row["failed"] != row[detector] for row in rows)
    return 2 * hits / (2 * hits + wrong) if hits + wrong else float("nan")


def main(folder):
    rows = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        config, frame, failed = read(path)
        fault = config["fault_injection"]
        row = {"model": config["model_type"], "fault": fault["type"], "failed": failed is not None, **alerts(frame)}
        assert fault["trigger_step"] is None or fault["trigger_step"] <= config["total_training_steps"]
        assert set(config["r_metric_weights"]) == {"w1_lambda", "w2_sigma_sq", "w3_delta_l"}
        assert config["alert_thresholds"]["r_metric"] == R_THRESHOLD
        rows.append(row)
    detectors = [name for name in rows[0] if name not in ("model", "fault", "failed")]
    models = sorted({row["model"] for row in rows})
    return {
        "detectors": {name: f1(rows, name) for name in detectors},
        "models": {model: f1([row for row in rows if row["model"] == model], "R-Metric") for model in models},
        "faults": pd.DataFrame(rows).groupby("fault")["R-Metric"].mean().to_dict(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1]), indent=1))
