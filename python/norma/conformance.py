"""Whether a norm of any framework is right: python -m norma.conformance torch.nn.functional.group_norm

Ordinary inputs and such as are hard for a norm, those of `norma audit`, with results in extended precision, for any
callable: of PyTorch, of JAX, of NumPy, of Norma, or your own. A callable of your own takes (x, weight, bias, eps), for group norm also num_groups, as arrays
of the framework; its gradients are asked of the framework. A class of torch modules is made with the channels (layer and
rms: with x.shape[1:]) and eps.

The last line is the verdict. The exit code is 1 where the formula is wrong on ordinary inputs, or the callable raises;
with --strict also where digits are lost on hard ones.
"""

import argparse
import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import norma
from norma import _norma

NORMS = ["batch", "layer", "layer2d", "group", "instance", "rms", "rms2d"]
RESULTS = ["output", "dx", "dweight", "dbias"]
# The largest error, in steps of the dtype, that rounding of a careful implementation explains.
LIMIT = 64
DTYPES = ["float64", "float32", "float16", "bfloat16"]

# What is lost on inputs that are hard, by how the names of the cases begin. All others are ordinary.
HARD = {"digits lost where the mean is large": ("offset_1e", "constant", "one_el", "rand_", "two_", "randn_"),
        "lost where squares leave the dtype": ("underflow", "huge_"),
        "numbers where NaN or infinity should be": ("nan", "inf")}

Call = Callable[..., Any]


@dataclass
class Verdict:
    """What one input has shown."""

    norm: str  # a spec, as for every command of Norma: "group:4"
    case: str
    dtype: str
    layout: str
    errors: dict[str, float]  # in steps of the dtype; infinite for NaN and infinity where the truth is finite
    findings: list[str]  # empty: as it should be

    @property
    def passed(self) -> bool:
        return not self.findings

    @property
    def raised(self) -> bool:
        return not self.errors

    @property
    def lost(self) -> str:
        """A key of HARD; "" for an ordinary input."""
        return next((text for text, names in HARD.items() if self.case.startswith(names)), "")


class Torch:
    """Arrays and gradients of PyTorch."""

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")

    def array(self, x: norma.Tensor) -> Any:
        return self.torch.from_dlpack(x).clone().requires_grad_()

    def arranged(self, x: Any, weight: Any, layout: str) -> tuple[Any, Any]:
        if "channels_last" in layout:
            x = x.detach().contiguous(memory_format=self.torch.channels_last).requires_grad_()
        if "weight with gaps" in layout:
            gaps = self.torch.stack([weight.detach(), self.torch.full_like(weight, 7)], -1)
            weight = gaps[..., 0].requires_grad_()
        return x, weight

    def results(self, call: Call, arrays: list[Any], dy: norma.Tensor) -> tuple[norma.Tensor, list[Any]]:
        output = call(*arrays)
        wanted = [a for a in arrays if a is not None]
        if not output.requires_grad:
            return norma.from_dlpack(output.detach()), [None] * len(arrays)
        found = self.torch.autograd.grad(output, wanted, self.torch.from_dlpack(dy), allow_unused=True)
        by_array = iter(found)
        gradients = [None if a is None else next(by_array) for a in arrays]
        return (norma.from_dlpack(output.detach().contiguous()),
                [None if g is None else norma.from_dlpack(g.detach().contiguous()) for g in gradients])


class Jax:
    """Arrays and gradients of JAX."""

    def __init__(self) -> None:
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_enable_x64", True)

    def array(self, x: norma.Tensor) -> Any:
        return self.jax.numpy.array(self.jax.dlpack.from_dlpack(x.contiguous()), copy=True)

    def arranged(self, x: Any, weight: Any, layout: str) -> tuple[Any, Any]:
        return x, weight

    def results(self, call: Call, arrays: list[Any], dy: norma.Tensor) -> tuple[norma.Tensor, list[Any]]:
        output, back = self.jax.vjp(call, *arrays)
        return norma.tensor(output), [None if g is None else norma.tensor(g) for g in back(self.array(dy))]


