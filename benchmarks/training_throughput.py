#!/usr/bin/env python3
"""Training throughput in float32, Norma beside PyTorch on the same machine in the same run.

One step is forward, cross entropy, backward and AdamW. The programs take turns over several rounds, each in a process of
its own; PyTorch runs in both memory formats and its better one counts. Prints a table and writes JSON.
Debian's torch uses the reference BLAS, 50 times slower at matrix products, unless OpenBLAS is there: it is installed
together with torch where it is missing.

    ./run build && python3 benchmarks/training_throughput.py
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import processor

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # the one that Debian's packages belong to
PACKAGES = {
    "python3-torch": [PYTHON, "-c", "import torch"],
    "python3-torchvision": [PYTHON, "-c", "import torchvision"],
    "libopenblas0-pthread": ["sh", "-c", "ls /usr/lib/*/openblas-pthread/libopenblas.so.0"],
}
CASES = {
    "resnet50": ["--model", "resnet50"],
    "convnext_atto": ["--model", "convnext_atto", "--patch-size", "2"],
}


def install_missing():
    missing = [package for package, probe in PACKAGES.items() if subprocess.run(probe, capture_output=True).returncode]
    if not missing:
        return
    if not shutil.which("apt-get"):
        sys.exit(f"training_throughput: missing (names of Debian's packages): {' '.join(missing)}")
    print(f"training_throughput: installing {' '.join(missing)}", file=sys.stderr)
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *missing]):
        subprocess.run(as_root + command, check=True, stdout=subprocess.DEVNULL)


def cpu_name():
    return processor.fields(open("/proc/cpuinfo").read()).get("model name", "unknown")


def measure(command, environment):
    """Images per second in the median step of one process."""
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        sys.exit(f"training_throughput: {' '.join(map(str, command))}\n{run.stderr.strip()}")
    line = json.loads(run.stdout.strip().splitlines()[-1])
    return line, line["batch_size"] / statistics.median(line["seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-step", type=pathlib.Path,
                        default=HERE.parent / "build/cpu-release/benchmarks/train_step", help="Norma's program")
    parser.add_argument("--only", choices=CASES, help="only this network")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="timed steps in each round")
    parser.add_argument("--img-size", type=int, default=32)
    parser.add_argument("-b", "--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    if not options.train_step.exists():
        sys.exit(f"training_throughput: {options.train_step} does not exist; build it first: ./run build")
    install_missing()

    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    common = ["--img-size", str(options.img_size), "-b", str(options.batch_size), "--steps", str(options.steps)]
    contenders = {
        "norma channels_last": [options.train_step, "--channels-last"],
        "pytorch channels_last": [PYTHON, HERE / "pytorch_training.py", "--channels-last"],
        "pytorch contiguous": [PYTHON, HERE / "pytorch_training.py"],
    }
    print(f"{cpu_name()}, {options.threads} threads, float32, batch {options.batch_size}, {options.img_size} pixels, "
          f"{options.rounds} rounds of {options.steps} steps; images per second\n")
    print(f"{'network':15} {'program':23} {'min':>8} {'median':>8} {'max':>8}")
    report = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": options.threads,
              "batch_size": options.batch_size, "img_size": options.img_size, "steps": options.steps, "networks": {}}
    for name, arguments in CASES.items():
        if options.only not in (None, name):
            continue
        rates = {contender: [] for contender in contenders}
        frameworks = {}
        for _ in range(options.rounds):
            for contender, command in contenders.items():
                line, rate = measure([*command, *arguments, *common], environment)
                rates[contender].append(rate)
                frameworks[contender] = line["framework"]
        for contender, values in rates.items():
            print(f"{name:15} {contender:23} {min(values):8.1f} {statistics.median(values):8.1f} {max(values):8.1f}")
        best = max((c for c in contenders if c.startswith("pytorch")), key=lambda c: statistics.median(rates[c]))
        ratios = [ours / theirs for ours, theirs in zip(rates["norma channels_last"], rates[best])]
        print(f"{name:15} {'norma / ' + best:23} {min(ratios):8.2f} {statistics.median(ratios):8.2f} "
              f"{max(ratios):8.2f}\n", flush=True)
        report["networks"][name] = {"frameworks": frameworks, "images_per_second": rates, "best_pytorch": best,
                                    "ratio": {"min": min(ratios), "median": statistics.median(ratios),
                                              "max": max(ratios)}}
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "training_throughput.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
