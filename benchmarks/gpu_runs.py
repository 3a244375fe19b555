#!/usr/bin/env python3
"""Images per second of the runs in a folder, beside each other: gpu_runs.py FOLDER

A run is a folder with metrics.csv, as `norma train` leaves it, or a results file of `norma bench`. Of a run's rows the
median counts, without the first, in which the device makes plans and the loader fills its queue. The share is that of
the first line."""
import csv
import json
import pathlib
import statistics
import sys


def of_training(file):
    with file.open(newline="") as lines:
        rates = [float(row["images_per_second"]) for row in csv.DictReader(lines) if row["images_per_second"]]
    if len(rates) < 2:
        sys.exit(f"gpu_runs: {file}: expected two rows with images_per_second, got {len(rates)}")
    return statistics.median(rates[1:])


def runs(folder):
    for file in sorted(folder.rglob("metrics.csv")):
        yield f"train {file.parent.relative_to(folder)}", of_training(file)
    for file in sorted(folder.rglob("*.json")):
        rows = json.loads(file.read_text())
        for row in rows if isinstance(rows, list) else [rows]:
            for mode in ("train", "infer"):
                if f"{mode}_samples_per_sec" in row:
                    name = " ".join(str(row[key]) for key in ("model", "norm", "format", "precision"))
                    yield f"bench {file.stem}: {name}, {mode}", row[f"{mode}_samples_per_sec"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(runs(pathlib.Path(sys.argv[1])))
    if not found:
        sys.exit(f"gpu_runs: expected a run in {sys.argv[1]}, got none")
    width = max(len(name) for name, _ in found)
    for name, rate in found:
        print(f"{name:{width}}  {rate:9.1f} img/s  {rate / found[0][1]:5.2f}")


if __name__ == "__main__":
    main()
