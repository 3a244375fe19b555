#!/usr/bin/env python3
"""What the kernels of each norm cost at least, counted on the virtual GPU: bounds, never measurements.

The virtual GPU (docs/cuda.md) runs the PTX that nvcc made and counts warp instructions and the sectors of memory that
they ask for, the same on every machine. From these follow, for a GPU whose properties are known, three least times: that
of issuing the instructions, one in each of the four schedulers of a multiprocessor and clock; that of moving the bytes
that the pass must move at nine tenths of the memory's data-sheet rate, which is about what a copy reaches; and that of
moving the sectors through the first cache, 128 bytes in each multiprocessor and clock. The largest bounds the rate of the
kernels from above. The cost of a launch and the latency of memory are not in it, nor what misses the caches twice.

    ./run build --preset cuda-release --rooms virtual_gpu
    python3 benchmarks/virtual_gpu.py            # counts, and writes benchmarks/results/virtual_gpu.json and docs/cuda.md
    python3 benchmarks/virtual_gpu.py --check    # counts, and fails where a case has become worse by over 2 percent
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- made by benchmarks/virtual_gpu.py -->", "<!-- end of what benchmarks/virtual_gpu.py makes -->"
RESNET = [(8, 64, 112), (8, 256, 56), (16, 512, 28), (32, 1024, 14), (64, 2048, 7)]
CONVNEXT = [(16, 96, 56), (32, 192, 28), (64, 384, 14), (128, 768, 7)]
NORMS = {"layer2d": CONVNEXT, "batch": RESNET, "group:32": RESNET[1:]}
# Bytes that a pass must move, in tensors of x's size: forward and backward.
LEAST = {"layer2d": (2, 3), "batch": (3, 5), "group:32": (3, 5)}
COUNTED = ("launches", "warp_instructions", "bytes", "sectors")


def cases():
    for norm, shapes in NORMS.items():
        for layout in ("channels_last", "contiguous"):
            for dtype in ("bfloat16", "float32"):
                for n, channels, side in shapes:
                    yield {"norm": norm, "layout": layout, "dtype": dtype, "shape": [n, channels, side, side]}


def counts(build, case, backward):
    """The sums over all kernels of one run."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "counts.json"
        command = [build / "tests/virtual_gpu/norm_pass", "--norm", case["norm"], "--dtype", case["dtype"],
                   "--shape", ",".join(map(str, case["shape"]))]
        command += ["--channels-last"] * (case["layout"] == "channels_last") + ["--backward"] * backward
        environment = dict(os.environ, LD_PRELOAD=str(build / "tests/virtual_gpu/libnorma_virtual_gpu.so"),
                           NORMA_VIRTUAL_GPU="h200", NORMA_VIRTUAL_GPU_COUNTS=str(result), OMP_NUM_THREADS="1")
        subprocess.run([str(c) for c in command], check=True, env=environment)
        kernels = json.loads(result.read_text())["kernels"]
    return {"launches": sum(k["launches"] for k in kernels),
            "warp_instructions": sum(k["warp_instructions"] for k in kernels),
            "bytes": sum(k["global_load_bytes"] + k["global_store_bytes"] for k in kernels),
            "sectors": sum(k["global_load_sectors"] + k["global_store_sectors"] for k in kernels)}


def counted(build, case):
    forward = counts(build, case, backward=False)
    both = counts(build, case, backward=True)
    return {**case, "forward": forward, "backward": {name: both[name] - forward[name] for name in COUNTED}}


def least_bytes(row, which):
    n, channels, height, width = row["shape"]
    size = 2 if row["dtype"] == "bfloat16" else 4
    return LEAST[row["norm"]][which] * n * channels * height * width * size


def bound(row, which, gpu):
    """Instructions for each kilobyte of the least traffic, and that traffic by the larger of both least times."""
    part = row[("forward", "backward")[which]]
    least = least_bytes(row, which)
    clocks = gpu["multiprocessors"] * gpu["clock_hz"]
    times = (part["warp_instructions"] / (4 * clocks), least / (0.9 * gpu["memory_bytes_per_second"]),
             part["sectors"] * 32 / (128 * clocks))
    return part["warp_instructions"] / (least / 1000), least / max(times) / 1e12


def table(rows, gpus):
    lines = ["| norm | format | dtype | shape | launches | instructions/KB | bytes | " +
             " | ".join(f"{name.upper()}, TB/s" for name in gpus) + " |",
             "|---|---|---|---|---|---|---|" + "---|" * len(gpus)]
    for row in rows:
        launches = " / ".join(str(row[p]["launches"]) for p in ("forward", "backward"))
        instructions = " / ".join(f"{bound(row, w, next(iter(gpus.values())))[0]:.0f}" for w in (0, 1))
        asked = " / ".join(f"{row[p]['sectors'] * 32 / least_bytes(row, w):.1f}"
                           for w, p in enumerate(("forward", "backward")))
        rates = [" / ".join(f"{bound(row, w, gpu)[1]:.1f}" for w in (0, 1)) for gpu in gpus.values()]
        shape = " × ".join(map(str, row["shape"]))
        lines.append(f"| {row['norm']} | {row['layout']} | {row['dtype']} | {shape} | {launches} | {instructions} | {asked} | "
                     + " | ".join(rates) + " |")
    return lines


def page(text, rows, gpus):
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"virtual_gpu: docs/cuda.md: expected one line '{BEGIN}' and one '{END}' behind it")
    return text.split(BEGIN)[0] + "\n".join([BEGIN, "", *table(rows, gpus), "", END]) + text.split(END)[1]


def key(row):
    return (row["norm"], row["layout"], row["dtype"], tuple(row["shape"]))


def worse(before, after):
    """The counts of a case that have grown by over 2 percent."""
    found = []
    for part in ("forward", "backward"):
        for name in COUNTED:
            old, new = before[part][name], after[part][name]
            if new > old * 1.02 and (name != "launches" or new > old):
                found.append(f"{' '.join(map(str, key(after)))}: {part}: {name}: {old} before, {new} now")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda-release")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a case has become worse")
    parser.add_argument("--norm", choices=NORMS, help="only this one; prints its table and writes nothing")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="with --check: each N-th case")
    options = parser.parse_args()
    if options.norm and options.check or options.every != 1 and not options.check:
        parser.error("--norm goes without --check, and --every with it")
    gpus = json.loads((ROOT / "tests/virtual_gpu/gpus.json").read_text())
    gpus = {name: gpus[name] for name in ("h100", "h200")}
    stored = ROOT / "benchmarks/results/virtual_gpu.json"
    if options.check:
        before = {key(row): row for row in json.loads(stored.read_text())}
        chosen = list(cases())[::options.every]
        missing = [case for case in chosen if key(case) not in before]
        if missing:
            sys.exit(f"virtual_gpu: {stored.name} has no counts of {missing[0]}: make it anew, without --check")
        found = [line for case in chosen for line in worse(before[key(case)], counted(options.build, case))]
        print("\n".join(found) or "virtual_gpu: no case has become worse")
        sys.exit(1 if found else 0)
    rows = [counted(options.build, case) for case in cases() if options.norm in (None, case["norm"])]
    if options.norm:
        print("\n".join(table(rows, gpus)))
        return
    stored.write_text(json.dumps(rows, indent=1) + "\n")
    docs = ROOT / "docs/cuda.md"
    docs.write_text(page(docs.read_text(), rows, gpus))


if __name__ == "__main__":
    main()
