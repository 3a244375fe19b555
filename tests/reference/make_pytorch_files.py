#!/usr/bin/env python3
"""Makes pytorch_files.safetensors: files that torch.save() writes, as bytes, and the tensors in them.

    python3 tests/reference/make_pytorch_files.py      # needs torch, numpy and safetensors from PyPI
"""
import argparse
import collections
import io
import pathlib
import zipfile

import numpy
import torch
from safetensors.torch import save_file

def no_source(*_):
    raise OSError


# The format before PyTorch 1.6 keeps the source of a module's class, and the path of its file.
torch.serialization.get_source_lines_and_file = no_source
torch.manual_seed(0)
weight, bias = torch.randn(4, 3), torch.randn(4)


class Marked(torch.Tensor):
    pass


def first_format(x):
    """As PyTorch before 2018 saves a tensor: four arguments, and another function."""
    class Old:
        def __reduce__(self):
            storage = x.untyped_storage()
            typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=x.dtype, _internal=True)
            return torch._utils._rebuild_tensor, (typed, x.storage_offset(), tuple(x.size()), x.stride())
    return Old()


def with_attribute(x):
    x.note = "an attribute"
    return x


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
    "tensors": {"parameter": torch.nn.Parameter(weight.clone()),
                "parameter_with_attribute": with_attribute(torch.nn.Parameter(bias.clone())),
                "attribute": with_attribute(weight.clone()), "subclass": weight.clone().as_subclass(Marked),
                "i8": torch.tensor([-128, -1, 0, 127], dtype=torch.int8),
                "i16": torch.tensor([-32768, -129, 255, 32767], dtype=torch.int16),
                "expanded": torch.tensor([1.5]).expand(1000), "channels_last": torch.randn(2, 3, 4, 5).to(
                    memory_format=torch.channels_last),
                "counted": collections.OrderedDict(x=bias)},
    # What is no tensor, dict, list, number or text is left out.
    "others": {"fc.weight": weight, "args": argparse.Namespace(lr=1, path=pathlib.PurePosixPath("a")),
               "best": numpy.float64(0.5), "array": numpy.zeros(3), "names": {1, 2}, "frozen": frozenset([1]),
               "path": pathlib.PurePosixPath("a/b"), "raw": b"\x80bytes", "many": bytearray(b"bytes"), "z": 1j,
               "dtype": torch.float16, "device": torch.device("cpu"), "layout": torch.strided,
               "complex": torch.zeros(2, dtype=torch.complex64), "float8": torch.zeros(2).to(torch.float8_e4m3fn),
               "u16": torch.zeros(2, dtype=torch.uint16), "count": collections.Counter(a=1),
               "default": collections.defaultdict(list, a=[2]), "size": torch.Size([2, 3]), (1, 2): bias,
               "scheduler": torch.optim.lr_scheduler.LinearLR(torch.optim.SGD([torch.nn.Parameter(bias)], 0.1))},
}
BAD = {
    "module": torch.nn.Linear(2, 2),
}


def file_of(value, archive, protocol=2):
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=archive, pickle_protocol=protocol)
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
        left_out = value.dtype in (torch.complex64, torch.float8_e4m3fn, torch.uint16)
        wide = value.int() if value.dtype in (torch.int8, torch.int16) else value
        return {} if left_out else {name: wide.detach().as_subclass(torch.Tensor).contiguous().clone()}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {key: x for k, v in items if isinstance(k, str | int) for key, x in
            flat(f"{name}.{k}", v).items()}


tensors = {}
for name, value in GOOD.items():
    tensors[f"{name}.zip"] = file_of(value, True)
    tensors[f"{name}.pickles"] = file_of(value, False)
    tensors[f"{name}.protocol4"] = file_of(value, True, protocol=4)
    tensors |= flat(f"expected.{name}", value)
for archive in (True, False):
    tensors[f"first.{'zip' if archive else 'pickles'}"] = file_of(
        {"fc.weight": first_format(weight), "fc.bias": first_format(bias[1:3])}, archive)
tensors |= {"expected.first.fc.weight": weight.clone(), "expected.first.fc.bias": bias[1:3].clone()}
script = io.BytesIO()
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), script)
tensors["bad.script.zip"] = torch.frombuffer(bytearray(script.getvalue()), dtype=torch.uint8)
for name, value in BAD.items():
    tensors[f"bad.{name}.zip"] = file_of(value, True)
    tensors[f"bad.{name}.pickles"] = file_of(value, False)
tensors["bad.compressed.zip"] = compressed({"x": torch.zeros(1 << 18)})
save_file(tensors, pathlib.Path(__file__).parent / "pytorch_files.safetensors", {"torch": torch.__version__})
