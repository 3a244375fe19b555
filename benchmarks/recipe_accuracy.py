#!/usr/bin/env python3
"""Trains by a recipe for Fashion-MNIST in Norma and in PyTorch, one after the other, and writes what became of it.

PyTorch's side reads the options that Norma's run saved (args.toml), and refuses those that it does not know; its network is
torchvision's ResNet-18 or timm's ViT-Ti. Writes docs/recipes/NAME.md (the page), NAME.csv (accuracy after each epoch, of both)
and NAME.svg (the curves).

    ./run build && python3 benchmarks/recipe_accuracy.py      (needs torch, torchvision, numpy and matplotlib; two hours)
    python3 benchmarks/recipe_accuracy.py --recipe recipes/fashion_mnist_vit.toml --seeds 0,1,2   (timm, not torchvision)

Runs lie in --folder, as NAME-SEED with PyTorch's log in it. One that has ended there is taken instead of a new one.
--norma-only leaves PyTorch out.
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
COMMIT = "commit.txt"  # beside a run that has ended: what it was made with

# Options that PyTorch's side reads; of all others only these values are known to it, and those that change no number.
READ = {"epochs", "batch-size", "lr", "momentum", "weight-decay", "smoothing", "random-crop", "hflip", "seed", "precision",
        "drop-path", "patch-size", "clip-grad"}
KNOWN = {"dataset": "fashion_mnist", "img-size": SIZE, "sched": "onecycle", "channels-last": True, "conv-layer": "conv",
         "sched-on-updates": True, "grad-accum-steps": 1, "layer-decay": 1, "clip-mode": "norm",
         "qkv-bias": True}
NETWORKS = {"resnet18": {"small-stem": True, "opt": "nesterov", "drop-path": 0, "clip-grad": 0},
            "vit_tiny": {"opt": "adamw"}}
HARMLESS = {"skip-bad-images", "interpolation", "crop-pct", "ratio", "remode", "recount", "train-interpolation", "mixup-prob",
            "mixup-switch-prob", "lr-base-size", "threads", "decay-epochs", "decay-milestones", "decay-rate",
            "max-nonfinite", "model-ema-decay", "log-json", "tensorboard", "telemetry", "checkpoint-hist",
            "recovery-interval", "convert-norm", "convert-batches", "model"}


def check_options(options):
    model = options.get("model", "resnet18")
    if model not in NETWORKS:
        sys.exit(f"recipe_accuracy: model: expected {' or '.join(NETWORKS)}, got {model}")
    known = KNOWN | NETWORKS[model]
    for name, value in options.items():
        if name in known and value != known[name]:
            sys.exit(f"recipe_accuracy: {name}: expected {known[name]}, got {value}")
        if name not in READ | HARMLESS | known.keys() and value not in (0, False):
            sys.exit(f"recipe_accuracy: {name}: expected no such option, got {value}")
    if options.get("precision", "float32") not in ("float32", "amp_bfloat16"):
        sys.exit(f"recipe_accuracy: precision: expected float32 or amp_bfloat16, got {options['precision']}")


def read_idx(path):
    import numpy
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    return numpy.frombuffer(data[4 + 4 * rank:], dtype=numpy.uint8).reshape(numpy.frombuffer(data[4:4 + 4 * rank], ">i4"))


def resnet18(options):
    """The network, its optimizer, and the version of the library that has it."""
    import torch
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = torch.nn.Identity()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(decayed(model, options), lr=options["lr"], momentum=options["momentum"], nesterov=True)
    return model, optimizer, f"torchvision {torchvision.__version__}"


def vit_tiny(options):
    """As resnet18()'s."""
    import timm
    import torch
    model = timm.create_model("vit_tiny_patch16_224", num_classes=10, img_size=SIZE, patch_size=options["patch-size"],
                              drop_path_rate=options["drop-path"])
    optimizer = torch.optim.AdamW(decayed(model, options), lr=options["lr"], betas=(options["momentum"], 0.999))
    return model, optimizer, f"timm {timm.__version__}"


def decayed(model, options):
    """Groups of parameters: weights of layers decay; vectors, a ViT's class token and its positions do not."""
    weights = [p for n, p in model.named_parameters() if p.dim() > 1 and n not in ("cls_token", "pos_embed")]
    others = [p for n, p in model.named_parameters() if p.dim() <= 1 or n in ("cls_token", "pos_embed")]
    return [{"params": weights, "weight_decay": options["weight-decay"]}, {"params": others, "weight_decay": 0.0}]


def train_pytorch(options, folder):
    """Prints what read_pytorch() reads."""
    import torch
    torch.set_num_threads(options.get("threads", 0) or len(os.sched_getaffinity(0)))

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
    model, optimizer, library = (resnet18 if options["model"] == "resnet18" else vit_tiny)(options)
    batch, epochs = options["batch-size"], options["epochs"]
    steps = len(images) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options["lr"], total_steps=steps * epochs)
    print(f"PyTorch {torch.__version__}, {library}", flush=True)
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
            if options.get("clip-grad"):
                torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip-grad"])
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


