#!/usr/bin/env python3
"""Norma beside PyTorch in the same run: whole networks, batch sizes, inference, memory, processes, single norms.

PyTorch 2 with timm comes from PyPI into an environment of its own (build/peers). The programs run as processes of their
own that take turns step by step, so that all meet the same moments of the machine; PyTorch runs in both memory formats,
and its better one counts. Prints Markdown tables and writes all figures to benchmarks/results/PROCESSOR/peers.json, where
parts that this run leaves out stay as they were. figures.py makes the docs of them.

    ./run build && python3 benchmarks/peers.py
    python3 benchmarks/peers.py --only norms --norm-rounds 5
    python3 benchmarks/peers.py --isa avx2    # both programs held to AVX2 on a processor that has more; needs a build of
                                              # the preset cpu-avx2
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import processor
import records

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MODELS = ("resnet50", "convnext_tiny", "vit_tiny_patch16_224", "vit_small_patch16_224")  # timm's names
SMALL_IMAGES = {"img_size": 32, "patch_size": 4}  # of the vision transformers, as networks are compared on CIFAR
NORMS = "batch,layer2d,group:32,group:1,instance,rms2d"
SHAPES = ("8x64x112x112,8x256x56x56,8x64x56x56,8x512x28x28,8x128x28x28,8x1024x14x14,"
          "8x96x56x56,8x192x28x28,32x384x14x14,32x2048x7x7,32x768x7x7")
BATCHES = (16, 8, 4, 2, 1)
TITLES = {  # of the parts
    "train": "training, float32",
    "bfloat16": "training, bfloat16 autocast",
    "infer": "inference, float32; Norma folds batch norms",
    "infer_bfloat16": "inference, bfloat16 autocast; Norma folds batch norms",
    "batches": "training by batch size, float32",
    "memory": "peak resident memory of training",
    "data_parallel": "training in processes, float32; PyTorch: DDP, gloo",
    "norms": "single norms, float32",
}
SIZES = ((64, 32), (224, 8))  # of data_parallel: pixels, images of all processes


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
    sys.exit("peers: that failed; name a Python that has them: --python FILE")


class Programs:
    def __init__(self, options):
        self.options = options
        self.python = options.python or pytorch()
        self.environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)} | processor.LIMITS.get(options.isa, {})
        self.versions = {}

    def run(self, command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            sys.exit(f"peers: {' '.join(map(str, command))}\n{done.stderr.strip()[-2000:]}")
        return done.stdout

    def pytorch_norms(self, arguments):
        lines = self.run([self.python, HERE / "pytorch_bench.py", "--bench", "norms", *arguments]).splitlines()
        self.note_versions(json.loads(lines[0]))
        return json.loads(lines[1])["rows"]

    def note_versions(self, line):
        if "definition" in line or "pytorch" not in self.versions:  # single norms have none
            self.versions["pytorch"] = line["framework"] + (", " + line["definition"] if "definition" in line else "")

    def start_pytorch(self, arguments, processes=1):
        command = [self.python, HERE / "pytorch_bench.py", *arguments, "--procs", processes]
        contender = Contender(command, self.environment | {"OMP_NUM_THREADS": str(self.options.threads // processes)})
        self.note_versions(json.loads(contender.read()))
        return contender

    def start_norma(self, arguments, processes=1):
        mpirun = ["mpirun", "--quiet", "-n", processes, "--bind-to", "none"] if processes > 1 else []
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return Contender([*mpirun, self.options.turns, *arguments],
                         self.environment | as_root | {"OMP_NUM_THREADS": str(self.options.threads // processes)})


class Contender:
    """A process that does a step of its network whenever it is told to."""

    def __init__(self, command, environment):
        self.command = [str(part) for part in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=environment)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"peers: {' '.join(self.command)}: ended early")
        return line

    def step(self):
        """Seconds of one step."""
        try:
            self.process.stdin.write("step\n")
        except BrokenPipeError:  # read() says that it has ended; why, it has said itself
            pass
        return float(self.read())

    def stop(self):
        """The most bytes that were resident."""
        with open(f"/proc/{self.process.pid}/status") as status:
            peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        self.process.stdin.close()
        self.process.wait()
        return peak


def network(programs, model, bench, batch, precision="float32", norma_options=(), rounds=None, img_size=224,
            patch_size=None, processes=1):
    """Seconds of each round by contender, and the largest resident memory of each."""
    options = programs.options
    common = ["--model", model, "--bench", bench, "-b", batch, "--img-size", img_size, "--precision", precision]
    common += ["--patch-size", patch_size] if patch_size else []
    contenders = {"norma": programs.start_norma([*common, "--channels-last", *norma_options], processes),
                  "pytorch channels_last": programs.start_pytorch([*common, "--channels-last"], processes),
                  "pytorch contiguous": programs.start_pytorch(common, processes)}
    if options.compile:
        contenders["pytorch compiled"] = programs.start_pytorch([*common, "--channels-last", "--compile"], processes)
    for contender in contenders.values():
        for _ in range(2):  # memory and plans are made
            contender.step()
    seconds = {name: [] for name in contenders}
    for _ in range(rounds or options.rounds):
        for name, contender in contenders.items():
            seconds[name].append(contender.step())
    return {"batch_size": batch, "seconds": seconds, "peak_rss": {name: c.stop() for name, c in contenders.items()}}


def ratio(result):
    """PyTorch's better format, and its seconds / Norma's: lower quartile, median and upper quartile of the rounds."""
    seconds = result["seconds"]
    best = min((name for name in seconds if name != "norma"), key=lambda name: statistics.median(seconds[name]))
    ratios = [theirs / ours for theirs, ours in zip(seconds[best], seconds["norma"])]
    low, middle, high = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
    return best, low, middle, high


def network_table(title, results):
    lines = [f"\n### {title}\n",
             "| network | batch | Norma img/s | PyTorch img/s | its format | Norma / PyTorch | half of the rounds |",
             "|---|---|---|---|---|---|---|"]
    for name, result in results:
        best, low, middle, high = ratio(result)
        rate = {k: result["batch_size"] / statistics.median(v) for k, v in result["seconds"].items()}
        lines.append(f"| {name} | {result['batch_size']} | {rate['norma']:.2f} | {rate[best]:.2f} | "
                     f"{best.removeprefix('pytorch ')} | {middle:.2f} | {low:.2f} to {high:.2f} |")
    return lines


def memory(result):
    """Resident bytes at their peak: Norma's, and those of the PyTorch that needs less."""
    rss = result["peak_rss"]
    return rss["norma"], min(value for contender, value in rss.items() if contender != "norma")


