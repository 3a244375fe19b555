#!/usr/bin/env python3
"""What `--recompute-norms` and `--grad-checkpointing` take and give: the most memory of a training step and its time.

Norma with neither and with each, and PyTorch with and without timm's set_grad_checkpointing(), as processes of their own
(see peers.py). The processes of a program take turns step by step. Memory is the most that a process held, as the
operating system counts (VmHWM). Training is in float32 and channels_last, with AdamW and images of 224 pixels. Prints a
Markdown table, and writes all figures to benchmarks/results/PROCESSOR/grad_checkpointing.json.

    ./run build && python3 benchmarks/grad_checkpointing.py
"""
import argparse
import datetime
import os
import pathlib
import statistics

import peers
import processor
import records

HERE = pathlib.Path(__file__).resolve().parent
BATCHES = (8, 32)


def measure(programs, model, batch, rounds):
    """By program and option ("" without one): seconds of each round and the most resident bytes."""
    rows = []
    common = ["--model", model, "--bench", "train", "-b", batch, "--channels-last"]
    for program, start, choices in (("Norma", programs.start_norma, ("", "--recompute-norms", "--grad-checkpointing")),
                                    ("PyTorch", programs.start_pytorch, ("", "--grad-checkpointing"))):
        contenders = {option: start([*common, *option.split()]) for option in choices}
        for contender in contenders.values():
            contender.step()  # memory and plans are made
        seconds = {option: [] for option in choices}
        for _ in range(rounds):
            for option, contender in contenders.items():
                seconds[option].append(contender.step())
        rows += [{"name": model, "batch_size": batch, "program": program, "option": option, "seconds": seconds[option],
                  "peak_rss": contender.stop()} for option, contender in contenders.items()]
    return rows


def middle_of_ratios(above, below):
    return statistics.median(a / b for a, b in zip(above, below))


def table(rows):
    """A row for each program and batch: MB, and in brackets the time beside that without an option."""
    options = ("--recompute-norms", "--grad-checkpointing")
    lines = ["| network | batch | program | MB | " + " | ".join(f"`{option}`" for option in options) + " |",
             "|---|---|---|---|---|---|"]
    found = {(row["name"], row["batch_size"], row["program"], row["option"]): row for row in rows}
    for network, batch, program, option in found:
        if option:
            continue
        without = found[network, batch, program, ""]
        cells = [network, batch, program, f"{without['peak_rss'] / 1e6:.0f}"]
        for row in (found.get((network, batch, program, option)) for option in options):
            cells.append("–" if row is None else f"{row['peak_rss'] / 1e6:.0f} "
                         f"({middle_of_ratios(row['seconds'], without['seconds']):.2f})")
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
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
    rows = [row for model in options.model for batch in options.batch_size
            for row in measure(programs, model, batch, options.rounds)]
    print("\n".join(table(rows)))
    machine = processor.describe()
    folder = options.results / machine["folder"]
    path = folder / "grad_checkpointing.json"
    made = {"processor": machine, "date": datetime.date.today().isoformat(), "threads": options.threads,
            "rounds": options.rounds, "versions": programs.versions, "rows": rows}
    records.write(path, made)
    print(f"\n{machine['name']}, {options.threads} threads, {options.rounds} rounds, {programs.versions['pytorch']}, "
          f"{made['date']}\nwritten: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
