#!/usr/bin/env python3
"""Changes the norm of trained networks in every way, and prints what became of their accuracy.

Trains a ResNet-18 on Fashion-MNIST with each norm, then goes from the first norm to each other one and back: with
--convert-norm keep, fold and calibrate, before any training and after 100 steps. Prints the table of docs/finetune.md,
"Changing the norm". --all goes from each norm to each other one, --steps 0 leaves out the training after.

    ./run build && python3 benchmarks/norm_conversion.py

Results that are there already in --work are taken instead of new ones.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NORMS = ["batch", "group:32", "layer2d", "instance", "rms2d", "dyt"]
# 36 pixels leave instance norm 2x2 pixels in the last stage.
DATA = ["--dataset", "fashion_mnist", "--img-size", "36", "--test-images", "4000"]
BATCH = 64


def norma(options, log):
    """Runs a command whose output goes to a file, unless that is there and complete."""
    done = log.with_suffix(".done")
    if not done.exists():
        program = os.environ.get("NORMA", str(ROOT / "build/cpu-release/cli/norma"))
        result = subprocess.run([program, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        log.write_text(result.stdout)
        if result.returncode != 0:
            sys.exit(f"norm_conversion: {' '.join(options)}\n{result.stdout}")
        done.touch()
    return log.read_text()


def accuracies(text):
    return [float(number) for number in re.findall(r"accuracy (\d+\.\d+) %", text)]


def name_of(norm):
    return norm.replace(":", "_")


def train_all(norms, work, images, lr):
    """Trains a network with each norm. Returns their accuracies."""
    result = {}
    for norm in norms:
        print(f"training with {norm}", file=sys.stderr)
        text = norma(["train", "--norm", norm, *DATA, "--batch-size", str(BATCH), "--images", str(images), "--lr", str(lr),
                      "--output", str(work / name_of(norm)), "--quiet"], work / f"{name_of(norm)}.txt")
        result[norm] = accuracies(text)[-1]
    return result


def convert(before, after, how, work, lr, steps):
    """The accuracies before training and, unless `steps` is 0, after so many steps."""
    folder = work / f"{name_of(before)}-{name_of(after)}-{how}"
    print(f"{before} to {after}: {how}", file=sys.stderr)
    checkpoint = work / name_of(before) / "last.safetensors"
    at_start = norma(["eval", "--checkpoint", str(checkpoint), "--norm", after, "--convert-norm", how],
                     work / f"{folder.name}-start.txt")
    if steps == 0:
        return accuracies(at_start)[-1:]
    trained = norma(["train", "--initial-checkpoint", str(checkpoint), "--norm", after, "--convert-norm", how, *DATA,
                     "--batch-size", str(BATCH), "--images", str(steps * BATCH), "--lr", str(lr), "--output", str(folder),
                     "--quiet"], work / f"{folder.name}-{steps}.txt")
    return [accuracies(at_start)[-1], accuracies(trained)[-1]]


def row(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/norm_conversion", help="folder for the runs")
    parser.add_argument("--images", type=int, default=20000, help="of the training before (default: 20000)")
    parser.add_argument("--lr", type=float, default=2e-3, help="of the training before (default: 0.002)")
    parser.add_argument("--finetune-lr", type=float, default=5e-4, help="of the steps after (default: 0.0005)")
    parser.add_argument("--norms", default=",".join(NORMS), help=f"with commas (default: {','.join(NORMS)})")
    parser.add_argument("--all", action="store_true", help="all pairs, not those with the first norm alone")
    parser.add_argument("--steps", type=int, default=100, help="of the training after (default: 100)")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    norms = options.norms.split(",")
    trained = train_all(norms, options.work, options.images, options.lr)
    times = range(1 if options.steps == 0 else 2)
    rows = []
    for before in norms:
        for after in norms:
            if after == before or not (options.all or norms[0] in (before, after)):
                continue
            ways = ["keep", "fold", "calibrate"] if before == "batch" else ["keep", "calibrate"]
            results = {how: convert(before, after, how, options.work, options.finetune_lr, options.steps) for how in ways}
            cells = [f"{results[how][at]:.1f}" if how in results else "–" for at in times
                     for how in ("keep", "fold", "calibrate")]
            rows.append(row([f"`{before}` → `{after}`", f"{trained[before]:.1f}", *cells]))
    heads = ["keep", "fold", "calibrate"] + [f"{how}, {options.steps} steps" for how in ("keep", "fold", "calibrate")]
    heads = heads[:3 * len(times)]
    print(row(["from → to", "trained", *heads]))
    print("|---|" + "---:|" * (1 + len(heads)))
    print("\n".join(rows))


if __name__ == "__main__":
    main()
