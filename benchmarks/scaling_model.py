#!/usr/bin/env python3
"""Prints what data parallel training of ResNet-50 would reach on many machines, on paper: the efficiency in percent by
the number of ranks, with messages hidden behind the backward pass as far as possible / with all of them after it.

    python3 benchmarks/scaling_model.py

A rank makes a step of its own images in the time that benchmarks/peers.py has measured (--processor). Then, for n ranks,
links of B bytes a second each way and L seconds for each message, a bucket of S bytes takes

    t = 2 (n - 1) / n · S / B + 2 (n - 1) L

since each rank sends every other its slice, and gets the sums in the same way (parallel/process_group_mpi.cpp). Without
overlap all buckets come behind the step. With overlap they become ready at equal distances in the backward pass, which
is two thirds of a step, and travel one after the other. The network between the machines is as wide as all links.
"""
import argparse
import json
import pathlib
import statistics

HERE = pathlib.Path(__file__).resolve().parent
BUCKET_BYTES = 25 * 2**20  # parallel/gradient_reducer.h
BACKWARD_SHARE = 2 / 3
GBITS = (10, 25, 100, 400)
FASTER = 20  # a rank that is assumed to be so many times as fast as the one measured
RANKS = (2, 8, 32, 128, 512)
NETWORK, PARAMETERS = "resnet50", 25_557_032  # tests/models/registry_test.cpp checks the number


def message_seconds(ranks, size, bytes_per_second, latency):
    """Of one bucket: (for its bytes, for its messages)."""
    return 2 * (ranks - 1) / ranks * size / bytes_per_second, 2 * (ranks - 1) * latency


def buckets_of(parameters):
    """Their bytes; the last one has what is left."""
    whole, rest = divmod(4 * parameters, BUCKET_BYTES)
    return [BUCKET_BYTES] * whole + ([rest] if rest else [])


def step_seconds(ranks, parameters, own, gbit, latency, overlap):
    buckets = buckets_of(parameters)
    times = [sum(message_seconds(ranks, size, gbit * 1e9 / 8, latency)) for size in buckets]
    if not overlap:
        return own + sum(times)
    backward = BACKWARD_SHARE * own
    free = 0.0  # the link, counted from the beginning of the backward pass
    for i, seconds in enumerate(times):
        free = max(free, backward * (i + 1) / len(times)) + seconds
    return own - backward + max(free, backward)


def limit(parameters, own, gbit, latency):
    """The most ranks, doubled each time, whose efficiency is at least 80 %, and what ends it."""
    ranks = 1
    while ranks < 2**20 and step_seconds(2 * ranks, parameters, own, gbit, latency, overlap=True) <= own / 0.8:
        ranks *= 2
    byte_seconds, number_seconds = (sum(part) for part in zip(*(
        message_seconds(2 * ranks, size, gbit * 1e9 / 8, latency) for size in buckets_of(parameters))))
    return ranks, "the bytes" if byte_seconds > number_seconds else "the number of messages"


def table(result, latency):
    lines = ["| step of a rank, s | link, Gbit/s | " + " | ".join(map(str, RANKS)) + " | 80 % up to | what ends it |",
             "|---|---|" + "---|" * (len(RANKS) + 2)]
    row = next(row for row in result["train"]["rows"] if row["name"] == NETWORK)
    measured = statistics.median(row["seconds"]["norma"])
    for own, gbit in [(measured / faster, gbit) for faster in (1, FASTER) for gbit in GBITS]:
        cells = []
        for ranks in RANKS:
            shares = [own / step_seconds(ranks, PARAMETERS, own, gbit, latency, overlap) for overlap in (True, False)]
            cells.append(" / ".join(f"{100 * share:.0f}" for share in shares))
        ranks, reason = limit(PARAMETERS, own, gbit, latency)
        lines.append(f"| {own:.3f}{'' if own == measured else ' (assumed)'} | {gbit} | " + " | ".join(cells)
                     + f" | {ranks} | {reason} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", default="intel-xeon-6-207-avx-512", help="a folder of benchmarks/results")
    parser.add_argument("--latency", type=float, default=20, help="microseconds for each message")
    options = parser.parse_args()
    result = json.loads((HERE / "results" / options.processor / "peers.json").read_text())
    print("\n".join(table(result, options.latency * 1e-6)))


if __name__ == "__main__":
    main()
