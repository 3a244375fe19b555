"""What each op of a random program means in PyTorch: run(program) gives what `run_programs` gives for it.

The form of a program stands in tests/parity/program.h.
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"float64": torch.float64, "float32": torch.float32, "int64": torch.int64}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last,
           "preserve": torch.preserve_format}


def laid_out(x, layout):
    if layout == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "reversed":
        order = list(range(x.dim()))[::-1]
        return x.permute(order).contiguous().permute(order)
    if layout == "gapped":
        wide = torch.zeros(*x.shape, 2, dtype=x.dtype)
        wide[..., 0] = x
        return wide[..., 0]
    return x


def numbers(x):
    return [v if math.isfinite(v) else "nan" if math.isnan(v) else "inf" if v > 0 else "-inf"
            for v in x.detach().double().reshape(-1).tolist()]


def padded(x, before, after, mode="constant", value=None):
    amounts = [n for pair in reversed(list(zip(before, after))) for n in pair]
    if mode == "constant":
        return F.pad(x, amounts, value=value)
    return F.pad(x, amounts[:2 * (x.dim() - 2)], mode=mode)  # images and channels are not padded



def prod(x, axes, keepdim):
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keepdim)
    return x


def attention(q, k, v, mask, causal, scale):
    """By plain ops: the fused ones have no second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)


def batch_norm(x, weight, bias):
    # PyTorch 2.15's gradient contradicts itself for weights with gaps (x of rank 2), for x whose strides fit two formats,
    # and for a gradient in another format than x.
    x, weight, bias = (None if p is None else p.contiguous() for p in (x, weight, bias))
    y = F.batch_norm(x, None, None, weight, bias, training=True)
    if y.requires_grad:
        y.register_hook(lambda dy: dy.contiguous())
    return y


def dynamic_tanh(x, alpha, weight, bias):
    along = [1, -1] + [1] * (x.dim() - 2)
    return torch.tanh(alpha * x) * weight.view(along) + bias.view(along)


def dynamic_erf(x, alpha, shift, weight, bias):
    along = [1, -1] + [1] * (x.dim() - 2)
    return torch.erf(alpha * x + shift) * weight.view(along) + bias.view(along)


def seed_norm(x, weight, alpha, beta):
    weight, alpha, beta = (p.view([1, -1] + [1] * (x.dim() - 2)) for p in (weight, alpha, beta))
    scale = weight + torch.tanh((x * beta).sum(1, keepdim=True)) * alpha
    return scale * x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)


def global_response_norm(x, weight, bias):
    along = [1, -1] + [1] * (x.dim() - 2)
    g = torch.linalg.vector_norm(x, dim=list(range(2, x.dim())), keepdim=True)  # no gradient for a map of zeros
    n = g / (g.mean(1, keepdim=True) + 1e-6)
    return x + weight.view(along) * (x * n) + bias.view(along)