class Numpy:
    """Arrays of NumPy. The callable returns the output, or (output, dx, dweight, dbias) if it takes dy as well."""

    def array(self, x: norma.Tensor) -> Any:
        return x.numpy().copy()

    def arranged(self, x: Any, weight: Any, layout: str) -> tuple[Any, Any]:
        return x, weight

    def results(self, call: Call, arrays: list[Any], dy: norma.Tensor) -> tuple[norma.Tensor, list[Any]]:
        results = call(*arrays, dy.numpy().copy())
        return norma.tensor(results[0]), [None if g is None else norma.tensor(g) for g in results[1:]]


class Norma:
    """Tensors and gradients of Norma."""

    def array(self, x: norma.Tensor) -> Any:
        return x.detach().requires_grad_()

    def arranged(self, x: Any, weight: Any, layout: str) -> tuple[Any, Any]:
        return x, weight

    def results(self, call: Call, arrays: list[Any], dy: norma.Tensor) -> tuple[norma.Tensor, list[Any]]:
        output = call(*arrays)
        if not output.requires_grad:
            return output, [None] * len(arrays)
        by_array = iter(norma.grad(output, [a for a in arrays if a is not None], dy))
        return output.detach(), [None if a is None else next(by_array) for a in arrays]


FRAMEWORKS: dict[str, Callable[[], Torch | Jax | Numpy | Norma]] = {
    "torch": Torch, "jax": Jax, "numpy": Numpy, "norma": Norma}


def _module_call(made: Callable[..., Any], norm: str, case: Any) -> Call:
    """A class of torch modules as a function of x, weight and bias."""
    shape = list(case.x.shape[1:])
    sizes = {"layer": [shape], "rms": [shape], "group": [case.groups, shape[0]]}.get(norm.split(":")[0], [shape[0]])
    affine = {"affine": True} if "affine" in inspect.signature(made).parameters else {}
    layer = made(*sizes, eps=case.eps, **affine)

    def call(x: Any, w: Any, b: Any) -> Any:
        tensors = dict(layer.to(x.dtype).named_buffers()) | {"weight": w} | ({} if b is None else {"bias": b})
        return importlib.import_module("torch").func.functional_call(layer, tensors, (x,), strict=True)
    return call


def _call_of(function: Call, norm: str, name: str, case: Any) -> Call:
    """How norms take their arguments: classes of modules, functions of torch.nn.functional and of Norma by name, others."""
    if inspect.isclass(function):
        return _module_call(function, norm, case)
    shape, eps = list(case.x.shape[1:]), case.eps
    options = {"num_groups": case.groups} if norm.startswith("group") else {}
    calls: dict[str, Call] = {
        "group_norm": lambda x, w, b: function(x, case.groups, w, b, eps=eps),
        "layer_norm": lambda x, w, b: function(x, shape, w, b, eps=eps),
        "layer_norm_2d": lambda x, w, b: function(x, w, b, eps=eps),
        "rms_norm": lambda x, w, b: function(x, shape, w, eps=eps),
        "rms_norm_2d": lambda x, w, b: function(x, w, eps=eps),
        "instance_norm": lambda x, w, b: function(x, weight=w, bias=b, eps=eps),
        "batch_norm": lambda x, w, b: function(x, None, None, w, b, training=True, eps=eps)}
    return calls.get(name, lambda x, w, b, *dy: function(x, w, b, eps, *dy, **options))


def _findings(case: Any, output: norma.Tensor, gradients: list[Any], errors: dict[str, float]) -> list[str]:
    """What is wrong, by name where the name is known."""
    expected = case.expected()
    found = dict(zip(RESULTS, [output, *gradients], strict=True))
    if all(found[name] is not None and errors[name] <= LIMIT for name in expected):
        return []
    faulty = case.faulty()

    def distance(value: norma.Tensor, truth: norma.Tensor) -> float:
        return (value.to(norma.float64) - truth).abs().max().item()

    def is_like(name: str, truth: norma.Tensor) -> bool:
        return distance(found[name], truth) <= 1e-3 * max(truth.abs().max().item(), 1e-300)

    texts = []
    for name in [r for r in RESULTS if r in expected]:
        if found[name] is None:
            texts.append(f"{name} is missing")
            continue
        if errors[name] <= LIMIT:
            continue
        other = {"dweight": "dbias", "dbias": "dweight"}.get(name, "")
        if name == "output":
            far = distance(output, expected[name]) / 20
            texts += [f"{name} is off by {errors[name]:.3g} steps"] + [
                text.removeprefix("output: ") for text, y in faulty.items() if text != "dx" and distance(output, y) < far]
        elif other in expected and is_like(name, expected[other]):
            texts.append(f"{name} is what {other} should be")
        elif is_like(name, expected[name] * -1):
            texts.append(f"{name} has the wrong sign")
        elif found[name].abs().max().item() == 0:
            texts.append(f"{name} is 0 everywhere")
        elif name == "dx" and is_like(name, faulty[name]):
            texts.append("dx lacks the terms of the mean and the variance")
        else:
            texts.append(f"{name} is off by {errors[name]:.3g} steps")
    return texts


