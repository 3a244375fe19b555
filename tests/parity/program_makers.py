"""Makes random programs of public ops: make_program(seed, number, steps). The form stands in tests/parity/program.h.

PyTorch runs along, so that every step fits the sizes it is given and values stay in a range where numbers can be
compared.
"""
import math
import random

import torch

import torch_programs

BIG = 100.0
KEEPS_STRIDES = {
    "add", "sub", "mul", "div", "maximum", "add_number", "mul_number", "where", "neg", "exp", "log", "sqrt", "rsqrt",
    "pow_number", "abs", "tanh", "sigmoid", "erf", "relu", "silu", "gelu", "gelu_tanh", "clamp", "to", "detach", "add_",
    "sub_", "mul_", "div_", "relu_", "neg_", "exp_", "clamp_", "view", "permute", "transpose", "expand", "slice",
    "select", "unsqueeze", "squeeze", "clone", "contiguous"}


def strides_follow_pytorch(program):
    """Whether the strides of the results are PyTorch's too: those of views and pointwise ops are."""
    return all(s["op"] in KEEPS_STRIDES for s in program["steps"])


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.inputs, self.steps, self.variables = [], [], []

    # --- choosing ------------------------------------------------------------------------------------------------

    def floats(self, condition=lambda x: True):
        """Numbers of floating variables; late ones more often."""
        return [i for i, x in enumerate(self.variables) if x.dtype.is_floating_point and condition(x)]

    def pick(self, condition=lambda x: True):
        found = self.floats(condition)
        if not found:
            return None
        return found[-1] if self.rng.random() < 0.5 else self.rng.choice(found)

    def new_input(self, sizes, dtype, layout=None, grad=None, values=None):
        count = math.prod(sizes)
        if values is None:
            values = [round(self.rng.gauss(0, 1), 6) for _ in range(count)]
            if self.rng.random() < 0.1:  # ties and zeros
                values = [float(round(v)) for v in values]
        if layout is None:
            layout = self.rng.choice(["contiguous"] * 3 + ["reversed", "gapped"]
                                     + (["channels_last"] * 3 if len(sizes) == 4 else []))
        grad = self.rng.random() < 0.8 if grad is None else grad
        x = {"sizes": list(sizes), "dtype": dtype, "layout": layout, "grad": grad, "values": values}
        self.inputs.append(x)
        return x

    def operand(self, i):
        """A second operand for variable i: of the same sizes, or sizes that broadcast, made of i itself or not."""
        sizes = self.variables[i].shape

        def fits(x):
            return x.dim() <= len(sizes) and all(a in (1, b) for a, b in zip(reversed(x.shape), reversed(sizes)))

        return self.pick(lambda x: fits(x) and self.rng.random() < 0.9)

    def parameter(self, count, like):
        """A variable of (count): there already, or None."""
        return self.pick(lambda x: x.shape == (count,) and x.dtype == like.dtype)

    # --- steps ---------------------------------------------------------------------------------------------------

    def add(self, op, *args, **options):
        """Runs a step and keeps it if PyTorch takes it and its values stay small. True iff it was kept."""
        step = {"op": op, "args": list(args), **options}
        changes = op.endswith("_")
        before = self.variables[args[0]].detach().clone() if changes else None
        try:
            if changes:
                torch_programs.apply({**step, "op": op}, [x.detach().clone() if x is not None else None
                                                          for x in self.variables])
            with torch.no_grad():
                y = torch_programs.apply(step, self.variables)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        good = y.numel() <= 400 and bool(y.isfinite().all()) and (y.numel() == 0 or y.abs().max() < BIG)
        if not good:
            if changes:
                with torch.no_grad():
                    self.variables[args[0]].copy_(before)
            return False
        self.steps.append(step)
        self.variables.append(y)
        return True

    def last(self):
        return len(self.variables) - 1

    def positive(self, i):
        """Steps that make variable i positive."""
        return self.add("abs", i) and self.add("add_number", self.last(), number=0.5)

    def step(self):
        makers = [self.unary] * 4 + [self.binary] * 5 + [self.in_place] * 4 + [self.shape] * 7 + [self.copying] * 2 + [
            self.joining, self.reduction, self.reduction, self.product, self.attention, self.image, self.image, self.loss, self.norm,
            self.norm, self.norm]
        return self.rng.choice(makers)()

    def unary(self):
        i = self.pick()
        op = self.rng.choice(["neg", "exp", "log", "sqrt", "rsqrt", "pow_number", "abs", "tanh", "sigmoid", "erf", "relu",
                              "silu", "gelu", "gelu_tanh", "clamp", "add_number", "mul_number", "detach", "to"])
        if op in ("log", "sqrt", "rsqrt", "pow_number"):
            if not self.positive(i):
                return False
            i = self.last()
        options = {"pow_number": {"number": self.rng.choice([2.0, 3.0, 0.5, -1.5])},
                   "clamp": {"low": -0.75, "high": self.rng.choice([0.5, 1.25])},
                   "add_number": {"number": round(self.rng.gauss(0, 1), 3)},
                   "mul_number": {"number": round(self.rng.gauss(0, 2), 3)},
                   "to": {"dtype": self.rng.choice(["float64", "float32"])}}
        return self.add(op, i, **options.get(op, {}))

    def binary(self):
        i = self.pick()
        j = self.operand(i)
        if j is None:
            return False
        op = self.rng.choice(["add", "sub", "mul", "mul", "mul", "div", "maximum", "where", "pow"])
        if op == "pow":
            return self.positive(i) and self.add(op, self.last(), j)
        if op == "div":
            if not self.positive(j):
                return False
            j = self.last()
        if op == "where":
            return self.add(op, i, j, j, i)
        return self.add(op, *self.rng.sample([i, j], 2))

    def in_place(self):
        # Whether these copy depends on strides, which need not be PyTorch's behind a norm, say.
        perhaps_views = {v for k, s in enumerate(self.steps, len(self.inputs))
                         if s["op"] in ("contiguous", "reshape", "flatten") for v in (k, s["args"][0])}

        def can_change(i):
            return i not in perhaps_views and (i >= len(self.inputs) or not self.inputs[i]["grad"])

        found = [i for i in self.floats() if can_change(i)]
        if not found:
            return False
        i = self.rng.choice(found)
        op = self.rng.choice(["add_", "add_", "sub_", "mul_", "mul_", "div_", "relu_", "neg_", "exp_", "clamp_"])
        if op in ("add_", "sub_", "mul_", "div_"):
            j = self.operand(i)
            if j is None:
                return False
            if op == "div_":
                if not self.positive(j):
                    return False
                j = self.last()
            return self.add(op, i, j)
        return self.add(op, i, **({"low": -0.75, "high": 0.5} if op == "clamp_" else {}))

    def shape(self):
        i = self.pick(lambda x: x.dim() > 0)
        if i is None:
            return False
        x, rng = self.variables[i], self.rng
        axis = rng.randrange(x.dim())
        op = rng.choice(["view", "reshape", "flatten", "permute", "transpose", "expand", "slice", "select", "unsqueeze",
                         "squeeze"])
        if op in ("view", "reshape"):
            sizes = [n for n in x.shape if n != 1] or [1]
            if len(sizes) > 1 and rng.random() < 0.6:
                at = rng.randrange(len(sizes) - 1)
                sizes[at:at + 2] = [sizes[at] * sizes[at + 1]]
            elif sizes[-1] % 2 == 0:
                sizes[-1:] = [sizes[-1] // 2, 2]
            return self.add(op, i, sizes=sizes)
        options = {
            "flatten": {"start": min(axis, x.dim() - 1), "end": rng.randrange(axis, x.dim())},
            "permute": {"order": rng.sample(range(x.dim()), x.dim())},
            "transpose": {"a": axis, "b": rng.randrange(x.dim())},
            "expand": {"sizes": [rng.choice([1, 2, 3])] * rng.randrange(2)
                       + [rng.choice([1, 2, 3]) if n == 1 else n for n in x.shape]},
            "slice": {"axis": axis, "start": rng.randrange(x.shape[axis] + 1), "end": x.shape[axis] + 1,
                      "step": rng.choice([1, 1, 2])},
            "select": {"axis": axis, "index": rng.randrange(max(1, x.shape[axis]))},
            "unsqueeze": {"axis": rng.randrange(x.dim() + 1)},
            "squeeze": {"axis": axis}}
        return self.add(op, i, **options[op])

    def copying(self):
        i = self.pick()
        op = self.rng.choice(["clone", "contiguous"])
        formats = ["contiguous"] + (["preserve"] if op == "clone" else [])
        if self.variables[i].dim() == 4:
            formats += ["channels_last"] * 2
        return self.add(op, i, format=self.rng.choice(formats))

    def joining(self):
        i = self.pick(lambda x: x.dim() > 0)
        if i is None:
            return False
        x, rng = self.variables[i], self.rng
        axis = rng.randrange(x.dim())
        op = rng.choice(["cat", "stack", "pad", "pad_mode", "index_select"])
        if op == "pad_mode":
            if not 3 <= x.dim() <= 5:
                return False
            mode, inner = rng.choice(["reflect", "replicate", "circular"]), x.dim() - 2
            return self.add(op, i, before=[0, 0] + [rng.choice([0, 1, 2]) for _ in range(inner)],
                            after=[0, 0] + [rng.choice([0, 1, -1]) for _ in range(inner)], mode=mode)
        if op == "pad":
            return self.add(op, i, before=[rng.choice([0, 0, 1, 2, -1]) for _ in x.shape],
                            after=[rng.choice([0, 0, 1, -1]) for _ in x.shape], value=rng.choice([0.0, 0.5]))
        if op == "index_select":
            size = x.shape[axis]
            return size > 0 and self.add(op, i, axis=axis, index=[rng.randrange(size) for _ in range(rng.choice([1, 3]))])
        j = self.pick(lambda y: y.shape == x.shape and y.dtype == x.dtype)
        return self.add(op, i, j, axis=axis)

    def reduction(self):
        i = self.pick()
        x, rng = self.variables[i], self.rng
        axes = sorted(rng.sample(range(x.dim()), rng.randint(1, x.dim()))) if x.dim() else []
        op = rng.choice(["sum", "mean", "var", "max", "prod", "max_along"])
        if op == "max_along":
            return x.dim() > 0 and self.add(op, i, axis=rng.randrange(x.dim()), keepdim=rng.random() < 0.5)
        options = {"axes": axes, "keepdim": rng.random() < 0.5}
        if op == "var":
            options["correction"] = rng.choice([0, 1])
            if math.prod(x.shape[a] for a in axes) <= 1:
                return False
        return self.add(op, i, **options)

    def product(self):
        i = self.pick(lambda x: x.dim() >= 1)
        if i is None:
            return False
        x, rng = self.variables[i], self.rng
        if rng.random() < 0.6 or x.dim() < 2:
            j = self.pick(lambda y: y.dim() >= 1 and y.shape[-2:][0] == x.shape[-1] and y.dtype == x.dtype)
            if j is None and x.dim() < 2:
                return False
            if j is None:  # x times itself, turned
                return self.add("transpose", i, a=x.dim() - 1, b=x.dim() - 2) and self.add("matmul", i, self.last())
            return self.add("matmul", i, j)
        weight = self.pick(lambda y: y.dim() == 2 and y.shape[1] == x.shape[-1] and y.dtype == x.dtype)
        if weight is None:
            return False
        bias = self.parameter(self.variables[weight].shape[0], x) if rng.random() < 0.7 else None
        return self.add("linear", i, weight, bias)

    def attention(self):
        q = self.pick(lambda x: x.dim() == 4 and x.numel() > 0)
        if q is None:
            return False
        x, rng = self.variables[q], self.rng
        k = self.pick(lambda y: y.dim() == 4 and y.shape[:2] == x.shape[:2] and y.shape[3] == x.shape[3]
                      and y.shape[2] > 0 and y.dtype == x.dtype)
        keys = self.variables[k].shape[2]
        v = self.pick(lambda y: y.dim() == 4 and y.shape[:3] == (*x.shape[:2], keys) and y.dtype == x.dtype)
        sizes = (*x.shape[:3], keys)
        mask = self.pick(lambda y: 2 <= y.dim() <= 4 and y.dtype == x.dtype
                         and all(a in (1, b) for a, b in zip(reversed(y.shape), reversed(sizes))))
        mask = mask if rng.random() < 0.5 else None
        return self.add("scaled_dot_product_attention", q, k, v, mask, scale=rng.choice([0.3, 1.0, -0.7]),
                        causal=mask is None and rng.random() < 0.4)

    def image(self):
        i = self.pick(lambda x: x.dim() == 4 and x.numel() > 0)
        if i is None:
            return False
        x, rng = self.variables[i], self.rng
        op = rng.choice(["conv2d", "conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"])
        if op == "conv2d":
            weight = self.pick(lambda y: y.dim() == 4 and y.shape[1] in (1, x.shape[1]) and y.dtype == x.dtype)
            if weight is None:
                return False
            out, own = self.variables[weight].shape[:2]
            groups = x.shape[1] if own == 1 and out % x.shape[1] == 0 else 1
            bias = self.parameter(out, x) if rng.random() < 0.6 else None
            return self.add(op, i, weight, bias, stride=rng.choice([[1, 1], [2, 2], [1, 2]]),
                            padding=rng.choice([[0, 0], [1, 1], [2, 1]]), dilation=rng.choice([[1, 1], [1, 2]]),
                            groups=groups)
        if op == "adaptive_avg_pool2d":
            return self.add(op, i, output=rng.choice([[1, 1], [2, 3]]))
        kernel = rng.choice([[2, 2], [3, 3], [3, 2]])
        options = {"kernel": kernel, "stride": rng.choice([[1, 1], [2, 2], kernel]),
                   "padding": rng.choice([[0, 0], [1, 1]]), "ceil_mode": rng.random() < 0.3}
        if op == "avg_pool2d":
            options["exclude_pad"] = rng.random() < 0.5
            options["divisor_override"] = rng.choice([0, 0, 3])
        else:
            options["dilation"] = rng.choice([1, 1, 2])
        return self.add(op, i, **options)

    def loss(self):
        rng = self.rng
        op = rng.choice(["softmax", "log_softmax", "cross_entropy"])
        if op == "cross_entropy":
            i = self.pick(lambda x: x.dim() == 2 and x.shape[0] > 0)
            if i is None:
                return False
            rows, classes = self.variables[i].shape
            target = [j for j, y in enumerate(self.variables) if y.dtype == torch.int64 and y.shape == (rows,)
                      and y.max() < classes]
            if not target:
                return False
            weight = self.parameter(self.variables[i].shape[1], self.variables[i])
            if weight is not None:
                weight = self.last() if self.positive(weight) else None
            return self.add(op, i, target[0], weight, label_smoothing=rng.choice([0.0, 0.1]),
                            ignore_index=rng.choice([-100, 0]), mean=rng.random() < 0.5)
        i = self.pick(lambda x: x.dim() > 0)
        return i is not None and self.add(op, i, axis=rng.randrange(self.variables[i].dim()))

    def norm(self):
        i = self.pick(lambda x: x.dim() >= 2 and x.numel() > 1)
        if i is None:
            return False
        x, rng = self.variables[i], self.rng
        op = rng.choice(["batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm",
                         "dynamic_tanh", "dynamic_erf", "seed_norm", "global_response_norm"])
        c = x.shape[1]
        if op in ("layer_norm", "rms_norm"):
            sizes = list(x.shape[rng.randrange(1, x.dim()):])
            weight = self.pick(lambda y: list(y.shape) == sizes and y.dtype == x.dtype) if rng.random() < 0.8 else None
            if op == "rms_norm":
                return self.add(op, i, weight, sizes=sizes)
            bias = self.pick(lambda y: list(y.shape) == sizes and y.dtype == x.dtype) if weight is not None else None
            return self.add(op, i, weight, bias, sizes=sizes)
        if op == "local_response_norm":
            return x.dim() >= 3 and self.add(op, i, size=rng.choice([2, 3]))
        weight, bias = self.parameter(c, x), self.parameter(c, x)
        if op in ("dynamic_tanh", "dynamic_erf", "seed_norm", "global_response_norm"):
            if weight is None:
                if not self.add("mean", i, axes=[a for a in range(x.dim()) if a != 1], keepdim=False):
                    return False
                weight = bias = self.last()
            if op == "global_response_norm":  # without maps of zeros, where a root has no second derivative
                if not 3 <= x.dim() <= 5 or x.flatten(2).abs().amax(2).min() == 0:
                    return False
                return self.add(op, i, weight, bias)
            if op == "seed_norm":
                return self.add(op, i, weight, bias, weight)
            alpha = self.pick(lambda y: y.shape in ((1,), ()) and y.dtype == x.dtype)
            if alpha is None:
                if not self.add("mean", i, axes=list(range(x.dim())), keepdim=False):
                    return False
                alpha = self.last()
            return self.add(op, i, alpha, *([alpha] if op == "dynamic_erf" else []), weight, bias)
        if weight is None or rng.random() < 0.2:
            weight = bias = None
        if op == "group_norm":
            return self.add(op, i, weight, bias, groups=rng.choice([g for g in (1, 2, 3) if c % g == 0]))
        if op == "instance_norm" and not 3 <= x.dim() <= 5:
            return False
        return x.dim() <= 5 and self.add(op, i, weight, bias)


def make_program(seed, number, steps):
    rng = random.Random(f"{seed}/{number}")
    maker = Maker(rng)
    dtype = "float32" if rng.random() < 0.2 else "float64"
    n, c, h, w = rng.choice([1, 2, 3]), rng.choice([2, 3, 4]), rng.choice([1, 2, 3, 5]), rng.choice([1, 3, 4])
    kinds = [[n, c, h, w], [n, c, h, w], [c], [c], [n, c], [n, c, h], [w], [1], [3, c, 2, 2], [c, 1, 3, 3], [4, w], []]
    for sizes in rng.sample(kinds, rng.randint(2, 5)):
        maker.new_input(sizes, dtype)
    if not any(x["grad"] for x in maker.inputs):
        maker.inputs[0]["grad"] = True
    if rng.random() < 0.3:
        maker.new_input([n, c], dtype)
        maker.new_input([n], "int64", layout="contiguous", grad=False, values=[float(rng.randrange(c)) for _ in range(n)])
    program = {"inputs": maker.inputs, "steps": maker.steps, "outputs": [], "order": rng.choice([1, 2, 2])}
    maker.variables = [x.detach() for x in torch_programs.make_inputs(program)]
    wanted = rng.randint(1, steps)
    for _ in range(4 * steps):
        if len(maker.steps) >= wanted:
            break
        maker.step()
    late = [i for i in maker.floats() if i >= len(maker.inputs)] or maker.floats()
    program["outputs"] = sorted({late[-1], rng.choice(late)})
    return program
