"""Runs networks of `norma export --format torch` in PyTorch, and takes their weights back to Norma.

    ./run build --rooms export && python3 tests/export/torch_test.py

test_export writes a folder for every norm in a ResNet and a ConvNeXt, and for other options. Each folder's network.py
must load its weights with strict=True and agree with Norma to float32's rounding. What PyTorch saves then must have the
bits of Norma's weights, after `norma convert` where the names are torchvision's. Installs torch, torchvision and timm
from PyPI into build/peers the first time, where benchmarks/peers.py has them, too; --python names another Python that
has them. Takes three minutes and 3 GB of disk for a while.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_with_torch(folder):
    """The Python of an environment with torch, torchvision and timm, which is made where it is missing."""
    python = folder / "bin" / "python"
    imports = [python, "-c", "import torch, torchvision, timm, safetensors"]
    if not python.exists() or subprocess.run(imports, capture_output=True).returncode != 0:
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "torchvision", "timm"], check=True)
    return python


def difference(found, expected):
    """What is not the same in bits; "" for nothing. The sizes of 1x1 convolutions and linear layers may differ."""
    import torch

    if found.keys() != expected.keys():
        return f"names {sorted(found.keys() ^ expected.keys())}"
    for name, x in expected.items():
        y = found[name]
        same = x.dtype == y.dtype and torch.equal(x.flatten().view(torch.uint8), y.flatten().view(torch.uint8))
        if not same:
            return f"tensor {name}"
    return ""


def fault_of(folder, case, norma):
    """What is wrong with a folder; "" for nothing."""
    from safetensors.torch import load_file, save_file

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            program = runpy.run_path(folder / "network.py", run_name="__main__")
        state = program["network"]().state_dict()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if "computes what Norma does" not in said.getvalue():
        return f"it said {said.getvalue()}"
    save_file(state, folder / "back.safetensors")
    back = folder / "back.safetensors"
    if case["library"] == "torchvision" and case["model"].startswith("convnext"):
        command = [norma, "convert", back, "--from", "torchvision", "--to", "timm", "--output", folder / "timm.safetensors"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        back = folder / "timm.safetensors"
    return difference(load_file(back), load_file(folder / "norma.safetensors"))


def compare(build):
    import timm
    import torch
    import torchvision

    torch.set_num_threads(2)
    folder = build / "torch_test"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    program = [build / "tests/test_export", "--test-case=torch: every norm*"]
    subprocess.run(program, env={**os.environ, "NORMA_TORCH_FILES": str(folder)}, check=True, stdout=subprocess.DEVNULL)
    cases = json.loads((folder / "list.json").read_text())
    failed = 0
    for number, case in enumerate(cases):
        fault = fault_of(folder / str(number), case, build / "cli/norma")
        if fault:
            failed += 1
            print(f"{case['name']}: {fault}")
        shutil.rmtree(folder / str(number), ignore_errors=not fault)
    print(
        f"{len(cases)} networks, {failed} failed; torch {torch.__version__}, torchvision {torchvision.__version__}, "
        f"timm {timm.__version__}"
    )
    return 1 if failed or len(cases) < 50 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cpu-release")
    parser.add_argument("--python", type=pathlib.Path, help="one that has torch, torchvision, timm and safetensors")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # started again, with torch
    options = parser.parse_args()
    build = options.build.resolve()
    if options.inside:
        return compare(build)
    python = options.python or python_with_torch(ROOT / "build/peers")
    return subprocess.run([python, "-B", __file__, "--build", build, "--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
