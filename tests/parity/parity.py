#!/usr/bin/env python3
"""Compares whole networks with PyTorch: outputs, gradients of the input and of every parameter, running statistics.

torchvision makes the weights, the input and the gradient of the output; `norma run` gets them as safetensors. For every
tensor the distance from PyTorch's float64 result, relative in norm, may be at most 4 times PyTorch's own float32 distance
plus 1e-5. Needs torch and torchvision (Debian: python3-torch python3-torchvision libopenblas0-pthread).

Where timm is installed, its vision transformers follow. In float64, no number of a tensor, nor of the output after a
step of gradient descent, may be further from timm's than 1e-9 of the tensor's largest, or of 1e-4 of the largest
gradient where that is more: attention does not depend on the bias of k_norm, whose gradient is rounding. In float32,
the largest distance may be at most 4 times PyTorch's own, plus 1e-5, by the same measure. With --onnx, the file of each
in the opsets 18, 21 and 23 must pass `norma export --check`, for which NORMA_PYTHON names a Python with onnxruntime.

    ./run build && python3 tests/parity/parity.py
    python3 tests/parity/parity.py --only resnet50 --only convnext_tiny --size 96
"""
import argparse
import copy
import importlib.util
import itertools
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
from functools import partial

DEBIAN_PYTHON = "/usr/bin/python3"  # the one that Debian's packages belong to
if not all(importlib.util.find_spec(name) for name in ("numpy", "torch", "torchvision")):
    if sys.executable == DEBIAN_PYTHON or not os.path.exists(DEBIAN_PYTHON):
        sys.exit("parity: missing (names of Debian's packages): python3-torch python3-torchvision libopenblas0-pthread")
    os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, *sys.argv])

import numpy as np
import torch
import torchvision
from torchvision.models.convnext import LayerNorm2d

ROOT = pathlib.Path(__file__).resolve().parents[2]
NORMS = {
    "batch": torch.nn.BatchNorm2d,
    "group:32": partial(torch.nn.GroupNorm, 32),
    "layer2d": partial(LayerNorm2d, eps=1e-6),
}
DTYPES = {"F32": "<f4", "F64": "<f8"}
CASES = [(model, norm) for model in ("resnet18", "resnet50") for norm in NORMS] + [("convnext_tiny", None)]
# Model, global pool, norm of queries and keys, layer scale.
VITS = [(model, pool, qk_norm, scale) for model in ("vit_tiny", "vit_small") for pool in ("token", "avg")
        for qk_norm in (False, True) for scale in (None, 0.1)] + [("vit_base_clip", "token", False, None)]
VIT_SIZE, VIT_PATCH, VIT_LIMIT, VIT_RATE = 24, 8, 1e-9, 0.01
OPSETS = (18, 21, 23)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, x in tensors.items():
        dtype = {np.dtype("float32"): "F32", np.dtype("float64"): "F64"}[x.dtype]
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [offset, offset + x.nbytes]}
        offset += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(np.ascontiguousarray(x).tobytes())


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + x for x in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def norma_name(name):
    """torchvision's name of a tensor in a ResNet or ConvNeXt → Norma's (torchvision's and timm's)."""
    name = re.sub(r"^features\.0\.", "stem.", name)
    name = re.sub(r"^features\.([1357])\.(\d+)\.", lambda m: f"stages.{int(m[1]) // 2}.blocks.{m[2]}.", name)
    name = re.sub(r"^features\.([246])\.", lambda m: f"stages.{int(m[1]) // 2}.downsample.", name)
    for theirs, ours in (("layer_scale", "gamma"), ("block.0.", "conv_dw."), ("block.2.", "norm."),
                         ("block.3.", "mlp.fc1."), ("block.5.", "mlp.fc2."), ("classifier.0.", "head.norm."),
                         ("classifier.2.", "head.fc.")):
        name = name.replace(theirs, ours)
    return name


def to_norma(tensors):
    result = {}
    for name, x in tensors.items():
        x = x.detach().numpy()
        result[norma_name(name)] = x.reshape(-1) if name.endswith("layer_scale") else x
    return result


