#!/usr/bin/env python3
"""Norma beside PyTorch in the same run: whole networks, batch sizes, inference, memory, single norms.

PyTorch 2 with timm comes from PyPI into an environment of its own (build/peers); where that fails, Debian's torch is
taken. The programs take turns over several rounds, each in a process of its own; PyTorch runs in both memory formats,
and its better one counts. Prints Markdown tables and writes all figures to benchmarks/results/peers.json, where parts
that this run leaves out stay as they were.

    ./run build && python3 benchmarks/peers.py
    python3 benchmarks/peers.py --only norms --rounds 5
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from training_throughput import PYTHON, cpu_name, install_missing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MODELS = ("resnet50", "convnext_tiny")
NORMS = "batch,layer2d,group:32,group:1,instance,rms2d"
SHAPES = ("8x64x112x112,8x256x56x56,8x64x56x56,8x512x28x28,8x128x28x28,8x1024x14x14,"
          "8x96x56x56,8x192x28x28,32x384x14x14,32x2048x7x7,32x768x7x7")
BATCHES = (16, 8, 4, 2, 1)


def pytorch():
    """The Python that has torch."""
    own = ROOT / "build/peers"
    python = own / "bin/python"
    ready = [python, "-c", "import torch, torchvision, timm"]
    if python.exists() and subprocess.run(ready, capture_output=True).returncode == 0:
        return python
    print("peers: installing torch, torchvision and timm from PyPI into build/peers", file=sys.stderr)
    made = subprocess.run([sys.executable, "-m", "venv", own]).returncode == 0
    if made and subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "torchvision", "timm"]).returncode == 0:
        return python
    print("peers: that failed; taking Debian's torch", file=sys.stderr)
    install_missing()
    return pathlib.Path(PYTHON)


class Programs:
    def __init__(self, options):
        self.options = options
        self.python = options.python or pytorch()
        self.environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
        self.versions = {}

    def run(self, command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            sys.exit(f"peers: {' '.join(map(str, command))}\n{done.stderr.strip()[-2000:]}")
        return done.stdout

    def pytorch(self, arguments):
        result = json.loads(self.run([self.python, HERE / "pytorch_bench.py", *arguments]).splitlines()[-1])
        self.versions["pytorch"] = result["framework"] + (", " + result["definition"] if "definition" in result else "")
        return result

    def norma(self, arguments):
        """The row of `norma bench`."""
        output = self.run([self.options.norma, "bench", *arguments])
        return json.loads(output[output.index("--result\n") + len("--result\n"):])


def network(programs, model, bench, batch, precision="float32", norma_options=(), steps=None):
    """Seconds per step by contender, from rounds in which they take turns, and the largest resident memory of each."""
    options = programs.options
    steps = steps or options.steps
    common = ["--model", model, "--bench", bench, "-b", batch, "--img-size", 224, "--precision", precision]
    seconds, memory = {}, {}

    def note(name, value, rss):
        seconds.setdefault(name, []).append(value)
        memory[name] = max(memory.get(name, 0), rss)

    for _ in range(options.rounds):
        row = programs.norma([*common, "--channels-last", "--num-warm-iter", 2, "--num-bench-iter", steps,
                              "--weight-decay", 0.05, *norma_options])
        note("norma", row[f"{bench}_step_time"] / 1e3, row[f"{bench}_peak_rss"] * 1e6)
        for name, extra in (("pytorch channels_last", ["--channels-last"]), ("pytorch contiguous", [])):
            line = programs.pytorch([*common, *extra, "--warmup", 2, "--steps", steps])
            note(name, statistics.median(line["seconds"]), line["peak_rss"])
        if options.compile:
            line = programs.pytorch([*common, "--channels-last", "--compile", "--warmup", 3, "--steps", steps])
            note("pytorch compiled", statistics.median(line["seconds"]), line["peak_rss"])
    return {"batch_size": batch, "seconds": seconds, "peak_rss": memory}


def ratio(result):
    """PyTorch's better format / Norma: minimum, median and maximum over the rounds."""
    seconds = result["seconds"]
    best = min((name for name in seconds if name != "norma"), key=lambda name: statistics.median(seconds[name]))
    ratios = [theirs / ours for theirs, ours in zip(seconds[best], seconds["norma"])]
    return best, min(ratios), statistics.median(ratios), max(ratios)


def network_table(title, results):
    lines = [f"\n### {title}\n", "| network | batch | Norma img/s | PyTorch img/s | its format | Norma / PyTorch | of the rounds |",
             "|---|---|---|---|---|---|---|"]
    for name, result in results:
        best, low, middle, high = ratio(result)
        rate = {k: result["batch_size"] / statistics.median(v) for k, v in result["seconds"].items()}
        lines.append(f"| {name} | {result['batch_size']} | {rate['norma']:.2f} | {rate[best]:.2f} | "
                     f"{best.removeprefix('pytorch ')} | {middle:.2f} | {low:.2f} to {high:.2f} |")
    return lines


