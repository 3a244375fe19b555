#!/usr/bin/env python3
"""Counts the launches of Norma's own kernels in one training step of a network, on the virtual GPU (docs/cuda.md).

    python3 benchmarks/launches.py --norm batch --precision amp_bfloat16 --top 12

Two runs differ by one step: the difference of their counts is that of a step. Neither the images' size nor the batch's
changes it. Kernels of cuDNN and cuBLASLt are not counted. Further options go to `norma train`.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def name_of(kernel):
    """"add_squares<float>" of a demangled kernel: no namespaces, no parameters."""
    kernel = re.sub(r"\((?:[^()]|\([^()]*\))*\)$", "", kernel)
    kernel = re.sub(r"norma::(?:kernels::)?(?:cuda::)?", "", kernel)
    return re.sub(r"^void ", "", kernel)


def counts(arguments, steps, train_options):
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "counts.json"
        library = arguments.build / "tests/virtual_gpu/libnorma_virtual_gpu.so"
        environment = dict(os.environ, LD_PRELOAD=str(library), NORMA_VIRTUAL_GPU_COUNTS=str(result),
                           NORMA_VIRTUAL_GPU_RACES="0")
        size = 32
        command = [arguments.build / "cli/norma", "train", "--device", "cuda", "--model", arguments.model, "--norm",
                   arguments.norm, "--dataset", "shapes", "--img-size", size, "--batch-size", 2, "--images", 2 * steps,
                   "--test-images", 2, "--opt", arguments.opt, "--precision", arguments.precision, "--quiet",
                   "--output", pathlib.Path(folder) / "run", *train_options]
        for needed in (library, command[0]):
            if not needed.exists():
                sys.exit(f"launches: {needed} does not exist; build it first: ./run build --preset cuda-release")
        code = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.DEVNULL).returncode
        if code != 0:  # why, norma has said
            sys.exit(f"launches: norma train ended with exit code {code}")
        kernels = json.loads(result.read_text())["kernels"]
    launches = collections.Counter()
    for kernel in kernels:
        launches[name_of(kernel["kernel"])] += kernel["launches"]
    return launches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda-release")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--norm", default="batch")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--opt", default="sgd")
    parser.add_argument("--first", type=int, default=3, help="the step that is counted")
    parser.add_argument("--top", type=int, default=0, help="print this many kernels")
    arguments, train_options = parser.parse_known_args()
    step = counts(arguments, arguments.first, train_options)
    step.subtract(counts(arguments, arguments.first - 1, train_options))
    print(f"{arguments.model} {arguments.norm} {arguments.precision}: {sum(step.values())} launches")
    for kernel, launches in step.most_common(arguments.top):
        print(f"{launches:6}  {kernel}")


if __name__ == "__main__":
    main()