def memory_table(results):
    lines = ["\n### Peak resident memory of training, MB\n", "| network | batch | Norma | PyTorch | Norma / PyTorch |",
             "|---|---|---|---|---|"]
    for name, result in results:
        ours, theirs = memory(result)
        lines.append(f"| {name} | {result['batch_size']} | {ours / 1e6:.0f} | {theirs / 1e6:.0f} | {ours / theirs:.2f} |")
    return lines


def plot_batches(folder, results):
    """batches.gp, and batches.png where gnuplot is installed: images per second of each contender by batch size."""
    contenders = list(results[0]["seconds"])
    lines = ["set terminal pngcairo size 900,450", "set output 'batches.png'", "set style data histogram",
             "set style histogram clustered gap 1", "set style fill solid 0.8 border -1", "set yrange [0:*]",
             "set grid ytics", "set key outside right noenhanced", "set xlabel 'batch size'", "set ylabel 'images per second'",
             "set title 'ResNet-50, training, float32, 224 pixels'", "$data << EOD",
             "batch " + " ".join(json.dumps(name) for name in contenders)]
    for result in results:
        rates = (result["batch_size"] / statistics.median(result["seconds"][name]) for name in contenders)
        lines.append(f"{result['batch_size']} " + " ".join(f"{rate:.3f}" for rate in rates))
    columns = ", ".join(f"$data using {i + 2}:xtic(1) title columnheader" for i in range(len(contenders)))
    lines += ["EOD", "plot " + columns]
    (folder / "batches.gp").write_text("\n".join(lines) + "\n")
    if shutil.which("gnuplot"):
        subprocess.run(["gnuplot", "batches.gp"], cwd=folder, check=True)


def norms(programs):
    """Milliseconds of each norm × sizes × format × direction in both programs: medians over the rounds."""
    ours, theirs = {}, {}
    for _ in range(programs.options.norm_rounds):
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
        for row in programs.pytorch_norms(["--norms", NORMS, "--shapes", SHAPES]):
            theirs.setdefault((row["norm"], row["sizes"], row["format"], row["direction"]), []).append(row["ms"])
    return [{"norm": key[0], "sizes": key[1], "format": key[2], "direction": key[3],
             "norma_ms": statistics.median(ms for ms, _ in ours[key]),
             "share": statistics.median(share for _, share in ours[key]),
             "pytorch_ms": statistics.median(theirs[key])} for key in ours if key in theirs]