def train_norma(recipe, seed, folder):
    """Makes the run in the folder, unless it has ended there."""
    if (folder / COMMIT).exists():
        return
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True)
    subprocess.run([ROOT / "build/cpu-release/cli/norma", "train", "--config", ROOT / recipe, "--seed", str(seed),
                    "--output", folder], check=True)
    (folder / COMMIT).write_text(commit.stdout)


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
    for (name, runs), color, style in zip(series.items(), ("#0b6e99", "#d9730d"), ("-", "--")):
        for i, rows in enumerate(runs):
            axes.plot([row[0] for row in rows], [row[3] for row in rows], style, color=color, marker="o",
                      label=None if i else name)
    axes.set(title=title, xlabel="epochs", ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def said(values, digits=2):
    """The mean, and the standard deviation of several seeds."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def write(recipe, seeds, folders, series, rates, versions):
    """`series`: of each program, the rows of each seed."""
    name = recipe.stem
    docs = ROOT / "docs/recipes"
    docs.mkdir(exist_ok=True)
    args = tomllib.loads((folders[0] / "args.toml").read_text())
    with (docs / f"{name}.csv").open("w") as file:
        file.write("program,seed,epoch,train_loss,test_loss,test_accuracy\n")
        for program, runs in series.items():
            for seed, rows in zip(seeds, runs):
                file.writelines(f"{program},{seed},{e},{loss:.4f},{test:.4f},{top1:.2f}\n" for e, loss, test, top1 in rows)
    draw(docs / f"{name}.svg", f"{args['model']} on {args['dataset']}", series)
    (docs / f"{name}_log.csv").write_text((folders[0] / "metrics.csv").read_text())
    cores = len(os.sched_getaffinity(0))
    lines = [f"# `{recipe}`, measured", "",
             f"`python3 benchmarks/recipe_accuracy.py --recipe {recipe}` made this page on {datetime.date.today()}: "
             f"{processor.describe()['name']}, {cores} core{'s' if cores > 1 else ''}; "
             f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}.", "",
             "| | test accuracy | test loss | images per second in training, median |", "|---|---|---|---|"]
    for program, runs in series.items():
        lines.append(f"| {versions[program]} | **{said([rows[-1][3] for rows in runs])} %** | "
                     f"{said([rows[-1][2] for rows in runs], 4)} | {statistics.median(rates[program]):.0f} |")
    if len(series) > 1:
        difference = [a[-1][3] - b[-1][3] for a, b in zip(series["Norma"], series["PyTorch"])]
        lines += ["", f"Norma's accuracy less PyTorch's: {statistics.mean(difference):+.2f} points, "
                  f"{'one seed' if len(seeds) == 1 else f'{len(seeds)} seeds'} each."]
    lines += ["", f"![test accuracy after each epoch]({name}.svg)"]
    lines += ["", f"The numbers: [{name}.csv]({name}.csv); Norma's log: [{name}_log.csv]({name}_log.csv). SHA-256 of Norma's",
              "last checkpoint (the bits of another kind of processor, or of another commit, differ):", ""]
    lines += [f"    {hashlib.sha256((folder / 'last.safetensors').read_bytes()).hexdigest()}" for folder in folders]
    (docs / f"{name}.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=pathlib.Path, default=ROOT / "recipes/fashion_mnist.toml")
    parser.add_argument("--seeds", default="0", help="one or more, with commas between")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "runs", help="where the runs lie")
    parser.add_argument("--norma-only", action="store_true")
    parser.add_argument("--data-dir", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    options = parser.parse_args()
    recipe, seeds = options.recipe.resolve().relative_to(ROOT), [int(seed) for seed in options.seeds.split(",")]
    import matplotlib  # noqa: F401: before hours have passed
    if not options.norma_only:
        check_options(tomllib.loads((ROOT / recipe).read_text()))

    folders = [options.folder.resolve() / f"{recipe.stem}-{seed}" for seed in seeds]
    programs = ["Norma"] if options.norma_only else ["Norma", "PyTorch"]
    series, rates, versions = {p: [] for p in programs}, {p: [] for p in programs}, {}
    for seed, folder in zip(seeds, folders):
        train_norma(recipe, seed, folder)
        rows, rate = norma_rows(folder)
        series["Norma"].append(rows)
        rates["Norma"] += rate
        versions["Norma"] = f"Norma {(folder / COMMIT).read_text().strip()}"
        if options.norma_only:
            continue
        args, log = tomllib.loads((folder / "args.toml").read_text()), folder / "pytorch.log"
        check_options(args)
        if not log.exists():
            with log.with_suffix(".part").open("w") as file, contextlib.redirect_stdout(file):
                train_pytorch(args, options.data_dir)
            log.with_suffix(".part").rename(log)
        rows, rate, versions["PyTorch"] = read_pytorch(log)
        series["PyTorch"].append(rows)
        rates["PyTorch"] += rate
    write(recipe, seeds, folders, series, rates, versions)


if __name__ == "__main__":
    main()
