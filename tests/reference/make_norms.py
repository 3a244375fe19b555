#!/usr/bin/env python3
"""Writes norms.safetensors: inputs, outputs, gradients and running statistics of PyTorch's norms.

Usage: make_norms.py (needs Debian's python3-torch; run it with the system's Python)

A case is one layer with its options on one input. Tensors of case 12 are named "12/y" and so on; inputs that several
cases share are named once, and the case says which. The cases themselves are a JSON list in the metadata under "cases".

    x, dy, weight, bias     inputs, in the case's dtypes
    y, dx, dweight, dbias   what PyTorch gives for them, in training or evaluation
    y64, dx64, …            the same from the same rounded inputs in float64
    running_mean, running_var, num_batches_tracked
                            after three steps of training on x, 2 x and -x / 2 from a new layer; "…64" in float64.
                            In evaluation y and y64 both use running_mean and running_var.

Norms that this PyTorch lacks (root mean square, x / deviation, layer norm over channels) are written with its tensor
functions, 16-bit ones in float32 and rounded once. float16 is missing: PyTorch's CPU norms did not take it."""
import json
import pathlib
import platform
import struct
import sys
import zlib

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"make_norms.py: needs PyTorch ({error}); on Debian: apt-get install python3-torch")

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
# dtype of the input, dtype of the parameters
DTYPES = {"float32": (torch.float32, torch.float32), "bfloat16": (torch.bfloat16, torch.bfloat16),
          "mixed": (torch.bfloat16, torch.float32)}


