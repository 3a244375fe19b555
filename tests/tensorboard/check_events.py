#!/usr/bin/env python3
"""check_events.py FOLDER: what TensorBoard reads of a run's event files is what its metrics.csv says."""

import csv
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main() -> int:
    folder = sys.argv[1]
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    with open(f"{folder}/metrics.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {"loss/train": "loss", "lr": "lr", "loss/test": "test_loss", "accuracy/test": "test_accuracy"}
    for tag, column in columns.items():
        expected = [(int(row["step"]), float(row[column])) for row in rows if row[column]]
        read = [(event.step, event.value) for event in events.Scalars(tag)]
        same = len(read) == len(expected) and all(
            a == b and math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-12) for (a, x), (b, y) in zip(read, expected))
        if not same:
            print(f"tensorboard: {tag}: expected {expected}, read {read}")
            return 1
    norms = [tag for tag in events.Tags()["histograms"] if tag.startswith("norm/")]
    for tag in norms:
        for event in events.Histograms(tag):
            histogram = event.histogram_value
            if sum(histogram.bucket) != histogram.num or not histogram.min <= histogram.max:
                print(f"tensorboard: {tag}: {histogram}")
                return 1
    if len(norms) != 40 or len(rows) < 10:
        print(f"tensorboard: expected histograms of 40 weights and biases and at least 10 rows, read {len(norms)}, {len(rows)}")
        return 1
    print(f"tensorboard: {len(rows)} rows in {len(columns)} curves and {len(norms)} histograms are what metrics.csv says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
