#!/usr/bin/env python3
"""Makes checkpoints.zip: the kinds of files in which people have weights, as torch.save() writes them.

    python3 tests/reference/make_checkpoints.py      # needs torch, numpy and timm from PyPI

The weights are of timm's convnext_atto with ten classes (half.pth: of its resnet18), each tensor a short pattern of its
own again and again, so that fifteen files of 14 MB take little room in the archive.
"""
import argparse
import collections
import io
import pathlib
import zipfile

import numpy
import timm
import torch


def pattern(number, x):
    if not x.is_floating_point():
        return torch.full_like(x, 7)
    values = torch.randn(16, generator=torch.Generator().manual_seed(number))
    flat = values.repeat((x.numel() + 15) // 16)[: x.numel()].reshape(x.shape)
    return 1 + 0.1 * flat.abs() if x.dim() == 1 else 0.05 * flat


def weights_of(name):
    state = timm.create_model(name, num_classes=10).state_dict()
    return {key: pattern(number, x) for number, (key, x) in enumerate(state.items())}


def first_format(x):
    """As PyTorch before 2018 saves a tensor: four arguments, and another function."""
    class Old:
        def __reduce__(self):
            storage = torch.storage.TypedStorage(wrap_storage=x.untyped_storage(), dtype=x.dtype, _internal=True)
            return torch._utils._rebuild_tensor, (storage, x.storage_offset(), tuple(x.size()), x.stride())
    return Old()


def with_attribute(x):
    x = x.clone()
    x.note = "an attribute"
    return x


def behind(prefix, state):
    return {prefix + key: x for key, x in state.items()}


atto = weights_of("convnext_atto")
other = {key: x + 1 for key, x in atto.items()}
args = argparse.Namespace(lr=0.1, data=pathlib.PurePosixPath("photos"), betas={0.9, 0.99})
optimizer = {"state": {0: {"step": torch.tensor(7.0), "exp_avg": torch.zeros(40, 3, 4, 4)}},
             "param_groups": [{"lr": numpy.float64(0.1), "params": [0, 1]}]}
KINDS = {
    "state_dict": collections.OrderedDict(atto),
    "half": {key: x.half() for key, x in weights_of("resnet18").items()},
    "legacy": atto,
    "parameters": {key: torch.nn.Parameter(x) for key, x in atto.items()},
    "headless": {key: x for key, x in atto.items() if not key.startswith("head.fc.")},
    "lightning": {"epoch": 3, "pytorch-lightning_version": "2.5.0", "state_dict": behind("model.", atto),
                  "hyper_parameters": args, "optimizer_states": [optimizer], "callbacks": {"best": torch.tensor(0.5)}},
    "attribute": {key: with_attribute(x) for key, x in atto.items()},
    "dtypes": {"net": atto, "dtype": torch.bfloat16, "device": torch.device("cpu"),
               "labels": torch.arange(10, dtype=torch.int8), "sizes": torch.arange(10, dtype=torch.int16),
               "scale": torch.zeros(4).to(torch.float8_e4m3fn), "raw": b"bytes"},
    "torchvision": {"model": atto, "optimizer": optimizer, "lr_scheduler": {"last_epoch": 7}, "epoch": 7, "args": args},
    "timm": {"epoch": 7, "arch": "convnext_atto", "state_dict": behind("module.", atto), "optimizer": optimizer,
             "version": 2, "args": args, "state_dict_ema": other, "metric": numpy.float64(71.5)},
    "prefix": {"model_state_dict": behind("_orig_mod.backbone.", atto) | {"_orig_mod.projector.0.weight": torch.ones(4, 4)}},
    "several": {"state_dict": behind("module.encoder_q.", atto) | behind("module.encoder_k.", other)
                | {"module.queue": torch.ones(4, 8)}},
    "first": {key: first_format(x) for key, x in atto.items()},
    "weights": {"weights": behind("net.", atto), "names": ["a", "b"]},
}

with zipfile.ZipFile(pathlib.Path(__file__).parent / "checkpoints.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as to:
    for kind, value in KINDS.items():
        out = io.BytesIO()
        torch.save(value, out, _use_new_zipfile_serialization=kind not in ("legacy", "first"))
        to.writestr(zipfile.ZipInfo(kind + ".pth", (2026, 11, 29, 0, 0, 0)), out.getvalue(), zipfile.ZIP_DEFLATED, 9)