def make_model(name, norm, classes, batch):
    """A network whose every parameter matters: no norm is the identity, no residual branch is switched off."""
    if norm is None:
        model = getattr(torchvision.models, name)(num_classes=classes, stochastic_depth_prob=0.0)
    else:
        model = getattr(torchvision.models, name)(num_classes=classes, norm_layer=NORMS[norm])
    with torch.no_grad():
        for key, x in model.named_parameters():
            if key.endswith("layer_scale"):
                x.uniform_(0.2, 0.8)
            elif key.endswith("bias"):
                x.normal_(0, 0.1)
            elif x.dim() == 1:
                x.uniform_(0.5, 1.5)
        model.train()
        for _ in range(3):  # running statistics that fit the network
            model(torch.randn(batch))
    return model


def run_torch(model, x, grad_output, train, memory_format):
    model = copy.deepcopy(model).to(x.dtype).to(memory_format=memory_format).train(train)
    x = x.clone().contiguous(memory_format=memory_format).requires_grad_()
    output = model(x)
    output.backward(grad_output)
    result = {"output": output, "grad.input": x.grad}
    for key, parameter in model.named_parameters():
        result["grad." + key] = parameter.grad
    if train:
        for key, buffer in model.named_buffers():
            if buffer.is_floating_point():
                result["buffer." + key] = buffer

    def rename(key):
        kind, dot, rest = key.partition(".")
        return kind + dot + (rest if rest == "input" else norma_name(rest))
    return {rename(k): v.detach().numpy().reshape(-1) if k.endswith("layer_scale") else v.detach().numpy()
            for k, v in result.items()}


def run_norma(arguments, name, norm, model, x, grad_output, train, channels_last, folder):
    weights = {k: v for k, v in model.state_dict().items() if v.is_floating_point()}
    write_safetensors(folder / "weights.safetensors", to_norma(weights))
    write_safetensors(folder / "input.safetensors", {"input": x.numpy(), "grad_output": grad_output.numpy()})
    command = [arguments.norma, "run", "--model", name, "--num-classes", str(grad_output.shape[1]), "--backward",
               "--weights", folder / "weights.safetensors", "--input", folder / "input.safetensors",
               "--output", folder / "output.safetensors"]
    command += ["--norm", norm] if norm else []
    command += ["--train"] if train else []
    command += ["--channels-last"] if channels_last else []
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"norma run failed with exit code {run.returncode}: {run.stderr.strip()}")
    return read_safetensors(folder / "output.safetensors")


def distance(x, reference):
    if x.shape != reference.shape:
        return float("inf")
    return np.linalg.norm((x.astype(np.float64) - reference).ravel()) / max(np.linalg.norm(reference.ravel()), 1e-300)


def compare(norma, torch32, torch64):
    """(tensor name, Norma's distance, PyTorch's distance) of the tensor that is nearest to or furthest over its limit."""
    if norma.keys() != torch64.keys():
        missing, unexpected = sorted(torch64.keys() - norma.keys()), sorted(norma.keys() - torch64.keys())
        raise RuntimeError(f"norma run wrote other tensors: missing {missing}, unexpected {unexpected}")
    worst, worst_ratio = None, -1.0
    for key, reference in torch64.items():
        ours, theirs = distance(norma[key], reference), distance(torch32[key], reference)
        ratio = ours / (4 * theirs + 1e-5)
        if not ratio <= worst_ratio:  # also takes NaN
            worst, worst_ratio = (key, ours, theirs), ratio if ratio == ratio else float("inf")
    return worst, worst_ratio


def make_vit(name, pool, qk_norm, scale, classes):
    """timm's, in float64, with parameters of which none is 0 or 1."""
    import timm

    timm_name = name.replace("_clip", "_patch16_clip_224") if "_clip" in name else f"{name}_patch16_224"
    model = timm.create_model(timm_name, img_size=VIT_SIZE, patch_size=VIT_PATCH, num_classes=classes,
                              global_pool=pool, qk_norm=qk_norm, init_values=scale).double()
    with torch.no_grad():
        for key, x in model.named_parameters():
            if key.endswith(("bias", "cls_token")):
                x.normal_(0, 0.1)
            elif key.endswith("gamma"):
                x.uniform_(0.2, 0.8)
            elif x.dim() == 1:
                x.uniform_(0.5, 1.5)
            else:
                x.mul_(3)  # so that attention prefers some tokens
    return model


def norma_words(case, classes):
    """The options that describe the network."""
    name, pool, qk_norm, scale = case
    return ["--model", name, "--num-classes", str(classes), "--patch-size", str(VIT_PATCH), "--global-pool", pool,
            *(["--qk-norm", "layer2d"] if qk_norm else []), *(["--layer-scale", str(scale)] if scale else [])]


