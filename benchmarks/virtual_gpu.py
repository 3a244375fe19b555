#!/usr/bin/env python3
"""What the kernels of each norm cost at least, counted on the virtual GPU: bounds, never measurements.

The virtual GPU (docs/cuda.md) runs the PTX that nvcc made and counts warp instructions and the sectors of memory that
they ask for, the same on every machine. From these follow, for a GPU whose properties are known, three least times: that
of issuing the instructions, one in each of the four schedulers of a multiprocessor and clock; that of moving the bytes
that the pass must move at nine tenths of the memory's data-sheet rate, which is about what a copy reaches; and that of
moving the sectors through the first cache, 128 bytes in each multiprocessor and clock. The largest, and the latency of
memory once for each launch, bound the rate of the kernels from above, where tensors do not stay in the second cache.

How many loads a warp has in flight cannot be counted: ptxas decides in which order they are issued. What can be said is
how many it must have, by Little's law: rate times latency is the number of bytes that have to be under way in a
multiprocessor, and its warps are at most those whose registers it holds (tests/house/cuda_resources.txt).

The table has a row for each path through the kernels, and in each field forward / backward: the launches; instructions
of warps for each kilobyte that the pass must move at least; the bytes of all sectors that the kernels ask for, as a
share of what the pass must move (weights that the first cache holds count each time); the loads that each resident warp
must have under way for the H200's rate, the most of any kernel that reads x; and what the pass must move by its least
time, for each GPU.

    ./run build --preset cuda-release --rooms virtual_gpu
    python3 benchmarks/virtual_gpu.py            # counts, writes benchmarks/results/virtual_gpu.json and prints the table
    python3 benchmarks/virtual_gpu.py --table    # prints the table from the counts that are there
    python3 benchmarks/virtual_gpu.py --table --norm batch   # the same with all shapes of a norm
    python3 benchmarks/virtual_gpu.py --check    # counts, and fails where a case has become worse by over 2 percent
    python3 benchmarks/virtual_gpu.py --check --paths   # only one case for each path through the kernels, as CI does
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import records
from launches import name_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESNET = [(8, 64, 112), (8, 256, 56), (16, 512, 28), (32, 1024, 14), (64, 2048, 7)]
CONVNEXT = [(16, 96, 56), (32, 192, 28), (64, 384, 14), (128, 768, 7)]
NORMS = {"layer2d": CONVNEXT, "batch": RESNET, "group:32": RESNET[1:]}
# More channels than any network of ours has.
MANY = {"norm": "layer2d", "layout": "contiguous", "dtype": "float32", "shape": [64, 2304, 7, 7]}
# Planes shorter than a warp: backward takes the general walk, which goes over memory as slowly as it looks.
ANY = {"norm": "group:32", "layout": "contiguous", "dtype": "float32", "shape": [64, 2048, 5, 5]}
# The cases of --paths, by a kernel that only their path launches.
PATHS = {
    "normalize_rows<bfloat16, 3, false, true>": ("layer2d", "channels_last", "bfloat16", (128, 768, 7, 7)),
    "normalize_rows<float, 8, false, true>": ("layer2d", "channels_last", "float32", (128, 768, 7, 7)),
    "normalize_rows<bfloat16, 4, true, false>": ("group:32", "contiguous", "bfloat16", (64, 2048, 7, 7)),
    "normalize_pixels<bfloat16, 8, false>": ("layer2d", "contiguous", "bfloat16", (32, 192, 28, 28)),
    "normalize_pixels<bfloat16, 4, false>": ("layer2d", "contiguous", "bfloat16", (64, 384, 14, 14)),
    "normalize_pixels<bfloat16, 8, true>": ("layer2d", "contiguous", "bfloat16", (128, 768, 7, 7)),
    "write_column_gradients<bfloat16, true, float>": ("batch", "channels_last", "bfloat16", (32, 1024, 14, 14)),
    "write_column_gradients<bfloat16, false, float>": ("group:32", "channels_last", "bfloat16", (64, 2048, 7, 7)),
    "write_set_gradients<bfloat16, 8, false, float>": ("batch", "contiguous", "bfloat16", (16, 512, 28, 28)),
    "write_set_gradients<bfloat16, 8, true, float>": ("batch", "contiguous", "bfloat16", (64, 2048, 7, 7)),
    "write_run_gradients<float, 4, false, float>": ("group:32", "contiguous", "float32", (16, 512, 28, 28)),
    "normalize_pixels<float, 4, true>": ("layer2d", "contiguous", "float32", tuple(MANY["shape"])),
    "any_input_gradients<float, float>": ("group:32", "contiguous", "float32", tuple(ANY["shape"])),
}
# Passes over x's size that a pass of the norm must make, forward and backward. A set of batch or group norm is read
# once for its statistics and once for y, unless the registers of a block hold it (rows, in one launch).
LEAST = {"layer2d": (2, 3), "batch": (3, 5), "group:32": (3, 5)}
LEAST_BY_ROWS = 2
# Of memory, under load: an assumption, as nothing of ours has measured it.
LATENCY = 600e-9
COUNTED = ("launches", "warp_instructions", "bytes", "sectors")


def cases():
    for norm, shapes in NORMS.items():
        for layout in ("channels_last", "contiguous"):
            for dtype in ("bfloat16", "float32"):
                for n, channels, side in shapes:
                    yield {"norm": norm, "layout": layout, "dtype": dtype, "shape": [n, channels, side, side]}
        yield from (case for case in (MANY, ANY) if case["norm"] == norm)


def key(row):
    return (row["norm"], row["layout"], row["dtype"], tuple(row["shape"]))


def counts(build, case, backward):
    """What each kernel of one run did, by name."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "counts.json"
        command = [build / "tests/virtual_gpu/norm_pass", "--norm", case["norm"], "--dtype", case["dtype"],
                   "--shape", ",".join(map(str, case["shape"]))]
        command += ["--channels-last"] * (case["layout"] == "channels_last") + ["--backward"] * backward
        environment = dict(os.environ, LD_PRELOAD=str(build / "tests/virtual_gpu/libnorma_virtual_gpu.so"),
                           NORMA_VIRTUAL_GPU="h200", NORMA_VIRTUAL_GPU_COUNTS=str(result), OMP_NUM_THREADS="1")
        subprocess.run([str(c) for c in command], check=True, env=environment)
        return {name_of(kernel["kernel"]): kernel for kernel in json.loads(result.read_text())["kernels"]}


