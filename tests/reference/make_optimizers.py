#!/usr/bin/env python3
"""Writes optimizers.safetensors: 20 steps of PyTorch's and timm's optimizers, in float64 and float32.

Usage: make_optimizers.py (needs torch, timm and numpy; the kept file is of the versions in its metadata)

Three parameters with the start values "start.NAME": "matrix" and "kernel" with weight decay 0.05, "vector" with none and
twice the learning rate. Step k of each has the gradient "gradients.NAME"[k] and the learning rate of that case times
1 - k / 40. "CASE.DTYPE.NAME.K" is the parameter after K steps."""
import json
import pathlib
import struct

import numpy
import timm
import timm.optim
import timm.optim.muon
import torch

STEPS = 20
KEPT = (1, 2, 5, 10, 20)
SIZES = {"matrix": (5, 7), "kernel": (4, 3, 3, 2), "vector": (9,)}
CASES = {
    "sgd": (torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
    "sgd_dampened": (torch.optim.SGD, dict(lr=0.1, momentum=0.8, dampening=0.25)),
    "nesterov": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, amsgrad=False)),
    "adamw_other": (torch.optim.AdamW, dict(lr=0.01, betas=(0.7, 0.95), eps=1e-3, amsgrad=False)),
    "lamb": (timm.optim.Lamb, dict(lr=0.01, betas=(0.9, 0.999), eps=1e-6, max_grad_norm=1.0)),
    "lamb_unclipped": (timm.optim.Lamb, dict(lr=0.01, betas=(0.8, 0.99), eps=1e-5, max_grad_norm=None)),
    "rmsproptf": (timm.optim.RMSpropTF, dict(lr=0.01, alpha=0.9, eps=1e-10, momentum=0.9)),
    "muon": (timm.optim.Muon, dict(lr=0.02)),
    "muon_other": (timm.optim.Muon, dict(lr=0.02, momentum=0.8, betas=(0.8, 0.99), eps=1e-5, ns_steps=7)),
    "rmsproptf_plain": (timm.optim.RMSpropTF, dict(lr=0.01, alpha=0.99, eps=1e-3, momentum=0.0)),
}


# timm iterates in bfloat16 unless it is asked: here in the dtype of the run.
newton_schulz = timm.optim.muon.zeropower_via_newtonschulz
timm.optim.muon.zeropower_via_newtonschulz = lambda x, *a, **k: newton_schulz(x, *a, **k, dtype=x.dtype)


def run(make, options, start, gradients, dtype):
    parameters = {name: torch.tensor(start[name], dtype=dtype, requires_grad=True) for name in SIZES}
    lr = options["lr"]
    groups = [
        dict(params=[parameters["matrix"], parameters["kernel"]], weight_decay=0.05),
        dict(params=[parameters["vector"]], weight_decay=0.0, lr=2 * lr),
    ]
    optimizer = make(groups, **options)
    kept = {}
    for k in range(STEPS):
        for group, scale in zip(optimizer.param_groups, (1, 2)):
            group["lr"] = lr * (1 - k / 40) * scale
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name][k], dtype=dtype)
        optimizer.step()
        if k + 1 in KEPT:
            for name, parameter in parameters.items():
                kept[f"{name}.{k + 1}"] = parameter.detach().numpy().copy()
    return kept


def write(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        dtype = {"float64": "F64", "float32": "F32"}[str(array.dtype)]
        header[name] = dict(dtype=dtype, shape=list(array.shape), data_offsets=[offset, offset + array.nbytes])
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array).tobytes())


def main():
    torch.set_num_threads(1)
    random = numpy.random.Generator(numpy.random.PCG64(14))
    # Numbers that float32 has: both dtypes begin with the same.
    single = lambda sizes, scale: (scale * random.standard_normal(sizes)).astype(numpy.float32).astype(numpy.float64)
    start = {name: single(sizes, 1) for name, sizes in SIZES.items()}
    gradients = {name: single((STEPS, *sizes), 0.3) for name, sizes in SIZES.items()}
    tensors = {f"start.{name}": x for name, x in start.items()}
    tensors.update({f"gradients.{name}": x for name, x in gradients.items()})
    for case, (make, options) in CASES.items():
        for dtype in (torch.float64, torch.float32):
            for name, x in run(make, dict(options), start, gradients, dtype).items():
                tensors[f"{case}.{str(dtype)[6:]}.{name}"] = x
    metadata = {"torch": torch.__version__, "timm": timm.__version__}
    write(pathlib.Path(__file__).parent / "optimizers.safetensors", tensors, metadata)


main()
