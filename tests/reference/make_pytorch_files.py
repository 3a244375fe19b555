#!/usr/bin/env python3
"""Makes pytorch_files.safetensors: files that torch.save() writes, as bytes, and the tensors in them.

    python3 tests/reference/make_pytorch_files.py      # needs torch and safetensors from PyPI
"""
import argparse
import io
import pathlib
import zipfile

import torch
from safetensors.torch import save_file

def no_source(*_):
    raise OSError


# The format before PyTorch 1.6 keeps the source of a module's class, and the path of its file.
torch.serialization.get_source_lines_and_file = no_source
torch.manual_seed(0)
weight, bias = torch.randn(4, 3), torch.randn(4)
GOOD = {
    "plain": {"fc.weight": weight, "fc.bias": bias},
    "views": {"transposed": weight.t(), "part": weight[1:3, ::2], "shared": weight, "empty": torch.zeros(0, 3),
              "scalar": torch.tensor(2.5)},
    "dtypes": {"f64": weight.double(), "f16": weight.half(), "bf16": weight.bfloat16(), "i64": torch.arange(3),
               "i32": torch.arange(3, dtype=torch.int32), "u8": torch.arange(3, dtype=torch.uint8),
               "bool": torch.tensor([True, False])},
    "training": {"state_dict": {"module.fc.weight": weight, "module.fc.bias": bias},
                 "state_dict_ema": {"fc.weight": weight + 1, "fc.bias": bias + 1},
                 "optimizer": {"state": {0: {"exp_avg": weight}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
                 "epoch": 7, "arch": "net", "metric": 1.5, "amp": None, "done": True, "big": 2**40, "minus": -3},
}
BAD = {
    "namespace": {"fc.weight": weight, "args": argparse.Namespace(lr=1)},
    "module": torch.nn.Linear(2, 2),
    "complex": {"x": torch.zeros(2, dtype=torch.complex64)},
    "expanded": {"x": torch.zeros(1).expand(1000)},
    "set": {"x": weight, "names": {1, 2}},
    "key": {(1, 2): weight},
}


def file_of(value, archive):
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=archive)
    return torch.frombuffer(bytearray(out.getvalue()), dtype=torch.uint8)


def compressed(value):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file_of(value, True).numpy().tobytes())) as archive:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as to:
            for name in archive.namelist():
                to.writestr(name, archive.read(name))
    return torch.frombuffer(bytearray(out.getvalue()), dtype=torch.uint8)


def flat(name, value):
    if isinstance(value, torch.Tensor):
        return {name: value.contiguous().clone()}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {key: x for k, v in items for key, x in flat(f"{name}.{k}", v).items()}


tensors = {}
for name, value in GOOD.items():
    tensors[f"{name}.zip"] = file_of(value, True)
    tensors[f"{name}.pickles"] = file_of(value, False)
    tensors |= flat(f"expected.{name}", value)
for name, value in BAD.items():
    tensors[f"bad.{name}.zip"] = file_of(value, True)
    tensors[f"bad.{name}.pickles"] = file_of(value, False)
tensors["bad.compressed.zip"] = compressed({"x": torch.zeros(1 << 18)})
save_file(tensors, pathlib.Path(__file__).parent / "pytorch_files.safetensors", {"torch": torch.__version__})