def sums(kernels, least):
    """The counts of a pass, and those of its kernels that read at least half of a tensor."""
    def total(*names):
        return sum(kernel[name] for kernel in kernels.values() for name in names)
    readers = {name: {key: kernel[key] for key in ("global_load_bytes", "global_load_requests", "global_store_bytes")}
               for name, kernel in sorted(kernels.items()) if kernel["global_load_bytes"] * 2 >= least}
    return {"launches": total("launches"), "warp_instructions": total("warp_instructions"),
            "bytes": total("global_load_bytes", "global_store_bytes"),
            "sectors": total("global_load_sectors", "global_store_sectors"), "readers": readers}


def counted(build, case):
    forward = counts(build, case, backward=False)
    both = counts(build, case, backward=True)
    backward = {name: kernel for name, kernel in both.items() if name not in forward}
    if any(both[name] != forward[name] for name in forward):
        sys.exit(f"virtual_gpu: {case}: expected kernels of either pass, got one of both")
    least = tensor_bytes(case)
    return {**case, "forward": sums(forward, least), "backward": sums(backward, least)}


def tensor_bytes(row):
    n, channels, height, width = row["shape"]
    return n * channels * height * width * (2 if row["dtype"] == "bfloat16" else 4)


def least_bytes(row, which):
    passes = LEAST[row["norm"]][which]
    if which == 0 and row["forward"]["launches"] == 1:
        passes = LEAST_BY_ROWS
    return passes * tensor_bytes(row)


def asked(row, which):
    """The bytes of all sectors that a pass asks for, as a share of the least."""
    share = row[("forward", "backward")[which]]["sectors"] * 32 / least_bytes(row, which)
    if share < 0.999:  # the last sector of a tensor may be half of one
        sys.exit(f"virtual_gpu: {key(row)}: expected at least the bytes that a pass must move, got {share:.3f} of them")
    return share


def bound(row, which, gpu):
    """Instructions for each kilobyte of the least traffic, and that traffic by the least time."""
    part = row[("forward", "backward")[which]]
    least = least_bytes(row, which)
    clocks = gpu["multiprocessors"] * gpu["clock_hz"]
    times = (part["warp_instructions"] / (4 * clocks), least / (0.9 * gpu["memory_bytes_per_second"]),
             part["sectors"] * 32 / (128 * clocks))
    return part["warp_instructions"] / (least / 1000), least / (max(times) + part["launches"] * LATENCY) / 1e12


def registers_of_kernels():
    lines = (ROOT / "tests/house/cuda_resources.txt").read_text().splitlines()
    return {name: int(rest.split()[0]) for name, rest in (line.rsplit(" registers ", 1) for line in lines)}


