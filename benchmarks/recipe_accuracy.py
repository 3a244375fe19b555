#!/usr/bin/env python3
"""Trains by a recipe for Fashion-MNIST in Norma and in PyTorch, one after the other, and writes what became of it.

PyTorch's side reads the options that Norma's run saved (args.toml), and refuses those that it does not know; its network is
torchvision's. Writes docs/recipes/NAME.md (the page), NAME.csv (accuracy after each epoch, of both) and NAME.svg (the curves).

    ./run build && python3 benchmarks/recipe_accuracy.py      (needs torch, torchvision, numpy and matplotlib; two hours)

Runs that have ended are taken instead of new ones: Norma's by --run FOLDER (its --output), PyTorch's by --pytorch-log FILE
(what this script printed then). --norma-only leaves PyTorch out.
"""
import argparse
import contextlib
import csv
import datetime
import gzip
import hashlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import tomllib

import processor

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE = 28
LOGGED = 50  # steps
COMMIT = "commit.txt"  # beside a run of this script's: what it was made with

# Options that PyTorch's side reads; of all others only these values are known to it, and those that change no number.
READ = {"epochs", "batch-size", "lr", "momentum", "weight-decay", "smoothing", "random-crop", "hflip", "seed", "precision"}
KNOWN = {"model": "resnet18", "small-stem": True, "dataset": "fashion_mnist", "img-size": SIZE, "opt": "nesterov",
         "sched": "onecycle", "channels-last": True, "conv-layer": "conv", "sched-on-updates": True, "grad-accum-steps": 1,
         "layer-decay": 1}
HARMLESS = {"skip-bad-images", "interpolation", "crop-pct", "ratio", "remode", "recount", "train-interpolation", "mixup-prob",
            "mixup-switch-prob", "clip-mode", "lr-base-size", "decay-epochs", "decay-milestones", "decay-rate",
            "max-nonfinite", "model-ema-decay", "log-json", "tensorboard", "telemetry", "checkpoint-hist",
            "recovery-interval"}


def check_options(options):
    for name, value in options.items():
        if name in KNOWN and value != KNOWN[name]:
            sys.exit(f"recipe_accuracy: {name}: expected {KNOWN[name]}, got {value}")
        if name not in READ | HARMLESS | KNOWN.keys() and value not in (0, False):
            sys.exit(f"recipe_accuracy: {name}: expected no such option, got {value}")
    if options.get("precision", "float32") not in ("float32", "amp_bfloat16"):
        sys.exit(f"recipe_accuracy: precision: expected float32 or amp_bfloat16, got {options['precision']}")


def read_idx(path):
    import numpy
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    return numpy.frombuffer(data[4 + 4 * rank:], dtype=numpy.uint8).reshape(numpy.frombuffer(data[4:4 + 4 * rank], ">i4"))


