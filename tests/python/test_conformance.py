"""The conformance kit finds what is wrong, and nothing where nothing is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import norma
from norma import conformance


@np.errstate(all="ignore")
def group_norm(x: Any, weight: Any, bias: Any, eps: float, dy: Any, num_groups: int,
               wide: Any = np.longdouble, fault: str = "") -> tuple[Any, ...]:
    """By the definition, in `wide` numbers, with a fault on demand."""
    n, c = x.shape[:2]
    a = x.astype(wide).reshape(n, num_groups, -1)
    a = a - a.mean(-1, keepdims=True)
    a = a - a.mean(-1, keepdims=True)  # what the rounding of the mean has left
    rstd = 1 / np.sqrt((a**2).mean(-1, keepdims=True) + wide(eps))
    xhat = a * rstd
    along = [1, c] + [1] * (x.ndim - 2)
    w = weight.astype(wide).reshape(along)
    y = xhat.reshape(x.shape) * w + bias.astype(wide).reshape(along)
    g = (dy.astype(wide) * w).reshape(a.shape)
    dx = rstd * (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True))
    axes = tuple(i for i in range(x.ndim) if i != 1)
    dweight = (dy.astype(wide) * xhat.reshape(x.shape)).sum(axes)
    dbias = dy.astype(wide).sum(axes)
    if fault == "swapped":
        dweight, dbias = dbias, dweight
    if fault == "missing":
        dbias = None
    if fault == "constant":
        dx = rstd * g
    if fault == "sign":
        dweight = -dweight
    if fault == "sample":
        narrower = np.sqrt((a**2).mean(-1, keepdims=True) * a.shape[-1] / (a.shape[-1] - 1) + wide(eps))
        y = (a / narrower).reshape(x.shape) * w + bias.astype(wide).reshape(along)
    if fault == "outside":
        root = 1 / rstd**2 - wide(eps)
        y = (a / (np.sqrt(np.maximum(root, 0)) + wide(eps))).reshape(x.shape) * w + bias.astype(wide).reshape(along)
    results = [y, dx.reshape(x.shape), dweight, dbias]
    return tuple(None if r is None else r.astype(x.dtype) for r in results)


def test_nothing_is_wrong_with_the_definition_in_wide_numbers() -> None:
    verdicts = list(conformance.check(group_norm, "group", framework="numpy"))
    assert len(verdicts) > 15 and {v.dtype for v in verdicts} == {"float32", "float64"}
    assert not [v for v in verdicts if not v.passed]


@pytest.mark.parametrize(("fault", "text"), [
    ("swapped", "dweight is what dbias should be"), ("missing", "dbias is missing"),
    ("constant", "dx lacks the terms of the mean and the variance"), ("sign", "dweight has the wrong sign"),
    ("sample", "the variance is that over n - 1"), ("outside", "eps stands outside the root")])
def test_faults_are_named(fault: str, text: str) -> None:
    def faulty(x: Any, weight: Any, bias: Any, eps: float, dy: Any, num_groups: int) -> Any:
        return group_norm(x, weight, bias, eps, dy, num_groups, fault=fault)

    verdicts = list(conformance.check(faulty, "group", framework="numpy", dtypes=("float64",)))
    assert any(text in v.findings for v in verdicts), verdicts[-1]
    right, line = conformance.verdict_of(verdicts)
    assert not right and line.startswith("formula WRONG on ordinary inputs (") and text in line


def test_what_the_callable_raises_is_a_finding() -> None:
    def raising(x: Any, *_: Any, **__: Any) -> Any:
        raise ValueError("no\nsuch thing")

    verdicts = list(conformance.check(raising, "layer", framework="numpy", dtypes=("float64",)))
    assert {tuple(v.findings) for v in verdicts} == {("raises ValueError: no such thing",)}


def test_float32_sums_are_found_out_by_large_means() -> None:
    @np.errstate(all="ignore")
    def narrow(x: Any, weight: Any, bias: Any, eps: float, dy: Any, num_groups: int) -> Any:
        x32 = x.astype(np.float32)
        square = (x32.reshape(*x.shape[:1], num_groups, -1) ** 2).mean(-1, keepdims=True)
        mean = x32.reshape(*x.shape[:1], num_groups, -1).mean(-1, keepdims=True)
        y = ((x32.reshape(mean.shape[0], num_groups, -1) - mean) / np.sqrt(np.maximum(square - mean**2, 0) + eps))
        _, *gradients = group_norm(x, weight, bias, eps, dy, num_groups)
        along = [1, x.shape[1]] + [1] * (x.ndim - 2)
        return (y.reshape(x.shape) * weight.reshape(along) + bias.reshape(along)).astype(x.dtype), *gradients

    right, line = conformance.verdict_of(list(conformance.check(narrow, "group", framework="numpy",
                                                                dtypes=("float32",))))
    assert right
    assert line.startswith("formula right on ordinary inputs; digits lost where the mean is large: offset_1e2, ")


def test_norma_itself_passes(tmp_path: Path) -> None:
    for norm in conformance.NORMS:
        for case in norma._norma._conformance_cases(norm, norma.float32, [], 4):
            assert set(case.expected()) <= set(conformance.RESULTS)
    conformance.save_cases("rms", "float32", str(tmp_path / "rms.safetensors"))
    stored = norma.load_file(str(tmp_path / "rms.safetensors"))
    assert stored["constant/x"].shape == stored["constant/expected.dx"].shape


def test_choice_of_cases_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = list(conformance.check(group_norm, "group", framework="numpy", dtypes=("float64",),
                                      cases=("offset_0", "underflow"), num_groups=32))
    assert [v.case for v in verdicts] == ["offset_0", "underflow"] and all(v.passed for v in verdicts)
    with pytest.raises(SystemExit):
        conformance.main(["test_conformance.group_norm", "--framework", "numpy", "--cases", "offset_2"])
    assert "unknown case 'offset_2'; did you mean" in capsys.readouterr().err
    eight = list(conformance.check(group_norm, "group:8", framework="numpy", dtypes=("float64",), cases=("offset_0",)))
    assert [v.norm for v in eight] == ["group:8"] and eight[0].passed
    with pytest.raises(SystemExit):
        conformance.main(["test_conformance.group_norm", "--norm", "grp"])
    assert "--norm: expected one of batch, layer, layer2d, group," in capsys.readouterr().err
    with pytest.raises(SystemExit):
        conformance.main(["--help"])
    assert "\n  underflow          N(0, 1) times 1e-25, eps 0: the squares" in capsys.readouterr().out


def raising(*_: Any) -> Any:
    raise ValueError("no\nsuch thing")


def test_what_is_the_same_for_all_inputs_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = conformance.main([f"{__name__}.raising", "--norm", "layer", "--framework", "numpy"])
    assert capsys.readouterr().out == f"{__name__}.raising raises ValueError: no such thing (all 35 inputs)\n"
    assert code == 1


@np.errstate(all="ignore")
def raising_on_constants(x: Any, weight: Any, bias: Any, eps: float, dy: Any, num_groups: int) -> Any:
    if np.ptp(x) == 0 or x.std() < 1e-3 < abs(x).max():
        raise ValueError("no deviation")
    return group_norm(x, weight, bias, eps, dy, num_groups)


def test_what_raises_on_hard_inputs_has_lost_no_digits(capsys: pytest.CaptureFixture[str]) -> None:
    call = [f"{__name__}.raising_on_constants", "--norm", "group", "--framework", "numpy", "--dtypes", "float64"]
    assert conformance.main([*call, "--cases", "offset_0,constant_1e10"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "formula right on ordinary inputs; raises ValueError: no deviation: constant_1e10")
    assert conformance.main([*call, "--cases", "constant_1e10"]) == 1
    assert capsys.readouterr().out.endswith("raises ValueError: no deviation (all 1 inputs)\n")


def test_audit_check_norm_and_conformance_say_the_same(tmp_path: Path) -> None:
    def batch_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
        return norma.batch_norm(x, None, None, w, b, eps=eps)

    def rms_norm_2d(x: Any, w: Any, _: Any, eps: float) -> Any:
        return norma.rms_norm_2d(x, w, eps=eps)

    def layer_norm_2d(x: Any, w: Any, b: Any, eps: float) -> Any:
        return norma.layer_norm_2d(x, w, b, eps=eps)

    def four_groups(x: Any, w: Any, b: Any, eps: float, num_groups: int) -> Any:
        return norma.group_norm(x, num_groups, w, b, eps=eps)

    functions: dict[str, conformance.Call] = {
        "layer2d": layer_norm_2d, "rms2d": rms_norm_2d, "group:4": four_groups, "batch": batch_norm}
    options = "--statistics stable --dtypes float32 --quick --quiet"
    norma.run("audit", *f"--norms {','.join(functions)} {options} --output {tmp_path}/audit".split())
    measured: dict[str, dict[str, dict[str, float]]] = {norm: {} for norm in functions}
    for m in json.loads((tmp_path / "audit" / "results.json").read_text())["measurements"]:
        errors = {k: m[k]["worst"] * 2**23 for k in conformance.RESULTS if k in m}
        measured[m["norm"]][m["case"]] = errors
    for norm, function in functions.items():
        checked = norma.check_norm(norm, quick=True).hard_inputs
        judged = {v.case: v for v in conformance.check(function, norm, framework="norma", dtypes=("float32",))}
        assert {v.norm for v in judged.values()} == {norm}
        assert list(measured[norm]) == list(judged) and set(checked) == set(judged)
        for case, verdict in judged.items():
            assert verdict.errors == checked[case] == measured[norm][case], (norm, case)


def test_functions_of_norma_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ["group_norm", "layer_norm", "layer_norm_2d", "rms_norm", "rms_norm_2d", "instance_norm", "batch_norm"]:
        assert conformance.main([f"norma.{name}", "--strict"]) == 0, capsys.readouterr().out


def test_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    numpy_norm = [f"{__name__}.group_norm", "--framework", "numpy", "--dtypes", "float64"]
    assert conformance.main(numpy_norm) == 0
    assert capsys.readouterr().out.endswith("\nformula right on ordinary inputs\n")
    assert conformance.main([*numpy_norm, "--strict"]) == 0


@pytest.mark.parametrize(("name", "lost"), [
    ("torch.nn.functional.layer_norm", "offset_1e4"), ("torch.nn.functional.rms_norm", "huge_1e19"),
    ("torch.nn.functional.group_norm", "offset_1e4"), ("torch.nn.functional.instance_norm", "offset_1e4"),
    ("torch.nn.functional.batch_norm", "offset_1e4"), ("torch.nn.LayerNorm", "offset_1e4"),
    ("torch.nn.GroupNorm", "offset_1e4"), ("torch.nn.BatchNorm2d", "offset_1e4"),
    ("torch.nn.InstanceNorm2d", "offset_1e4"), ("torch.nn.RMSNorm", "huge_1e19")])
def test_pytorch_has_the_right_formula(name: str, lost: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    call = [name, "--dtypes", "float32", "--cases", "offset_0,tiny_variance,offset_1e4,huge_1e19"]
    assert conformance.main(call) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("formula right on ordinary inputs; ") and lost in line
    assert conformance.main([*call, "--strict"]) == 1
    capsys.readouterr()
    assert conformance.main([*call, "--json"]) == 0
    assert {v["case"] for v in json.loads(capsys.readouterr().out)} > {"offset_0", "tiny_variance"}