# name: f(arguments, options of the step)
OPS = {
    "add": lambda a, s: a[0] + a[1],
    "sub": lambda a, s: a[0] - a[1],
    "mul": lambda a, s: a[0] * a[1],
    "div": lambda a, s: a[0] / a[1],
    "maximum": lambda a, s: torch.maximum(a[0], a[1]),
    "add_number": lambda a, s: a[0] + s["number"],
    "mul_number": lambda a, s: a[0] * s["number"],
    "where": lambda a, s: torch.where(a[0] > a[1], a[2], a[3]),
    "neg": lambda a, s: -a[0],
    "exp": lambda a, s: a[0].exp(),
    "log": lambda a, s: a[0].log(),
    "sqrt": lambda a, s: a[0].sqrt(),
    "rsqrt": lambda a, s: a[0].rsqrt(),
    "pow": lambda a, s: a[0].pow(a[1]),
    "pow_number": lambda a, s: a[0].pow(s["number"]),
    "abs": lambda a, s: a[0].abs(),
    "tanh": lambda a, s: a[0].tanh(),
    "sigmoid": lambda a, s: a[0].sigmoid(),
    "erf": lambda a, s: a[0].erf(),
    "relu": lambda a, s: a[0].relu(),
    "silu": lambda a, s: F.silu(a[0]),
    "gelu": lambda a, s: F.gelu(a[0]),
    "gelu_tanh": lambda a, s: F.gelu(a[0], approximate="tanh"),
    "clamp": lambda a, s: a[0].clamp(s["low"], s["high"]),
    "to": lambda a, s: a[0].to(DTYPES[s["dtype"]]),
    "detach": lambda a, s: a[0].detach(),
    "add_": lambda a, s: a[0].add_(a[1]),
    "sub_": lambda a, s: a[0].sub_(a[1]),
    "mul_": lambda a, s: a[0].mul_(a[1]),
    "div_": lambda a, s: a[0].div_(a[1]),
    "relu_": lambda a, s: a[0].relu_(),
    "neg_": lambda a, s: a[0].neg_(),
    "exp_": lambda a, s: a[0].exp_(),
    "clamp_": lambda a, s: a[0].clamp_(s["low"], s["high"]),
    "view": lambda a, s: a[0].view(s["sizes"]),
    "reshape": lambda a, s: a[0].reshape(s["sizes"]),
    "flatten": lambda a, s: a[0].flatten(s["start"], s["end"]),
    "permute": lambda a, s: a[0].permute(s["order"]),
    "transpose": lambda a, s: a[0].transpose(s["a"], s["b"]),
    "expand": lambda a, s: a[0].expand(s["sizes"]),
    "slice": lambda a, s: a[0][(slice(None),) * s["axis"] + (slice(s["start"], s["end"], s["step"]),)],
    "select": lambda a, s: a[0].select(s["axis"], s["index"]),
    "unsqueeze": lambda a, s: a[0].unsqueeze(s["axis"]),
    "squeeze": lambda a, s: a[0].squeeze(s["axis"]),
    "clone": lambda a, s: a[0].clone(memory_format=FORMATS[s["format"]]),
    "contiguous": lambda a, s: a[0].contiguous(memory_format=FORMATS[s["format"]]),
    "cat": lambda a, s: torch.cat(a, s["axis"]),
    "stack": lambda a, s: torch.stack(a, s["axis"]),
    "pad": lambda a, s: padded(a[0], s["before"], s["after"], value=s["value"]),
    "pad_mode": lambda a, s: padded(a[0], s["before"], s["after"], s["mode"]),
    "index_select": lambda a, s: a[0].index_select(s["axis"], torch.tensor(s["index"])),
    "sum": lambda a, s: a[0].sum(s["axes"], keepdim=s["keepdim"]),
    "mean": lambda a, s: a[0].mean(s["axes"], keepdim=s["keepdim"]),
    "var": lambda a, s: a[0].var(s["axes"], correction=s["correction"], keepdim=s["keepdim"]),
    "max": lambda a, s: a[0].amax(s["axes"], keepdim=s["keepdim"]),
    "prod": lambda a, s: prod(a[0], s["axes"], s["keepdim"]),
    "max_along": lambda a, s: a[0].max(s["axis"], keepdim=s["keepdim"]).values,
    "matmul": lambda a, s: torch.matmul(a[0], a[1]),
    "linear": lambda a, s: F.linear(*a),
    "conv2d": lambda a, s: F.conv2d(*a, stride=s["stride"], padding=s["padding"], dilation=s["dilation"],
                                    groups=s["groups"]),
    "max_pool2d": lambda a, s: F.max_pool2d(a[0], s["kernel"], s["stride"], s["padding"], s["dilation"],
                                            ceil_mode=s["ceil_mode"]),
    "avg_pool2d": lambda a, s: F.avg_pool2d(a[0], s["kernel"], s["stride"], s["padding"], ceil_mode=s["ceil_mode"],
                                            count_include_pad=not s["exclude_pad"],
                                            divisor_override=s["divisor_override"] or None),
    "adaptive_avg_pool2d": lambda a, s: F.adaptive_avg_pool2d(a[0], s["output"]),
    "scaled_dot_product_attention": lambda a, s: attention(*a, s["causal"], s["scale"]),
    "softmax": lambda a, s: a[0].softmax(s["axis"]),
    "log_softmax": lambda a, s: a[0].log_softmax(s["axis"]),
    "cross_entropy": lambda a, s: F.cross_entropy(
        a[0], a[1], weight=None if a[2] is None else a[2].detach(), label_smoothing=s["label_smoothing"],
        ignore_index=s["ignore_index"], reduction="mean" if s["mean"] else "none"),
    "batch_norm": lambda a, s: batch_norm(*a),
    "layer_norm": lambda a, s: F.layer_norm(a[0], s["sizes"], a[1], a[2]),
    "group_norm": lambda a, s: F.group_norm(a[0], s["groups"], a[1], a[2]),
    "instance_norm": lambda a, s: F.instance_norm(a[0].contiguous(), weight=a[1], bias=a[2]),
    "rms_norm": lambda a, s: F.rms_norm(a[0], s["sizes"], a[1], 1e-5),
    "local_response_norm": lambda a, s: F.local_response_norm(a[0], s["size"]),
    "dynamic_tanh": lambda a, s: dynamic_tanh(*a),
    "dynamic_erf": lambda a, s: dynamic_erf(*a),
    "seed_norm": lambda a, s: seed_norm(*a),
    "global_response_norm": lambda a, s: global_response_norm(*a),
}