def check(function: Call, norm: str, *, framework: str = "torch", name: str = "",
          dtypes: tuple[str, ...] = ("float32", "float64"), cases: tuple[str, ...] = (),
          num_groups: int = 4) -> Iterator[Verdict]:
    """A verdict for each input of `norm`, a name of NORMS or group:G; of some `cases`, by name.

    `name` is that of a function of torch.nn.functional or Norma, whose arguments are known; "": the callable takes
    (x, weight, bias, eps), or is a class of torch modules.
    """
    arrays_of = FRAMEWORKS[framework]()
    for dtype in dtypes:
        for case in _norma._conformance_cases(norm, getattr(norma, dtype), list(cases), num_groups):
            layouts = ["contiguous"]
            if framework == "torch":
                layouts += ["weight with gaps"] + (
                    ["channels_last", "channels_last, weight with gaps"] if case.x.ndim == 4 else [])
            for layout in layouts:
                x, weight = arrays_of.arranged(arrays_of.array(case.x), arrays_of.array(case.weight), layout)
                bias = None if case.bias is None else arrays_of.array(case.bias)
                try:
                    call = _call_of(function, norm, name, case)
                    output, gradients = arrays_of.results(call, [x, weight, bias], case.dy)
                except Exception as error:  # noqa: BLE001  the callable is somebody's: what it raises is a finding
                    text = " ".join(str(error).split())
                    yield Verdict(case.norm, case.name, dtype, layout, {}, [f"raises {type(error).__name__}: {text}"])
                    continue
                zero = norma.zeros_like
                filled: list[Any] = [g if g is not None else zero(t) if t is not None else None
                                     for g, t in zip(gradients, [case.x, case.weight, case.bias], strict=True)]
                errors = case.errors(output, *filled)
                yield Verdict(case.norm, case.name, dtype, layout, errors, _findings(case, output, gradients, errors))


def verdict_of(verdicts: list[Verdict]) -> tuple[bool, str]:
    """Whether the formula is right on ordinary inputs and nothing raises, and a line that says so and what is lost."""
    def names(some: list[Verdict]) -> str:
        return ", ".join(dict.fromkeys(v.case for v in some))

    raised = [v for v in verdicts if v.raised]
    failed = [v for v in verdicts if not v.passed and not v.raised]
    wrong = [v for v in failed if not v.lost]
    texts = [f"{text}: {names([v for v in failed if v.lost == text])}" for text in HARD
             if any(v.lost == text for v in failed)]
    texts += [f"{finding}: {names([v for v in raised if finding in v.findings])}"
              for finding in dict.fromkeys(f for v in raised for f in v.findings)]
    formula = "formula right on ordinary inputs"
    if wrong:
        named = [f for v in wrong for f in v.findings if " is off by " not in f] or wrong[0].findings
        formula = f"formula WRONG on ordinary inputs ({names(wrong)}): {'; '.join(dict.fromkeys(named))}"
    elif all(v.lost for v in verdicts):
        formula = "no ordinary input was tried"
    elif any(v.raised and not v.lost for v in verdicts):
        formula = "formula not judged on all ordinary inputs"
    return not wrong and not raised, "; ".join([formula, *texts])


def save_cases(norm: str, dtype: str, filename: str) -> None:
    """The inputs of a norm and what is right for them, as a safetensors file: "constant/x", "constant/expected.dx"."""
    tensors: dict[str, norma.Tensor] = {}
    metadata = {}
    for case in _norma._conformance_cases(norm, getattr(norma, dtype), [], 4):
        for name in ["x", "weight", "bias", "dy"]:
            if getattr(case, name) is not None:
                tensors[f"{case.name}/{name}"] = getattr(case, name)
        for name, x in case.expected().items():
            tensors[f"{case.name}/expected.{name}"] = x
        metadata[case.name] = json.dumps(
            {"description": case.description, "eps": case.eps, "num_groups": case.groups})
    norma.save_file(tensors, filename, metadata)


