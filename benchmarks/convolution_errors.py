#!/usr/bin/env python3
"""How exact 3x3 convolutions in float32 are, Norma's implementations beside PyTorch's.

Runs `norma audit --convolutions`, measures PyTorch on the same shapes, distributions and networks (torchvision's), both
against float64, and prints Markdown tables. PyTorch comes from PyPI into build/peers, as for peers.py.

    ./run build && python3 benchmarks/convolution_errors.py
"""
import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import processor
from peers import ROOT, pytorch

PYTORCH = r"""
import json, sys
import torch, torchvision

def ratio(pairs):
    squares = [torch.stack([(a.double() - b).square().sum(), b.square().sum()]) for a, b in pairs]
    total = sum(squares)
    return (total[0] / total[1]).sqrt().item()

def formatted(x, name):
    return x.to(memory_format=torch.channels_last if name == "channels_last" else torch.contiguous_format)

def layer(sizes, name):
    torch.manual_seed(0)
    n, c = sizes[:2]
    x, w, dy = torch.relu(torch.randn(sizes)), torch.randn(c, c, 3, 3), torch.randn(sizes)
    def run(dtype):
        x_in, w_in = (formatted(t.to(dtype), name).detach().clone().requires_grad_() for t in (x, w))
        y = torch.nn.functional.conv2d(x_in, w_in, padding=1)
        y.backward(formatted(dy.to(dtype), name))
        return y.detach(), x_in.grad, w_in.grad
    return [ratio([pair]) for pair in zip(run(torch.float32), run(torch.float64))]

def step(model, norm, sizes, name):
    return [sorted(errors)[2] for errors in zip(*(step_of(seed, model, norm, sizes, name) for seed in range(9)))]

def step_of(seed, model, norm, sizes, name):
    def run(dtype):
        torch.manual_seed(seed)
        layers = {} if norm == "batch" else {"norm_layer": lambda c: torch.nn.GroupNorm(int(norm.split(":")[1]), c)}
        network = formatted(getattr(torchvision.models, model)(num_classes=10, **layers).to(dtype), name)
        torch.manual_seed(seed)
        logits = network(formatted(torch.randn(sizes).to(dtype), name))
        torch.nn.functional.cross_entropy(logits, torch.arange(sizes[0]) % 10).backward()
        return [logits.detach()] + [p.grad for p in network.parameters()]
    pairs = list(zip(run(torch.float32), run(torch.float64)))
    whole = sum(b.square().sum() for _, b in pairs[1:])
    worst = max(ratio([pair]) for pair in pairs[1:] if pair[1].square().sum() > 1e-20 * whole)
    return [ratio(pairs[:1]), ratio(pairs[1:]), worst]

found = []
for what, name in json.load(sys.stdin):
    words = what.split()
    sizes = [int(size) for size in words[-1].split("x")]
    found.append(layer(sizes, name) if len(words) == 1 else step(words[0], words[1], sizes, name))
json.dump({"version": torch.__version__, "errors": found}, sys.stdout)
"""


def norma_errors(norma):
    """{(what, memory format): {implementation: {quantity: error}}}, in the order of the audit."""
    with tempfile.TemporaryDirectory() as folder:
        command = [norma, "audit", "--convolutions", "--quiet", "--output", f"{folder}/audit"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"convolution_errors: {done.stderr.strip()}")
        with open(f"{folder}/audit/convolutions.csv", newline="") as lines:
            rows = list(csv.DictReader(lines))
        environment = json.loads(pathlib.Path(f"{folder}/audit/results.json").read_text())["environment"]
    found = {}
    for row in rows:
        errors = found.setdefault((row["what"], row["memory_format"]), {})
        errors.setdefault(row["implementation"], {})[row["quantity"]] = float(row["error"])
    return found, environment["norma"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--norma", default=ROOT / "build/cpu-release/cli/norma")
    options = parser.parse_args()
    found, version = norma_errors(options.norma)
    done = subprocess.run([pytorch(), "-c", PYTORCH], input=json.dumps(list(found)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"convolution_errors: PyTorch: {done.stderr.strip()[-2000:]}")
    peer = json.loads(done.stdout)
    tables = {}  # by the quantities that a table has: of layers, of steps
    for (key, errors), of_pytorch in zip(found.items(), peer["errors"]):
        quantities = tuple(errors["exact"])
        errors["PyTorch"] = dict(zip(quantities, of_pytorch))
        tables.setdefault(quantities, []).append((key, errors))
    print(f"{processor.describe()['name']}; norma {version}; PyTorch {peer['version']}")
    for quantities, rows in tables.items():
        implementations = list(rows[0][1])
        print(f"\n| {', '.join(quantities)} | memory format | {' | '.join(implementations)} |")
        print("|---" * (2 + len(implementations)) + "|")
        for (what, memory_format), errors in rows:
            cells = [" ".join(f"{errors[name][quantity]:.1e}" for quantity in quantities) for name in implementations]
            print(f"| {what} | {memory_format} | {' | '.join(cells)} |".replace("e-0", "e-"))


if __name__ == "__main__":
    main()