def run_vit(arguments, case, weights, x, grad_output, train, channels_last, folder):
    write_safetensors(folder / "weights.safetensors", weights)
    write_safetensors(folder / "input.safetensors", {"input": x, "grad_output": grad_output})
    command = [arguments.norma, "run", *norma_words(case, grad_output.shape[1]), "--backward",
               "--precision", str(x.dtype), "--weights", folder / "weights.safetensors",
               "--input", folder / "input.safetensors", "--output", folder / "output.safetensors"]
    command += ["--train"] if train else []
    command += ["--channels-last"] if channels_last else []
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"norma run failed with exit code {run.returncode}: {run.stderr.strip()}")
    return read_safetensors(folder / "output.safetensors")


def run_timm(model, x, grad_output):
    """Output and gradients, then the output after a step."""
    x = x.clone().requires_grad_()
    output = model(x)
    output.backward(grad_output)
    theirs = {"output": output, "grad.input": x.grad} | {f"grad.{k}": p.grad for k, p in model.named_parameters()}
    theirs = {key: y.detach().numpy().copy() for key, y in theirs.items()}
    torch.optim.SGD(model.parameters(), lr=VIT_RATE).step()
    return theirs | {"output after a step": model(x).detach().numpy()}


def distances(results, truth):
    """The largest distance of each tensor, as a share of its largest number."""
    if results.keys() != truth.keys():
        raise RuntimeError(f"norma run wrote other tensors: {sorted(results.keys() ^ truth.keys())}")
    least = 1e-4 * max(np.max(np.abs(y)) for key, y in truth.items() if key.startswith("grad."))
    errors = {}
    for key, reference in truth.items():
        same = results[key].shape == reference.shape
        error = np.max(np.abs(results[key].astype(np.float64) - reference)) if same else float("nan")
        errors[key] = error / max(np.max(np.abs(reference)), least)
    return errors


def compare_vit(arguments, case, train, channels_last, dtype):
    """(number of tensors, largest share of the limit, its tensor and distance)"""
    torch.manual_seed(arguments.seed)
    model = make_vit(*case, classes=10).train(train)
    x = torch.randn(arguments.batch, 3, VIT_SIZE, VIT_SIZE, dtype=torch.float64)
    grad_output = torch.randn(arguments.batch, 10, dtype=torch.float64)
    with torch.no_grad():  # numbers that float32 holds
        for y in (x, grad_output, *model.parameters()):
            y.copy_(y.float())
    weights = {key: y.detach().to(dtype).numpy().copy() for key, y in model.named_parameters()}
    narrow = copy.deepcopy(model).to(dtype)
    truth = run_timm(model, x, grad_output)
    theirs = distances(run_timm(narrow, x.to(dtype), grad_output.to(dtype)), truth)
    with tempfile.TemporaryDirectory() as name:
        run = partial(run_vit, arguments, case, x=x.to(dtype).numpy(), grad_output=grad_output.to(dtype).numpy(),
                      train=train, channels_last=channels_last, folder=pathlib.Path(name))
        ours = dict(run(weights=weights))
        stepped = {key: y - y.dtype.type(VIT_RATE) * ours["grad." + key] for key, y in weights.items()}
        ours["output after a step"] = run(weights=stepped)["output"]
    worst, tensor, distance_of_worst = -1.0, "", 0.0
    for key, error in distances(ours, truth).items():
        share = error / (VIT_LIMIT if dtype == torch.float64 else 4 * theirs[key] + 1e-5)
        if not share <= worst:  # also takes NaN
            worst, tensor, distance_of_worst = share if share == share else float("inf"), key, error
    return len(ours), worst, tensor, distance_of_worst


def check_onnx(arguments, case):
    """The number of opsets in which onnxruntime does not agree."""
    torch.manual_seed(arguments.seed)
    model = make_vit(*case, classes=10).float()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        weights = pathlib.Path(name) / "weights.safetensors"
        write_safetensors(weights, {key: y.detach().numpy() for key, y in model.named_parameters()})
        for opset in OPSETS:
            run = subprocess.run([arguments.norma, "export", *norma_words(case, 10), "--img-size", str(VIT_SIZE),
                                  "--checkpoint", weights, "--opset", str(opset), "--check",
                                  "--output", weights.with_name(f"{opset}.onnx")], capture_output=True, text=True)
            failures += run.returncode != 0
            said = (run.stdout if run.returncode == 0 else run.stderr).strip().splitlines()[-1]
            print(f"{case[0]:13} {case[1]:5} {'layer2d' if case[2] else '-':7} {case[3] or '-':5} "
                  f"{said.split('; ', 1)[-1]}, opset {opset}{'' if run.returncode == 0 else '  FAILED'}", flush=True)
    return failures


