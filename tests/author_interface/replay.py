"""A picture of one log as the author's ``replay_and_analyze_logs.py`` draws it, and what it says of alerts.

python replay.py LOG PICTURE
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd


def main(log, picture):
    with open(log) as file:
        events = [json.loads(line) for line in file]
    config = events[0]["config"]
    records = [event for event in events if event["event"] == "METRICS"]
    injected = next((event["step"] for event in events if event["event"] == "FAULT_INJECTED"), None)
    failed = next((event for event in events if event["event"] == "EXPERIMENT_FAILURE"), None)
    frame = pd.DataFrame(records).set_index("step")

    figure, (loss, signals, r) = plt.subplots(3, 1, sharex=True)
    frame[["training_loss", "validation_loss"]].plot(ax=loss)
    frame[["lambda_norm", "sigma_sq_norm", "delta_l_norm"]].plot(ax=signals)
    frame["r_metric"].plot(ax=r)
    r.axhline(config["alert_thresholds"]["r_metric"])
    for axes in (loss, signals, r):
        if injected is not None:
            axes.axvline(injected)
    figure.savefig(picture)
    plt.close(figure)
    return {
        "experiment": config["experiment_id"],
        "first_alert": records[-1]["alerts"].get("r_metric"),
        "failed": failed and failed["step"],
        "reason": failed and failed["reason"],
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:3])))