def loads_in_flight(row, which, gpu, registers):
    """The loads that each resident warp must have under way for the memory's rate: the most of a kernel that reads x."""
    most = 0.0
    for name, kernel in row[("forward", "backward")[which]]["readers"].items():
        # Each multiprocessor has four parts, which give registers to warps in units of 256.
        of_part = gpu["registers_per_multiprocessor"] // 4
        warps = min(gpu["threads_per_multiprocessor"] // 32, of_part // (-(-registers[name] * 32 // 256) * 256) * 4)
        read = which + 1  # tensors: x, and dy
        written = kernel["global_store_bytes"] * 2 >= tensor_bytes(row)
        rate = 0.9 * gpu["memory_bytes_per_second"] * read / (read + written)
        bytes_of_load = kernel["global_load_bytes"] / kernel["global_load_requests"]
        most = max(most, rate * LATENCY / gpu["multiprocessors"] / warps / bytes_of_load)
    return most


def table(rows, gpus):
    lines = ["| norm | format | dtype | shape | launches | instructions/KB | bytes | loads in flight | " +
             " | ".join(f"{name.upper()}, TB/s" for name in gpus) + " |",
             "|---|---|---|---|---|---|---|---|" + "---|" * len(gpus)]
    registers = registers_of_kernels()
    fastest = max(gpus.values(), key=lambda gpu: gpu["memory_bytes_per_second"])

    def pair(form, value):
        return " / ".join(format(value(which), form) for which in (0, 1))
    for row in rows:
        cells = [row["norm"], row["layout"], row["dtype"], "×".join(map(str, row["shape"])),
                 pair("d", lambda w: row[("forward", "backward")[w]]["launches"]),
                 pair(".0f", lambda w: bound(row, w, fastest)[0]), pair(".1f", lambda w: asked(row, w)),
                 pair(".1f", lambda w: loads_in_flight(row, w, fastest, registers)),
                 *(pair(".1f", lambda w: bound(row, w, gpu)[1]) for gpu in gpus.values())]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def worse(before, after):
    """The counts of a case that have grown by over 2 percent."""
    found = []
    for part in ("forward", "backward"):
        for name in COUNTED:
            old, new = before[part][name], after[part][name]
            if new > old * 1.02 and (name != "launches" or new > old):
                found.append(f"{' '.join(map(str, key(after)))}: {part}: {name}: {old} before, {new} now")
    return found


def path_cases():
    """The cases of PATHS, each with its kernel."""
    known = {key(case): case for case in cases()}
    return [(kernel, known[path]) for kernel, path in PATHS.items()]


def check(build, stored, paths):
    """Counts again, and says what has become worse."""
    before = {key(row): row for row in stored}
    chosen = path_cases() if paths else [(None, case) for case in cases()]
    missing = [case for _, case in chosen if key(case) not in before]
    if missing:
        sys.exit(f"virtual_gpu: the stored counts lack {missing[0]}: make them anew, without --check")
    found = []
    for kernel, case in chosen:
        now = counted(build, case)
        launched = {**now["forward"]["readers"], **now["backward"]["readers"]}
        if kernel is not None and kernel not in launched:
            found.append(f"{' '.join(map(str, key(case)))}: expected a launch of {kernel}, got {', '.join(launched)}")
        found += worse(before[key(case)], now)
    print("\n".join(found) or f"virtual_gpu: none of {len(chosen)} cases has become worse")
    return 1 if found else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda-release")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a case has become worse")
    parser.add_argument("--paths", action="store_true", help="with --check: one case for each path through the kernels")
    parser.add_argument("--norm", choices=NORMS, help="only this one, all shapes; prints its table and writes nothing")
    parser.add_argument("--table", action="store_true", help="count nothing; take the stored counts")
    options = parser.parse_args()
    if options.check and (options.norm or options.table) or options.paths and not options.check:
        parser.error("--check goes with neither --norm nor --table, and --paths goes with --check")
    gpus = json.loads((ROOT / "tests/virtual_gpu/gpus.json").read_text())
    gpus = {name: gpus[name] for name in ("h100", "h200")}
    stored = ROOT / "benchmarks/results/virtual_gpu.json"
    if options.check:
        sys.exit(check(options.build, json.loads(stored.read_text()), options.paths))
    if options.table:
        rows = [row for row in json.loads(stored.read_text()) if options.norm in (None, row["norm"])]
    else:
        rows = [counted(options.build, case) for case in cases() if options.norm in (None, case["norm"])]
    if not options.norm and not options.table:
        records.write(stored, rows)
    print("\n".join(table([row for row in rows if options.norm or key(row) in PATHS.values()], gpus)))


if __name__ == "__main__":
    main()
