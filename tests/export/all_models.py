"""Exports every network with every norm to ONNX, and compares onnxruntime with Norma, and PyTorch's own export with
PyTorch. Prints the table of docs/export.md.

    ./run build --rooms export && python3 tests/export/all_models.py
    python3 tests/export/all_models.py --models resnet18,convnext_atto --norms group,frn    # some of them
    python3 tests/export/all_models.py --only-table                                         # of what is measured so far

For each network and norm: weights with noise, exported at opset 18 and 21, where batch norms can be folded also folded,
at 96x96 and 224x224 pixels, and run with 1, 3 and 8 images. Large networks (LARGE) are sampled: one image, batch,
layer2d and group at 96x96, and group at 224x224. PyTorch exports with one image at 96x96 and opset 18. An error is the
largest difference as a share of the largest output. Every row goes to benchmarks/results/all_models.jsonl at once, and
what stands there is not measured again, on any machine: commit it. Needs torch, torchvision, timm, onnx, onnxscript and
onnxruntime in the Python of --python, else build/peers, where they are installed from PyPI. Takes hours.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = ["torch", "torchvision", "timm", "onnx", "onnxscript", "onnxruntime"]
SMALL = ["resnet18", "resnet34", "resnet50", "convnext_atto", "convnext_femto", "convnext_pico", "convnext_nano",
         "convnext_tiny", "convnextv2_atto", "convnextv2_femto", "convnextv2_pico", "convnextv2_nano", "convnextv2_tiny"]
LARGE = ["resnet101", "resnet152", "convnext_small", "convnext_base", "convnext_large", "convnext_xlarge",
         "convnextv2_small", "convnextv2_base", "convnextv2_large", "convnextv2_huge"]
NORMS = ["batch", "sync_batch", "frozen_batch", "ghost_batch", "batch_renorm", "layer2d", "group", "instance", "rms2d",
         "simple2d", "local_response", "evonorm_b0", "evonorm_s0", "frn", "grn", "dyt", "derf", "seednorm", "none"]
NORMS_OF_LARGE = ["batch", "layer2d", "group"]
FOLDED = ["batch", "sync_batch", "frozen_batch", "ghost_batch", "batch_renorm"]
IMAGES = [1, 3, 8]
CLASSES = 10
EPS = 2.0**-20  # as in norma export --check


def python_with(folder):
    python = folder / "bin" / "python"
    imports = [python, "-c", "import " + ", ".join(MODULES)]
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run(imports, capture_output=True).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *MODULES], check=True)
    return python


class Bench:
    def __init__(self, build):
        self.norma = build / "cli/norma"
        self.tests = build / "tests/test_export"
        self.folder = build / "all_models"
        self.folder.mkdir(exist_ok=True)
        self.results = ROOT / "benchmarks/results/all_models.jsonl"

    def done(self):
        if not self.results.exists():
            return []
        return [json.loads(line) for line in self.results.read_text().splitlines()]

    def run(self, *words):
        """The last line of standard error, where the command fails."""
        ran = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                             env={**os.environ, "NORMA_PYTHON": "/nowhere/python"})
        return "" if ran.returncode == 0 else ran.stderr.strip().splitlines()[-1]

    def must_run(self, *words):
        fault = self.run(*words)
        if fault:
            sys.exit(f"all_models: {' '.join(map(str, words))}: {fault}")


def error(found, expected):
    """The largest difference as a share of the largest element; NaN stays."""
    import numpy

    return float(numpy.max(numpy.abs(found - expected)) / numpy.max(numpy.abs(expected)))


def rms(found, expected):
    import numpy

    return float(numpy.sqrt(numpy.mean((found - expected) ** 2) / numpy.mean(expected**2)))


def session_of(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def pytorch_error(bench, weights, network, x):
    """Of onnxruntime with PyTorch's export of the same network against PyTorch; a text where that cannot be had."""
    import torch

    folder = bench.folder / "torch"
    shutil.rmtree(folder, ignore_errors=True)
    fault = bench.run(bench.norma, "export", "--format", "torch", *network, "--img-size", x.shape[-1], "--checkpoint",
                      weights, "--output", folder)
    if fault:
        return fault
    spec = importlib.util.spec_from_file_location("network", folder / "network.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.network()
    example = torch.from_numpy(x)
    with torch.no_grad():
        expected = model(example).numpy()
    path = bench.folder / "torch.onnx"
    try:
        torch.onnx.export(model, (example,), str(path), opset_version=18, dynamo=False)
    except Exception as fault:
        return "torch.onnx.export: " + str(fault).splitlines()[0][:100]
    session = session_of(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    return error(found, expected)


def measure(bench, model, norm, size):
    """A row for each exported file."""
    import numpy
    from safetensors.numpy import load_file, save_file

    weights = bench.folder / "weights.safetensors"
    subprocess.run([bench.tests, "--test-case=all models: weights", "--no-skip"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "NORMA_STIRRED": f"{model} {norm} {CLASSES} {weights}"})
    network = ["--model", model, "--norm", norm, "--num-classes", CLASSES]
    network += ["--patch-size", 4] if model.startswith("convnext") else []
    images = max(IMAGES) if model in SMALL else 1
    x = numpy.random.default_rng(7).standard_normal((images, 3, size, size), numpy.float32)
    save_file({"input": x}, bench.folder / "input.safetensors")
    outputs = {}
    for precision in ("float32", "float64"):
        result = bench.folder / "output.safetensors"
        result.unlink(missing_ok=True)
        bench.must_run(bench.norma, "run", *network, "--weights", weights, "--input",
                       bench.folder / "input.safetensors", "--output", result, "--precision", precision)
        outputs[precision] = load_file(result)["output"]
    own, exact = outputs["float32"], outputs["float64"]
    rows = []
    folds = [False, True] if norm in FOLDED and model.startswith("resnet") else [False]
    for opset in (18, 21):
        for fold in folds:
            path = bench.folder / "network.onnx"
            for written in (path, path.with_name("network.onnx.data")):
                written.unlink(missing_ok=True)
            fault = bench.run(bench.norma, "export", *network, "--checkpoint", weights, "--img-size", size, "--opset",
                              opset, "--dynamic-batch", *(["--fold"] if fold else []), "--output", path)
            row = {"model": model, "norm": norm, "size": size, "opset": opset, "fold": fold, "images": 0}
            if fault:
                rows.append({**row, "fault": fault})
                continue
            session = session_of(path)
            for count in [n for n in IMAGES if n <= images]:
                (found,) = session.run(None, {"input": x[:count]})
                limit = 4 * rms(own[:count], exact[:count]) + EPS
                rows.append({**row, "images": count, "error": error(found, own[:count]),
                             "to_exact": error(found, exact[:count]), "own": error(own[:count], exact[:count]),
                             "passed": bool(rms(found, exact[:count]) <= limit)})
    if size == 96:
        rows[0]["pytorch"] = pytorch_error(bench, weights, network, x[:1])
    return rows


def table(rows):
    """Rows of Markdown by norm, and a sentence of what failed."""
    import onnxruntime
    import timm
    import torch

    print("| norm | networks | files and batches | onnxruntime to Norma | Norma to float64 | PyTorch's export to PyTorch |")
    print("|---|---|---|---|---|---|")
    for norm in NORMS:
        own = [row for row in rows if row["norm"] == norm and "error" in row]
        theirs = [row["pytorch"] for row in rows if row["norm"] == norm and isinstance(row.get("pytorch"), float)]
        if own:
            print(f"| `{norm}` | {len({row['model'] for row in own})} | {len(own)} | "
                  f"{max(row['error'] for row in own):.1e} | {max(row['own'] for row in own):.1e} | "
                  + (f"{max(theirs):.1e} ({len(theirs)}) |" if theirs else "none |"))
    faults = sorted({(row["model"], row["norm"], row["fault"]) for row in rows if "fault" in row})
    failed = [row for row in rows if "error" in row and not row["passed"]]
    texts = sorted({(row["norm"], row["pytorch"]) for row in rows if isinstance(row.get("pytorch"), str)})
    print(f"\n{len([row for row in rows if 'error' in row])} comparisons, {len(failed)} failed; onnxruntime "
          f"{onnxruntime.__version__}, torch {torch.__version__}, timm {timm.__version__}")
    for row in failed:
        print("failed:", row)
    for fault in faults:
        print("refused:", *fault)
    for text in texts:
        print("PyTorch:", *text)
    return 1 if failed or not rows else 0


def plan(sizes, models, norms):
    """What is measured, in order: small images first, so that a run that is cut has seen every network."""
    for size in sizes:
        for model in models:
            for norm in norms:
                sampled = norm == "group" or (size == 96 and norm in NORMS_OF_LARGE)
                if model in SMALL or sampled:
                    yield model, norm, size


def compare(options):
    bench = Bench(options.build.resolve())
    if not options.only_table:
        done = {(row["model"], row["norm"], row["size"]) for row in bench.done()}
        for model, norm, size in plan(options.sizes, options.models.split(","), options.norms.split(",")):
            if (model, norm, size) in done:
                continue
            start = time.monotonic()
            rows = measure(bench, model, norm, size)
            with open(bench.results, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            print(f"{model} {norm} {size}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return table(bench.done())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cpu-release")
    parser.add_argument("--models", default=",".join(SMALL + LARGE))
    parser.add_argument("--norms", default=",".join(NORMS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 224])
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--python", type=pathlib.Path, help="one that has what is needed")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # started again, with PyTorch
    options = parser.parse_args()
    if options.inside:
        return compare(options)
    python = options.python or python_with(ROOT / "build/peers")
    return subprocess.run([python, "-B", __file__, *sys.argv[1:], "--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
