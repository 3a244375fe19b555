#!/usr/bin/env python3
"""make_reports.py PROGRAM OUTPUT: the reports that the browser opens. One is of a short true comparison; the others are
made of its results: many cells, odd names and failures, several machines."""
import copy
import json
import math
import pathlib
import shutil
import subprocess
import sys

program = pathlib.Path(sys.argv[1]).resolve()
output = pathlib.Path(sys.argv[2]).resolve()


def norma(*words):
    ended = subprocess.run([program, *map(str, words)], cwd=output, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"browser: norma {' '.join(map(str, words))}: exit code {ended.returncode}: {ended.stderr}")


def write(name, results):
    folder = output / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    norma("report", name)


def curve(steps, start, speed, wobble):
    return [start * math.exp(-speed * i / steps) + 0.2 + 0.15 * math.sin(i * wobble) for i in range(steps)]


def cells_like(cell, networks, norms, seeds, steps):
    cells = []
    for a, network in enumerate(networks):
        for b, norm in enumerate(norms):
            for seed in range(seeds):
                other = copy.deepcopy(cell)
                other.pop("right", None)  # the bits of another accuracy
                other.update(model=network, norm=norm, seed=seed, state="finished",
                             accuracy=0.6 + 0.01 * a + 0.02 * math.sin(3 * b) + 0.004 * math.sin(7 * seed + b),
                             losses=curve(steps, 2, 2 + b / 4, 1 + seed + b))
                cells.append(other)
    return cells


def timings(networks, norms):
    rounds = [[1 + 0.02 * math.sin(r + 1.7 * n) + 0.01 * n for n in range(len(norms))] for r in range(24)]
    return [networks, norms, rounds]


shutil.rmtree(output / "true", ignore_errors=True)
norma("compare", "--models", "convnext_atto", "--patch-size", "4", "--dataset", "shapes", "--batch-size", "4", "--images",
      "160", "--test-images", "100", "--norms", "batch,layer2d,group:8", "--seeds", "0,1", "--timing-rounds", "7",
      "--quiet", "--output", "true")
true = json.loads((output / "true" / "results.json").read_text())
finished = true["cells"][0]


def with_timing(results, networks, norms):
    timing = true["timings"][0]
    results["timings"] = []
    for network in networks:
        other = copy.deepcopy(timing)
        other["norms"] = norms
        other["rounds"] = [[0.1 * (1 + 0.02 * math.sin(r + 1.7 * n) + 0.01 * n) for n in range(len(norms))]
                           for r in range(24)]
        (other if "model" in other else other["group"])["model"] = network
        results["timings"].append(other)
    results["timing_rounds"] = 24
    return results


many = copy.deepcopy(true)
networks = ["resnet18", "resnet34", "resnet50", "convnext_atto", "convnextv2_atto"]
norms = ["batch", "layer2d"] + [f"group:{2 ** i}" for i in range(6)] + ["instance", "rms"] + \
        [f"layer2d[eps=1e-{i}]" for i in range(1, 11)]
many["cells"] = cells_like(finished, networks, norms, 5, 2000)
write("many", with_timing(many, networks, norms))

odd = copy.deepcopy(true)
odd_norms = ["batch", "layer2d[eps=1e-3]", 'my"norm\'s <b>&amp; | `long` name', "group:8"]
odd["cells"] = cells_like(finished, ["convnext_atto"], odd_norms, 2, 300)
for cell, state in zip(odd["cells"][4:6], ["failed", "failed"]):
    for key in list(cell):
        if key not in ("model", "norm", "seed", "state", "batch_size", "lr", "precision", "memory_format", "dataset"):
            del cell[key]
    cell["state"] = state
    cell["reason"] = "norm: <script>alert('no')</script> \"quotes\" & an ampersand"
odd["cells"][7]["state"] = "interrupted"
odd["command"] += " --norms '<img src=x onerror=alert(1)>'"
write("odd", with_timing(odd, ["convnext_atto"], odd_norms))

one = copy.deepcopy(true)
one["cells"] = one["cells"][:1]
one["timings"] = []
write("one", one)

other = copy.deepcopy(true)
other["date"] = "2026-01-01 12:00:00"
other["environment"]["cpu"] = "Another processor"
write("laptop", other)
shutil.rmtree(output / "both", ignore_errors=True)
norma("report", "true", "laptop", "--output", "both")