def train_pytorch(options, folder):
    """Prints what read_pytorch() reads."""
    import torch
    import torchvision

    def load(part):
        images = torch.from_numpy(read_idx(folder / f"{part}-images-idx3-ubyte.gz").copy())
        return images, torch.from_numpy(read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype("int64"))

    def autocast():
        return torch.autocast("cpu", torch.bfloat16, enabled=options["precision"] == "amp_bfloat16")

    def network_input(images):
        x = (images.float() / 255 - mean) / deviation
        return x.unsqueeze(1).expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)

    def augment(images):
        pad, count = options["random-crop"], len(images)
        images = torch.nn.functional.pad(images, (pad, pad, pad, pad))
        rows, columns = (torch.randint(2 * pad + 1, (count, 1)) + torch.arange(SIZE) for _ in range(2))
        flipped = torch.rand(count, 1) < options["hflip"]
        columns = torch.where(flipped, columns.flip(1), columns)
        return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]

    def evaluate():
        model.eval()
        loss, right = 0.0, 0
        with torch.no_grad(), autocast():
            for x, y in zip(test_images.split(500), test_labels.split(500)):
                logits = model(network_input(x)).float()
                loss += torch.nn.functional.cross_entropy(logits, y, reduction="sum").item()
                right += (logits.argmax(1) == y).sum().item()
        model.train()
        return loss / len(test_labels), 100 * right / len(test_labels)

    torch.manual_seed(options["seed"])
    (images, labels), (test_images, test_labels) = load("train"), load("t10k")
    mean, deviation = (images.float() / 255).mean(), (images.float() / 255).std()
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = torch.nn.Identity()
    model = model.to(memory_format=torch.channels_last)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    batch, epochs = options["batch-size"], options["epochs"]
    steps = len(images) // batch
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": options["weight-decay"]}, {"params": vectors}],
                                lr=options["lr"], momentum=options["momentum"], nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options["lr"], total_steps=steps * epochs)
    print(f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}", flush=True)
    start = time.perf_counter()
    for epoch in range(epochs):
        order, total = torch.randperm(len(images)), 0.0
        for step in range(steps):
            chosen = order[step * batch:(step + 1) * batch]
            with autocast():
                logits = model(network_input(augment(images[chosen])))
            loss = torch.nn.functional.cross_entropy(logits.float(), labels[chosen], label_smoothing=options["smoothing"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            if (step + 1) % LOGGED == 0:
                rate = LOGGED * batch / (time.perf_counter() - start)
                print(f"epoch {epoch + 1}, step {step + 1}: loss {loss.item():.4f}, {rate:.0f} images/s", flush=True)
                start = time.perf_counter()
        test_loss, top1 = evaluate()
        print(f"epoch {epoch + 1}: loss {total / steps:.4f}, test loss {test_loss:.4f}, test accuracy {top1:.2f} %", flush=True)
        start = time.perf_counter()


def read_pytorch(path):
    """Rows (epoch, train loss, test loss, test accuracy in %), images per second of every 50 steps, versions."""
    text = path.read_text()
    rows = [(int(epoch), *map(float, numbers)) for epoch, *numbers in
            re.findall(r"^epoch (\d+): loss ([\d.]+), test loss ([\d.]+), test accuracy ([\d.]+) %$", text, re.M)]
    return rows, [float(rate) for rate in re.findall(r" ([\d.]+) images/s$", text, re.M)], text.splitlines()[0]


def train_norma(options):
    """Output folder of a new run."""
    folder = ROOT / "runs" / options.recipe.stem
    if folder.exists():
        sys.exit(f"recipe_accuracy: {folder}: is there; take it with --run, or remove it")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True)
    subprocess.run([ROOT / "build/cpu-release/cli/norma", "train", "--config", ROOT / options.recipe, "--output", folder], check=True)
    (folder / COMMIT).write_text(commit.stdout)
    return folder


def norma_rows(folder):
    """As read_pytorch()'s, without versions."""
    rows = [(i + 1, float(row["train_loss"]), float(row["eval_loss"]), float(row["eval_top1"]))
            for i, row in enumerate(csv.DictReader((folder / "summary.csv").open()))]
    return rows, [float(row["images_per_second"]) for row in csv.DictReader((folder / "metrics.csv").open())]


def draw(path, title, series):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "norma"
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, rows), color, style in zip(series.items(), ("#0b6e99", "#d9730d"), ("-", "--")):
        axes.plot([row[0] for row in rows], [row[3] for row in rows], style, color=color, marker="o", label=name)
    axes.set(title=title, xlabel="epochs", ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write(name, folder, series, rates, versions, recipe):
    docs = ROOT / "docs/recipes"
    docs.mkdir(exist_ok=True)
    args = tomllib.loads((folder / "args.toml").read_text())
    ours = series["Norma"]
    with (docs / f"{name}.csv").open("w") as file:
        file.write("program,epoch,train_loss,test_loss,test_accuracy\n")
        for program, rows in series.items():
            file.writelines(f"{program},{e},{loss:.4f},{test:.4f},{top1:.2f}\n" for e, loss, test, top1 in rows)
    draw(docs / f"{name}.svg", f"{args['model']} on {args['dataset']}", series)
    digest = hashlib.sha256((folder / "last.safetensors").read_bytes()).hexdigest()
    log = (folder / "metrics.csv").read_text()
    (docs / f"{name}_log.csv").write_text(log)
    lines = [f"# `{recipe}`, measured", "",
             f"`python3 benchmarks/recipe_accuracy.py` made this page on {datetime.date.today()}: "
             f"{processor.describe()['name']}, {os.cpu_count()} cores.", "",
             "| | test accuracy | test loss | images per second in training, median |", "|---|---|---|---|"]
    for program, rows in series.items():
        _, _, test, top1 = rows[-1]
        rate = statistics.median(rates[program])
        lines.append(f"| {versions[program]} | **{top1:.2f} %** | {test:.4f} | {rate:.0f} |")
    if len(series) > 1:
        difference = ours[-1][3] - series["PyTorch"][-1][3]
        lines += ["", f"Norma's accuracy less PyTorch's: {difference:+.2f} points, one seed each."]
    lines += ["", f"![test accuracy after each epoch]({name}.svg)"]
    lines += ["", f"The numbers: [{name}.csv]({name}.csv); Norma's log: [{name}_log.csv]({name}_log.csv). SHA-256 of Norma's",
              "last checkpoint (the bits of another kind of processor, or of another commit, differ):", "",
              f"    {digest}", ""]
    (docs / f"{name}.md").write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=pathlib.Path, default=ROOT / "recipes/fashion_mnist.toml")
    parser.add_argument("--run", type=pathlib.Path, help="output folder of a run of Norma's that has ended")
    parser.add_argument("--pytorch-log", type=pathlib.Path, help="what a run of PyTorch's printed that has ended")
    parser.add_argument("--norma-only", action="store_true")
    parser.add_argument("--data-dir", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    options = parser.parse_args()
    options.recipe = options.recipe.resolve().relative_to(ROOT)
    import matplotlib  # noqa: F401: before hours have passed
    if not options.norma_only:
        import torchvision  # noqa: F401
        check_options(tomllib.loads((ROOT / options.recipe).read_text()))

    folder = options.run or train_norma(options)
    args = tomllib.loads((folder / "args.toml").read_text())
    series, rates, versions = {}, {}, {}
    series["Norma"], rates["Norma"] = norma_rows(folder)
    commit = (folder / COMMIT).read_text().strip() if (folder / COMMIT).exists() else "of an unknown commit"
    versions["Norma"] = f"Norma {commit}"
    if not options.norma_only:
        check_options(args)
        log = options.pytorch_log or folder / "pytorch.log"
        if not options.pytorch_log:
            print(f"PyTorch's log: {log}", flush=True)
            with log.open("w") as file, contextlib.redirect_stdout(file):
                train_pytorch(args, options.data_dir)
        series["PyTorch"], rates["PyTorch"], versions["PyTorch"] = read_pytorch(log)
    write(options.recipe.stem, folder, series, rates, versions, options.recipe)


if __name__ == "__main__":
    main()