def memory_table(results):
    lines = ["\n### Peak resident memory of training, MB\n", "| network | batch | Norma | PyTorch | Norma / PyTorch |",
             "|---|---|---|---|---|"]
    for name, result in results:
        rss = result["peak_rss"]
        theirs = min(value for contender, value in rss.items() if contender != "norma")
        lines.append(f"| {name} | {result['batch_size']} | {rss['norma'] / 1e6:.0f} | {theirs / 1e6:.0f} | "
                     f"{rss['norma'] / theirs:.2f} |")
    return lines


def norms(programs):
    """Milliseconds of each norm × sizes × format × direction in both programs: medians over the rounds."""
    ours, theirs = {}, {}
    for _ in range(programs.options.rounds):
        for shape in SHAPES.split(","):
            n, c, h, _ = shape.split("x")
            with tempfile.TemporaryDirectory() as folder:
                programs.run([programs.options.norma, "bench-norms", "--norms", NORMS, "--dtypes", "float32", "--shapes",
                              "images", "--batch-sizes", n, "--channels", c, "--img-sizes", h, "--max-mb", 1024,
                              "--output", folder])
                with open(pathlib.Path(folder) / "results.csv", newline="") as file:
                    for row in csv.DictReader(file):
                        key = (row["norm"], row["sizes"], row["format"], row["direction"])
                        ours.setdefault(key, []).append((float(row["ms"]), float(row["share"])))
        for row in programs.pytorch(["--bench", "norms", "--norms", NORMS, "--shapes", SHAPES])["rows"]:
            theirs.setdefault((row["norm"], row["sizes"], row["format"], row["direction"]), []).append(row["ms"])
    return [{"norm": key[0], "sizes": key[1], "format": key[2], "direction": key[3],
             "norma_ms": statistics.median(ms for ms, _ in ours[key]),
             "share": statistics.median(share for _, share in ours[key]),
             "pytorch_ms": statistics.median(theirs[key])} for key in ours if key in theirs]


def norms_table(rows):
    lines = ["\n### Single norms, float32\n",
             "| norm | format | direction | share of the copy rate: median | lowest | PyTorch / Norma: median | lowest | at |",
             "|---|---|---|---|---|---|---|---|"]
    for norm in NORMS.split(","):
        for memory_format in ("contiguous", "channels_last"):
            for direction in ("forward", "backward"):
                chosen = [row for row in rows if (row["norm"], row["format"], row["direction"]) ==
                          (norm, memory_format, direction)]
                if not chosen:
                    continue
                shares = [100 * row["share"] for row in chosen]
                least = min(chosen, key=lambda row: row["pytorch_ms"] / row["norma_ms"])
                ratios = [row["pytorch_ms"] / row["norma_ms"] for row in chosen]
                lines.append(f"| {norm} | {memory_format} | {direction} | {statistics.median(shares):.0f} % | "
                             f"{min(shares):.0f} % | {statistics.median(ratios):.2f} | {min(ratios):.2f} | "
                             f"{least['sizes']} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norma", type=pathlib.Path, default=ROOT / "build/cpu-release/cli/norma", help="the program")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has torch")
    parts = ("train", "bfloat16", "infer", "batches", "memory", "norms")
    parser.add_argument("--only", choices=parts, nargs="+", default=parts, help="these parts only")
    parser.add_argument("--model", choices=MODELS, nargs="+", default=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="timed steps in each round")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    if not options.norma.exists():
        sys.exit(f"peers: {options.norma} does not exist; build it first: ./run build")
    programs = Programs(options)
    report = {}
    tables = []

    def networks(part, title, cases):
        report[part] = [{"name": name} | network(programs, *arguments, **more) for name, arguments, more in cases]
        tables.extend(network_table(title, [(result["name"], result) for result in report[part]]))
        print("\n".join(tables[-len(cases) - 4:]), flush=True)

    if "train" in options.only:
        networks("train", "Training, float32", [(m, (m, "train", 8), {}) for m in options.model])
    if "bfloat16" in options.only:
        networks("bfloat16", "Training, bfloat16 autocast",
                 [(m, (m, "train", 8, "amp_bfloat16"), {}) for m in options.model])
    if "infer" in options.only:
        networks("infer", "Inference, float32; Norma's ResNet-50 with folded batch norms",
                 [(m, (m, "infer", 8), {"norma_options": ["--fold"] if m == "resnet50" else []}) for m in options.model])
    if "batches" in options.only:
        networks("batches", "Training ResNet-50 by batch size, float32",
                 [("resnet50", ("resnet50", "train", b), {"steps": max(options.steps, 16 // b)}) for b in BATCHES])
    if "memory" in options.only:
        report["memory"] = [{"name": m} | network(programs, m, "train", 32, steps=1) for m in options.model]
        tables.extend(memory_table([(result["name"], result) for result in report["memory"]]))
    if "norms" in options.only:
        report["norms"] = norms(programs)
        tables.extend(norms_table(report["norms"]))
    made = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": options.threads,
            "rounds": options.rounds, "steps": options.steps, "versions": programs.versions}
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "peers.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | {part: made | {"rows": rows} for part, rows in report.items()}, indent=1) + "\n")
    print(f"\n{made['cpu']}, {options.threads} threads, {programs.versions.get('pytorch', '')}, {made['date']}")
    print("\n".join(tables))
    print(f"\nwritten: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