def norms_table(rows):
    lines = ["\n### Single norms, float32: forward / backward, medians\n",
             "| norm | format | share of the copy rate, % | PyTorch / Norma |", "|---|---|---|---|"]
    for norm in NORMS.split(","):
        for memory_format in ("contiguous", "channels_last"):
            chosen = [row for row in rows if (row["norm"], row["format"]) == (norm, memory_format)]
            both = [[row for row in chosen if row["direction"] == direction] for direction in ("forward", "backward")]
            if not all(both):
                continue
            shares = [statistics.median(100 * row["share"] for row in part) for part in both]
            ratios = [statistics.median(row["pytorch_ms"] / row["norma_ms"] for row in part) for part in both]
            lines.append(f"| {norm} | {memory_format} | " + " / ".join(f"{share:.0f}" for share in shares) + " | " +
                         " / ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    return lines


def own_program(isa, path):
    """What this checkout builds for these instructions."""
    return ROOT / "build" / processor.PRESETS[isa] / path


def check_programs(options):
    """Ends with a line that says what to build, where a program is missing or cannot be held to the instructions."""
    preset = processor.PRESETS[options.isa]
    targets = f"cmake --preset {preset} && cmake --build --preset {preset} --target norma turns"
    for program in (options.norma, options.turns):
        if not program.exists():
            sys.exit(f"peers: {program} does not exist; build it first: {targets}")
    # Kernels are chosen when the first of them runs, so it makes a step of a small network.
    small = [options.turns, "--model", "convnext_atto", "--batch-size", "1", "--img-size", "32"]
    tried = subprocess.run([str(word) for word in small], input="step\n", capture_output=True, text=True,
                           env=os.environ | processor.LIMITS.get(options.isa, {}))
    if tried.returncode != 0:
        held = f" held to {options.isa.upper()}" if options.isa else ""
        sys.exit(f"peers: {options.turns} does not run{held} ({tried.stderr.strip()[-500:]}); build one that does: "
                 f"{targets}, and leave out --norma and --turns")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norma", type=pathlib.Path,
                        help="the program; by default that of build/cpu-release, with --isa of that preset's folder")
    parser.add_argument("--turns", type=pathlib.Path, help="likewise the program that does steps when told to")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has torch")
    parser.add_argument("--only", choices=TITLES, nargs="+", default=list(TITLES), help="these parts only")
    parser.add_argument("--model", choices=MODELS, nargs="+", default=MODELS)
    parser.add_argument("--rounds", type=int, default=15, help="steps of each network")
    parser.add_argument("--norm-rounds", type=int, default=3, help="runs of each single norm")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--isa", choices=processor.LIMITS, help="hold both programs to these instructions")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="folder of the processors' folders")
    options = parser.parse_args()
    options.norma = options.norma or own_program(options.isa, "cli/norma")
    options.turns = options.turns or own_program(options.isa, "benchmarks/turns")
    check_programs(options)
    programs = Programs(options)
    machine = processor.describe(options.isa)
    folder = options.results / machine["folder"]
    path = folder / "peers.json"

    def finish(part, rows, table, rounds=options.rounds):
        """Prints and writes a part, so that what is measured stays if a later part fails."""
        print("\n".join(table), flush=True)
        made = {"date": datetime.date.today().isoformat(), "threads": options.threads, "versions": programs.versions}
        before = json.loads(path.read_text()) if path.exists() else {}
        after = before | {"processor": machine, part: made | {"rounds": rounds, "rows": rows}}
        records.write(path, after)

    def networks(part, cases):
        rows = [{"name": name} | network(programs, *arguments, **more) for name, arguments, more in cases]
        finish(part, rows, network_table(TITLES[part], [(row["name"], row) for row in rows]))
        return rows

    def sizes(bench, precision="float32"):
        """Each network at 224 pixels and batch 8, vision transformers also with small images and batch 128."""
        cases = [(m, (m, bench, 8, precision), {"norma_options": ["--fold"] if (m, bench) == ("resnet50", "infer") else []})
                 for m in options.model]
        return cases + [(f"{m.removesuffix('_patch16_224')}, 32 pixels, patch 4", (m, bench, 128, precision), SMALL_IMAGES)
                        for m in options.model if m.startswith("vit")]

    if "train" in options.only:
        networks("train", sizes("train"))
    if "bfloat16" in options.only:
        networks("bfloat16", sizes("train", "amp_bfloat16"))
    if "infer" in options.only:
        networks("infer", sizes("infer"))
    if "infer_bfloat16" in options.only:
        networks("infer_bfloat16", sizes("infer", "amp_bfloat16"))
    if "batches" in options.only:
        plot_batches(folder, networks("batches", [("resnet50", ("resnet50", "train", b), {}) for b in BATCHES]))
    if "memory" in options.only:
        rows = [{"name": m} | network(programs, m, "train", 32, rounds=1) for m in options.model]
        finish("memory", rows, memory_table([(row["name"], row) for row in rows]), rounds=1)
    if "data_parallel" in options.only:
        if options.threads < 2 or not shutil.which("mpirun"):
            sys.exit("peers: data_parallel needs two threads and mpirun (Debian: openmpi-bin)")
        networks("data_parallel", [
            (f"resnet50, {pixels} pixels, {'2 processes' if n == 2 else '1 process'}", ("resnet50", "train", batch),
             {"img_size": pixels, "processes": n}) for pixels, batch in SIZES for n in (1, 2)])
    if "norms" in options.only:
        rows = norms(programs)
        finish("norms", rows, norms_table(rows), rounds=options.norm_rounds)
    print(f"\n{machine['name']}, {options.threads} threads, {programs.versions.get('pytorch', '')}")
    print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