def compare_vits(arguments):
    """(number of cases, number of failures)"""
    if not importlib.util.find_spec("timm"):
        print("timm is not installed: no vision transformers are compared")
        return 0, 0
    ran, failures = 0, 0
    print(f"{'model':13} {'pool':5} {'qk-norm':7} {'scale':5} {'mode':5} {'format':13} {'dtype':7} {'tensors':>7}  "
          f"{'distance / limit':>16}  {'norma':>8}  worst tensor", flush=True)
    for case in VITS:
        if arguments.only and case[0] not in arguments.only:
            continue
        for train, channels_last, dtype in itertools.product((True, False), (True, False),
                                                             (torch.float64, torch.float32)):
            if train == channels_last:
                continue
            tensors, worst, tensor, error = compare_vit(arguments, case, train, channels_last, dtype)
            ran += 1
            failures += not worst <= 1
            print(f"{case[0]:13} {case[1]:5} {'layer2d' if case[2] else '-':7} {case[3] or '-':5} "
                  f"{'train' if train else 'eval':5} {'channels_last' if channels_last else 'contiguous':13} "
                  f"{str(dtype)[6:]:7} {tensors:7}  {worst:16.1e}  {error:8.1e}  {tensor}"
                  f"{'' if worst <= 1 else '  FAILED'}", flush=True)
        if arguments.onnx:
            ran, failures = ran + len(OPSETS), failures + check_onnx(arguments, case)
    return ran, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norma", type=pathlib.Path, default=ROOT / "build/cpu-release/cli/norma")
    parser.add_argument("--only", action="append", help="only this model (may be repeated)")
    parser.add_argument("--norm", action="append", help="only this norm (may be repeated)")
    parser.add_argument("--size", type=int, default=64, help="image height; the width is 3/4 of it")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--onnx", action="store_true", help="also `norma export --check` of each vision transformer")
    arguments = parser.parse_args()
    if not arguments.norma.exists():
        sys.exit(f"parity: {arguments.norma} does not exist; build it first: ./run build")

    shape, classes, failures, ran = (arguments.batch, 3, arguments.size, arguments.size * 3 // 4), 10, 0, 0
    print(f"input {list(shape)}, PyTorch {torch.__version__}, torchvision {torchvision.__version__}")
    print(f"{'model':14} {'norm':9} {'mode':6} {'format':14} {'tensors':>7}  {'distance / limit':>16}  "
          f"{'norma':>8}  {'pytorch':>8}  worst tensor", flush=True)
    for name, norm in CASES:
        if arguments.only and name not in arguments.only or arguments.norm and norm not in arguments.norm:
            continue
        torch.manual_seed(arguments.seed)
        model = make_model(name, norm, classes, shape)
        x, grad_output = torch.randn(shape), torch.randn(shape[0], classes)
        for train in (True, False):
            torch64 = run_torch(model, x.double(), grad_output.double(), train, torch.contiguous_format)
            for channels_last in (False, True):
                torch_format = torch.channels_last if channels_last else torch.contiguous_format
                torch32 = run_torch(model, x, grad_output, train, torch_format)
                with tempfile.TemporaryDirectory() as folder:
                    norma = run_norma(arguments, name, norm, model, x, grad_output, train, channels_last,
                                      pathlib.Path(folder))
                (tensor, ours, theirs), ratio = compare(norma, torch32, torch64)
                ran += 1
                failures += not ratio <= 1
                print(f"{name:14} {norm or 'layer2d':9} {'train' if train else 'eval':6} "
                      f"{'channels_last' if channels_last else 'contiguous':14} {len(norma):7}  {ratio:16.3f}  "
                      f"{ours:8.1e}  {theirs:8.1e}  {tensor}{'' if ratio <= 1 else '  FAILED'}", flush=True)
    more, failed = compare_vits(arguments)
    ran, failures = ran + more, failures + failed
    print(f"{ran - failures} passed, {failures} failed")
    sys.exit(1 if failures or not ran else 0)


if __name__ == "__main__":
    main()