def make_inputs(program, dtype=None, noise=0.0):
    """The inputs as tensors; `dtype` in place of every floating one, with relative noise."""
    result = []
    for number, x in enumerate(program["inputs"]):
        own = DTYPES[x["dtype"]]
        values = torch.tensor(x["values"], dtype=torch.float64)
        if own.is_floating_point:
            values = values.to(own).double()
            if noise:
                shake = torch.randn(values.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
                values = values * (1 + noise * shake)
            own = dtype or own
        tensor = laid_out(values.reshape(x["sizes"]).to(own), x["layout"])
        result.append(tensor.detach().requires_grad_() if x["grad"] else tensor)
    return result


def apply(step, variables, dtype=None):
    args = [None if a is None else variables[a] for a in step["args"]]
    if dtype is not None and step["op"] == "to":  # a copy stays one
        return args[0].to(dtype, copy=step["dtype"] == "float32")
    return OPS[step["op"]](args, step)


def run(program, dtype=None, noise=0.0):
    """{"values", "strides"} as run_programs writes them, but with tensors for values; or {"error"}."""
    try:
        return run_or_raise(program, dtype, noise)
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
        return {"error": str(error).splitlines()[0]}


def run_or_raise(program, dtype, noise):
    variables = make_inputs(program, dtype, noise)
    leaves = {i: x for i, x in enumerate(variables) if x.requires_grad}
    for step in program["steps"]:
        variables.append(apply(step, variables, dtype))
    values, strides, loss = {}, {}, 0
    for number in program["outputs"]:
        y = variables[number]
        values[f"y.{number}"] = y.detach().clone()
        strides[f"y.{number}"] = list(y.stride())
        weights = torch.arange(y.numel(), dtype=torch.float64).cos().reshape(y.shape).to(y.dtype)
        loss = loss + (y * (y * 0.5 + 1) * weights).sum().double()
    result = {"values": values, "strides": strides}
    if not loss.requires_grad:
        return result

    def gradients(name, of, **options):
        found = torch.autograd.grad(of, list(leaves.values()), allow_unused=True, **options)
        for i, g in zip(leaves, found):
            if g is not None:
                values[f"{name}.{i}"] = g.detach().clone()
        return found

    twice = program["order"] == 2
    dx = gradients("dx", loss, retain_graph=True, create_graph=twice)
    squares = [(g * g).sum().double() for g in dx if g is not None and g.requires_grad] if twice else []
    if squares:
        second = sum(squares)
        gradients("ddx", second, retain_graph=True)
        gradients("ddx_create_graph", second, create_graph=True)
    return result