def main(arguments: list[str] | None = None) -> int:
    known_cases = "\n".join(f"  {name:18} {text}" for name, text in _norma._conformance_case_names())
    parser = argparse.ArgumentParser(prog="python -m norma.conformance", description=__doc__,
                                     epilog=f"the cases:\n{known_cases}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("callable", nargs="?", help="module.function, or module.Class")
    parser.add_argument("--norm", metavar="NORM", help=f"{', '.join(NORMS)} or group:G; default: by the function's name")
    parser.add_argument("--framework", choices=list(FRAMEWORKS), help="default: by the module's name, else torch")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--cases", help="some of those below; default: all")
    parser.add_argument("--num-groups", type=int, default=4, help="of a group norm; default: 4")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for lost digits too")
    parser.add_argument("--json", action="store_true", help="print every verdict as JSON")
    parser.add_argument("--save", metavar="FILE", help="write the cases of --norm in the first of --dtypes, and end")
    options = parser.parse_args(arguments)
    dtypes = tuple(options.dtypes.split(","))
    if unknown := [d for d in dtypes if d not in DTYPES]:
        parser.error(f"--dtypes: expected some of {', '.join(DTYPES)}, got {unknown[0]}")
    if options.save:
        if not options.norm:
            parser.error("--save: expected --norm beside it")
        save_cases(options.norm, dtypes[0], options.save)
        return 0
    if not options.callable:
        parser.error("expected a callable, as torch.nn.functional.group_norm")
    module, _, name = options.callable.rpartition(".")
    sys.path.insert(0, "")
    function = getattr(importlib.import_module(module), name)
    stem = name.lower().replace("_", "").replace("norm", "")
    norm = options.norm or next((n for n in sorted(NORMS, key=len, reverse=True) if stem.startswith(n)), "")
    if norm not in NORMS and not norm.startswith("group:"):
        parser.error(f"--norm: expected one of {', '.join(NORMS)}, group:G, got {norm}" if norm else
                     f"{name}: say which norm it is: --norm {'|'.join(NORMS)}")
    top = module.split(".")[0]
    framework = options.framework or (top if top in FRAMEWORKS else "jax" if top == "flax" else "torch")
    known = name if module in ("torch.nn.functional", "norma") else ""
    try:
        verdicts = list(check(function, norm, framework=framework, name=known, dtypes=dtypes,
                              cases=tuple(options.cases.split(",")) if options.cases else (),
                              num_groups=options.num_groups))
    except norma.Error as error:  # an unknown case, or no positive number of groups
        parser.error(str(error))
    right, text = verdict_of(verdicts)
    if options.json:
        print(json.dumps([asdict(v) for v in verdicts], indent=1))
    elif len(everywhere := {f for v in verdicts for f in v.findings}) == 1 and not any(v.errors for v in verdicts):
        print(f"{options.callable} {everywhere.pop()} (all {len(verdicts)} inputs)")
    else:
        _print(verdicts)
        print(text)
    return 0 if right and not (options.strict and any(not v.passed for v in verdicts)) else 1


def _print(verdicts: list[Verdict]) -> None:
    print(f"{'input':22} {'dtype':9} {'layout':31} " + " ".join(f"{r:>9}" for r in RESULTS) + "   in steps of the dtype")
    for v in verdicts:
        numbers = " ".join(f"{v.errors[r]:9.2g}" if r in v.errors else f"{'-':>9}" for r in RESULTS)
        print(f"{v.case:22} {v.dtype:9} {v.layout:31} {numbers}   {'; '.join(v.findings)}")
    shown = {v.case for v in verdicts if not v.passed}
    for name, description in _norma._conformance_case_names():
        if name in shown:
            print(f"{name}: {description}")
    worst = max((e for v in verdicts if v.passed for e in v.errors.values() if math.isfinite(e)), default=0.0)
    print(f"{sum(v.passed for v in verdicts)} of {len(verdicts)} inputs are within {LIMIT} steps; "
          f"the worst of them is {worst:.2g} off")


if __name__ == "__main__":
    sys.exit(main())