class Writer:
    """Collects tensors; equal ones are kept once."""

    def __init__(self):
        self.tensors = {}
        self.names = {}

    def put(self, name, x):
        x = x.detach().contiguous()
        data = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy().tobytes()
        key = (NAMES[x.dtype], tuple(x.shape), data)
        if key not in self.names:
            self.names[key] = name
            self.tensors[name] = key
        return self.names[key]

    def write(self, path, metadata):
        header, offset, parts = {"__metadata__": metadata}, 0, []
        width = {"F64": 8, "I64": 8, "F32": 4, "BF16": 2}
        for name, (dtype, shape, data) in sorted(self.tensors.items(), key=lambda t: -width[t[1][0]]):
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
            parts.append(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def random(label, sizes, dtype, scale=1.0, offset=0.0):
    generator = numpy.random.Generator(numpy.random.PCG64(zlib.crc32(label.encode())))
    return torch.tensor(generator.standard_normal(sizes) * scale + offset).to(dtype)


def in_format(x, layout):
    if layout == "channels_last":
        return x.to(memory_format=torch.channels_last)
    if layout == "permuted":  # the axes reversed in memory
        axes = tuple(reversed(range(x.dim())))
        return x.permute(axes).contiguous().permute(axes)
    return x.contiguous()


def computed(x):
    return x.float() if x.dtype == torch.bfloat16 else x


class RMS(torch.nn.Module):
    """x / sqrt(mean(x²) + eps) · weight; with `centred` x / sqrt(var + eps) · weight, var unbiased."""

    def __init__(self, axes, affine, eps, centred, shape):
        super().__init__()
        self.axes, self.eps, self.centred = axes, eps, centred
        self.weight = torch.nn.Parameter(torch.ones(shape)) if affine else None

    def forward(self, x):
        wide = computed(x)
        var = wide.var(self.axes, unbiased=True, keepdim=True) if self.centred else wide.pow(2).mean(self.axes, True)
        y = wide * torch.rsqrt(var + self.eps)
        if self.weight is not None:
            w = computed(self.weight)
            y = y * (w.reshape(-1, 1, 1) if self.axes == (1,) else w)
        return y.to(x.dtype)


class LayerNorm2d(torch.nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def build(case):
    kind, sizes = case["kind"], case["sizes"]
    options = {key: case[key] for key in ("eps", "momentum", "affine", "track_running_stats") if key in case}
    if kind.startswith("batch"):
        return getattr(torch.nn, f"BatchNorm{kind[-2]}d")(sizes[1], **options)
    if kind.startswith("instance"):
        return getattr(torch.nn, f"InstanceNorm{kind[-2]}d")(sizes[1], **options)
    if kind == "layer":
        return torch.nn.LayerNorm(case["shape"], case["eps"], case["affine"])
    if kind == "layer2d":
        return LayerNorm2d(sizes[1], case["eps"], case["affine"])
    if kind == "group":
        return torch.nn.GroupNorm(case["groups"], sizes[1], case["eps"], case["affine"])
    if kind in ("rms", "simple"):
        axes = tuple(range(-len(case["shape"]), 0))
        return RMS(axes, case["affine"], case["eps"], kind == "simple", case["shape"])
    if kind in ("rms2d", "simple2d"):
        return RMS((1,), case["affine"], case["eps"], kind == "simple2d", sizes[1])
    return torch.nn.LocalResponseNorm(case["size"], case["alpha"], case["beta"], case["k"])


def parameters(case, dtype):
    """Values of weight and bias by name, the same for all dtypes but for the rounding."""
    label = f"{case['kind']} {case['sizes']}"
    return {name: random(f"{name} {label}", tuple(p.shape), dtype) for name, p in build(case).named_parameters()}


def make_layer(case, values, dtype):
    """A layer in `dtype` with these parameters. Running statistics stay as wide as the parameters."""
    layer = build(case).to(dtype)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(values[name].to(dtype))
    return layer


def run(layer, x, dy):
    x = x.detach().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(dy)
    result = {"y": y, "dx": x.grad}
    result.update({"d" + name: p.grad for name, p in layer.named_parameters()})
    return {name: t.detach().clone() for name, t in result.items()}


def statistics(layer):
    return {name: b.detach().clone() for name, b in layer.named_buffers()}


def compute(case, x, dy, values, dtype):
    """Results and buffers as PyTorch computes them, and both in float64."""
    layer, exact = make_layer(case, values, dtype), make_layer(case, values, torch.float64)
    tracked = bool(statistics(layer))
    if tracked:
        for factor in (1, 2, -0.5):
            layer(x * factor)
            exact(x.double() * factor)
    buffers = {**statistics(layer), **{name + "64": b for name, b in statistics(exact).items()}}
    buffers.pop("num_batches_tracked64", None)
    if case["mode"] == "eval":
        layer.eval(), exact.eval()
        with torch.no_grad():
            for name, b in exact.named_buffers():
                b.copy_(buffers[name])
    results = run(layer, x, dy)
    exact = run(exact, x.double().contiguous(), dy.double().contiguous())
    wrong = any((results[name].double() - t).abs().max() > 0.01 * t.abs().max() for name, t in exact.items())
    wrong = wrong and x.dtype == torch.float32
    results.update({name + "64": t for name, t in exact.items()})
    return results, buffers, wrong


def cases():
    def with_modes(**case):
        for mode in ("train", "eval"):
            yield {**case, "mode": mode}

    batch_options = [
        {"eps": 1e-5, "momentum": 0.1, "affine": True, "track_running_stats": True},
        {"eps": 1e-3, "momentum": None, "affine": True, "track_running_stats": True},
        {"eps": 1e-5, "momentum": 0.0, "affine": False, "track_running_stats": True},
        {"eps": 1e-5, "momentum": 0.3, "affine": False, "track_running_stats": True},
    ]
    untracked = {"eps": 1e-5, "momentum": 0.1, "affine": True, "track_running_stats": False}
    for kind, sizes, layout in (
            ("batch1d", (5, 3), "contiguous"), ("batch1d", (7, 33), "permuted"), ("batch1d", (3, 2, 7), "contiguous"),
            ("batch1d", (4, 1, 5), "permuted"), ("batch2d", (3, 5, 3, 4), "contiguous"),
            ("batch2d", (2, 4, 5, 3), "channels_last"), ("batch2d", (2, 3, 4, 5), "permuted"),
            ("batch2d", (3, 1, 5, 2), "contiguous"), ("batch2d", (6, 7, 1, 1), "channels_last"),
            ("batch2d", (1, 5, 3, 3), "contiguous"), ("batch3d", (2, 3, 2, 3, 4), "contiguous"),
            ("batch3d", (1, 2, 3, 1, 5), "permuted")):
        for options in batch_options:
            yield from with_modes(kind=kind, sizes=sizes, layout=layout, **options)
        yield from with_modes(kind=kind, sizes=sizes, layout=layout, **untracked)

    for kind, sizes, layout in (
            ("instance1d", (2, 3, 7), "contiguous"), ("instance1d", (1, 1, 9), "permuted"),
            ("instance2d", (2, 3, 4, 5), "contiguous"), ("instance2d", (3, 4, 3, 3), "channels_last"),
            ("instance2d", (1, 5, 1, 3), "permuted"), ("instance3d", (2, 2, 3, 2, 3), "contiguous")):
        for affine in (True, False):
            yield {"kind": kind, "sizes": sizes, "layout": layout, "mode": "train", "eps": 1e-5, "momentum": 0.1,
                   "affine": affine, "track_running_stats": False}
            yield from with_modes(kind=kind, sizes=sizes, layout=layout, eps=1e-3, momentum=0.2, affine=affine,
                                  track_running_stats=True)

    for kind in ("layer", "rms", "simple"):
        for sizes, shape, layout in (((2, 3, 5), (5,), "contiguous"), ((2, 3, 5), (3, 5), "permuted"),
                                     ((4, 33), (33,), "contiguous"), ((7,), (7,), "contiguous"),
                                     ((3, 2, 4, 3), (4, 3), "channels_last"), ((1, 32), (32,), "contiguous")):
            for affine, eps in ((True, 1e-5), (False, 1e-3)):
                yield {"kind": kind, "sizes": sizes, "shape": shape, "layout": layout, "mode": "train", "eps": eps,
                       "affine": affine}
    for kind in ("layer2d", "rms2d", "simple2d"):
        for sizes, layout in (((2, 4, 3, 5), "contiguous"), ((2, 7, 3, 3), "channels_last"), ((2, 3, 4, 2), "permuted"),
                              ((3, 31, 1, 1), "contiguous"), ((1, 8, 5, 1), "channels_last")):
            for affine, eps in ((True, 1e-6), (False, 1e-3)):
                yield {"kind": kind, "sizes": sizes, "layout": layout, "mode": "train", "eps": eps, "affine": affine}

    for sizes, groups, layout in (((2, 4, 3, 5), 2, "contiguous"), ((2, 6, 3, 2), 3, "channels_last"),
                                  ((2, 3, 4, 3), 1, "permuted"), ((2, 3, 4, 3), 3, "contiguous"),
                                  ((3, 8), 2, "contiguous"), ((2, 4, 7), 2, "permuted"),
                                  ((2, 4, 2, 3, 2), 4, "contiguous"), ((1, 33, 1, 2), 11, "channels_last"),
                                  ((3, 4, 1, 1), 2, "contiguous"), ((2, 1, 3, 5), 1, "contiguous")):
        for affine, eps in ((True, 1e-5), (False, 1e-3)):
            yield {"kind": "group", "sizes": sizes, "groups": groups, "layout": layout, "mode": "train", "eps": eps,
                   "affine": affine}

    for sizes, layout in (((2, 7, 3), "contiguous"), ((2, 5, 3, 4), "channels_last"), ((1, 9, 2, 3), "permuted"),
                          ((2, 1, 3, 3), "contiguous"), ((2, 4, 2, 3, 2), "contiguous")):
        for size, alpha, beta, k in ((5, 1e-4, 0.75, 1.0), (2, 0.5, 0.5, 2.0), (3, 1.0, 0.75, 0.1)):
            yield {"kind": "response", "sizes": sizes, "layout": layout, "mode": "train", "size": size,
                   "alpha": alpha, "beta": beta, "k": k}


def main():
    writer, listed = Writer(), []
    for index, case in enumerate(cases()):
        label = f"{case['kind']} {case['sizes']}"
        offset = (0.0, 3.0, -20.0)[index % 3]
        layout = case["layout"]
        for variant, (dtype, parameter_dtype) in DTYPES.items():
            values = parameters(case, parameter_dtype)
            if variant == "mixed" and not values:
                continue
            x = in_format(random(f"x {label}", case["sizes"], dtype, 1.0, offset), layout)
            dy = in_format(random(f"dy {label}", case["sizes"], dtype), layout)
            try:
                results, buffers, wrong = compute(case, x, dy, values, parameter_dtype)
            except RuntimeError as error:  # not for this dtype
                print(f"left out: {label} {variant}: {str(error).splitlines()[0]}")
                continue
            if wrong:  # instance norm's gradients are, where strides fit two memory formats
                print(f"PyTorch is wrong for strides {x.stride()} of {label}; contiguous is taken instead")
                layout = "contiguous"
                results, buffers, wrong = compute(case, x.contiguous(), dy.contiguous(), values, parameter_dtype)
                assert not wrong
            name = str(len(listed))
            tensors = {"x": x, "dy": dy, **values, **results, **buffers}
            entry = {**case, "layout": layout, "dtype": variant}
            entry["tensors"] = {key: writer.put(f"{name}/{key}", t) for key, t in tensors.items()}
            listed.append(entry)
    path = pathlib.Path(__file__).with_name("norms.safetensors")
    # Names that are not shared are those of the case, so they need not be listed.
    for i, entry in enumerate(listed):
        entry["shared"] = {k: n for k, n in entry["tensors"].items() if n != f"{i}/{k}"}
        entry["tensors"] = list(entry["tensors"])
    writer.write(path, {"cases": json.dumps(listed, separators=(",", ":")), "python": platform.python_version(),
                        "torch": torch.__version__, "numpy": numpy.__version__, "threads": str(torch.get_num_threads())})
    counts = {}
    for entry in listed:
        counts[entry["kind"]] = counts.get(entry["kind"], 0) + 1
    print(f"{path.name}: {len(listed)} cases, {path.stat().st_size} bytes, {counts}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
