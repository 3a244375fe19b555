#!/usr/bin/env python3
"""What `--grad-checkpointing` takes and gives: the most memory of a training step and its time, with it and without.

Norma, and PyTorch with timm's set_grad_checkpointing(), as processes of their own (see peers.py). With and without take
turns step by step. Memory is the most that a process held, as the operating system counts (VmHWM). Training is in float32
and channels_last, with AdamW and images of 224 pixels. Prints a Markdown table, and writes all figures to
benchmarks/results/PROCESSOR/grad_checkpointing.json.

    ./run build && python3 benchmarks/grad_checkpointing.py
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics

import peers
import processor

HERE = pathlib.Path(__file__).resolve().parent
BATCHES = (8, 32)


def measure(programs, model, batch, rounds):
    """By program: seconds of each round and the most resident bytes, without and with checkpoints."""
    rows = {}
    common = ["--model", model, "--bench", "train", "-b", batch, "--channels-last"]
    for program, start in (("norma", programs.start_norma), ("pytorch", programs.start_pytorch)):
        pair = [start(common), start([*common, "--grad-checkpointing"])]
        for contender in pair:
            contender.step()  # memory and plans are made
        seconds = [[], []]
        for _ in range(rounds):
            for times, contender in zip(seconds, pair):
                times.append(contender.step())
        rows[program] = {"seconds": seconds, "peak_rss": [contender.stop() for contender in pair]}
    return {"name": model, "batch_size": batch} | rows


def middle_of_ratios(above, below):
    return statistics.median(a / b for a, b in zip(above, below))


def table(rows):
    lines = ["| network | batch | Norma, MB | with checkpoints, MB | less memory | time | PyTorch, MB | with checkpoints, MB | "
             "less memory | time | Norma / PyTorch, MB | both with checkpoints |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = []
        for program in ("norma", "pytorch"):
            without, checkpoints = row[program]["peak_rss"]
            time = middle_of_ratios(row[program]["seconds"][1], row[program]["seconds"][0])
            cells += [f"{without / 1e6:.0f}", f"{checkpoints / 1e6:.0f}", f"{100 * (1 - checkpoints / without):.0f} %",
                      f"{time:.2f}"]
        cells += [f"{ours / theirs:.2f}" for ours, theirs in zip(row["norma"]["peak_rss"], row["pytorch"]["peak_rss"])]
        lines.append(f"| {row['name']} | {row['batch_size']} | " + " | ".join(cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=pathlib.Path, default=peers.own_program(None, "benchmarks/turns"),
                        help="the program that does steps when told to")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has torch and timm")
    parser.add_argument("--model", choices=peers.MODELS, nargs="+", default=peers.MODELS)
    parser.add_argument("-b", "--batch-size", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=7, help="timed steps of each")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="folder of the processors' folders")
    options = parser.parse_args()
    options.isa, options.norma = None, options.turns  # of what peers.py asks
    peers.check_programs(options)
    programs = peers.Programs(options)
    rows = [measure(programs, model, batch, options.rounds) for model in options.model for batch in options.batch_size]
    print("\n".join(table(rows)))
    machine = processor.describe()
    folder = options.results / machine["folder"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "grad_checkpointing.json"
    made = {"processor": machine, "date": datetime.date.today().isoformat(), "threads": options.threads,
            "rounds": options.rounds, "versions": programs.versions, "rows": rows}
    path.write_text(json.dumps(made, indent=1) + "\n")
    print(f"\n{machine['name']}, {options.threads} threads, {options.rounds} rounds, {programs.versions['pytorch']}, "
          f"{made['date']}\nwritten: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
