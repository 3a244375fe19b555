"""Tensors, ops and the tape, as Python sees them."""

import copy
import math
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import norma


def test_values_of_lists_and_back() -> None:
    x = norma.tensor([[1, 2.5], [3, -4]])
    assert x.shape == (2, 2) and x.dtype == norma.float32
    assert x.tolist() == [[1, 2.5], [3, -4]]
    assert norma.tensor([1, 2]).dtype == norma.int64
    assert norma.tensor([True]).dtype == norma.bool_
    assert norma.tensor(3.5).item() == 3.5 and norma.tensor(3.5).ndim == 0
    assert norma.tensor([2**62 + 1]).item() == 2**62 + 1
    assert norma.tensor([]).shape == (0,)
    with pytest.raises(norma.Error, match="lists of equal lengths"):
        norma.tensor([[1, 2], [3]])
    with pytest.raises(norma.Error, match="expected numbers, nested lists of them, or an array"):
        norma.tensor(["a"])


def test_operators_broadcast_and_promote() -> None:
    x = norma.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = 2 - x / norma.tensor([1.0, 4.0]) * 3 + 1
    assert np.allclose(y.numpy(), 2 - np.array([[1, 2], [3, 4]]) / np.array([1, 4]) * 3 + 1)
    assert ((-x) ** 2 @ x).tolist() == (x.numpy() ** 2 @ x.numpy()).tolist()
    for compare in (operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le):
        assert compare(x, 2).tolist() == compare(x.numpy(), 2).tolist()
        assert compare(2, x).tolist() == compare(2, x.numpy()).tolist()
        assert compare(x, x * x - 2).tolist() == compare(x.numpy(), x.numpy() ** 2 - 2).tolist()
    assert (x == None) is False  # noqa: E711
    assert len({x, x, x + 0}) == 2  # by identity
    assert (1 / x).tolist() == (1 / x.numpy()).tolist()
    with pytest.raises(TypeError):
        x + "a"  # type: ignore[operator]


def test_indexing_is_that_of_numpy() -> None:
    x = norma.arange(60).reshape([3, 4, 5])
    a = np.arange(60).reshape(3, 4, 5)
    keys: list[Any] = [
        0, -1, (1, 2), (1, 2, 3), slice(1, None), (slice(None), slice(0, 3, 2)), (Ellipsis, 1),
        (None, 1, Ellipsis), (slice(-2, None), Ellipsis, slice(1, -1)), slice(5, 2), (slice(10, 20),)]
    for key in keys:
        assert np.array_equal(x[key].numpy(), a[key]), key
    assert x[1:, 2, ::2].storage_offset() == 30  # the element there is 30, too
    assert np.array_equal(x[norma.tensor([2, 0, 2])].numpy(), a[[2, 0, 2]])
    assert [row.shape for row in x] == [(4, 5)] * 3
    with pytest.raises(IndexError, match=r"expected an index in \[-3, 3\) along axis 0, got 3"):
        x[3]
    with pytest.raises(norma.Error, match="expected at most 3 indices, got 4"):
        x[0, 0, 0, 0]
    with pytest.raises(norma.Error, match="step of at least 1"):
        x[::-1]


def test_outputs_of_norms_are_remade_in_backward() -> None:
    def gradients(x: norma.Tensor, weight: norma.Tensor) -> tuple[int, list[Any]]:
        tape_of = norma.conv2d(norma.group_norm(x, 2), weight).sum()
        return norma.Tape(tape_of).saved_bytes(), [g.tolist() for g in norma.grad([tape_of], [x, weight]) if g is not None]

    x, weight = (norma.rand(sizes, dtype=norma.float64, requires_grad=True) for sizes in ([2, 4, 5, 5], [3, 4, 1, 1]))
    kept_bytes, kept = gradients(x, weight)
    with norma.remake_outputs():
        bytes_, remade = gradients(x, weight)
    assert len(kept) == 2 and remade == kept and bytes_ == kept_bytes - 2 * 4 * 5 * 5 * 8
    assert gradients(x, weight)[0] == kept_bytes


def test_gradients_by_the_tape() -> None:
    x = norma.tensor([1.0, 2.0, 3.0], requires_grad=True)
    loss = (x * x * x).sum()
    assert norma.Tape(loss).op_names() == ["mul", "mul", "sum"]
    assert "mul" in norma.Tape(loss).summary()
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == [3, 12, 27]
    (first,) = norma.grad([(x * x * x).sum()], [x], create_graph=True)
    assert first is not None
    (second,) = norma.grad([first.sum()], [x])
    assert second is not None and second.tolist() == [6, 12, 18]
    with norma.no_grad():
        assert not (x * 2).requires_grad
    with pytest.raises(norma.Error, match="backward"):
        norma.tensor([1.0]).backward()


def test_gradcheck_of_a_function_of_python() -> None:
    x = norma.randn([3, 4], dtype=norma.float64, requires_grad=True)
    worst = norma.gradcheck(lambda x: norma.erf(x) * x.mean(), [x])
    assert worst < 1e-6

    def wrong(x: norma.Tensor) -> norma.Tensor:
        return x * x.detach()

    with pytest.raises(norma.Error, match="gradcheck"):
        norma.gradcheck(wrong, [x])


def test_hooks_and_exceptions_of_python_pass_through() -> None:
    x = norma.ones([2], requires_grad=True)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [30, 30]

    def fail(_: norma.Tensor) -> None:
        raise ZeroDivisionError("in the hook")

    z = x * 3
    z.register_hook(fail)
    with pytest.raises(ZeroDivisionError, match="in the hook"):
        z.sum().backward()


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "abs", "neg"])
def test_functions_are_those_of_numpy(name: str) -> None:
    a = np.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype(np.float32)
    theirs = np.negative if name == "neg" else getattr(np, name)
    assert np.allclose(getattr(norma, name)(norma.from_dlpack(a)).numpy(), theirs(a), rtol=1e-6)


def test_memory_formats() -> None:
    x = norma.randn([2, 3, 4, 5], memory_format="channels_last")
    assert x.memory_format == "channels_last" and x.strides == (60, 1, 15, 3)
    y = norma.group_norm(x, 3)
    assert y.memory_format == "channels_last"
    assert x.contiguous().memory_format == "contiguous"
    with pytest.raises(norma.Error, match="memory_format: expected one of 'contiguous', 'channels_last', 'preserve'"):
        x.contiguous("nhwc")


def test_norms_are_their_definition() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(3, 2, (4, 6, 5, 7))
    weight, bias = rng.normal(size=6), rng.normal(size=6)
    x, w, b = (norma.from_dlpack(v) for v in (a, weight, bias))

    def definition(axes: tuple[int, ...], eps: float) -> Any:
        normal = (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + eps)
        return normal * weight[:, None, None] + bias[:, None, None]

    assert np.allclose(norma.batch_norm(x, weight=w, bias=b).numpy(), definition((0, 2, 3), 1e-5))
    assert np.allclose(norma.layer_norm_2d(x, w, b).numpy(), definition((1,), 1e-6))
    assert np.allclose(norma.instance_norm(x, w, b, activation="relu").numpy(),
                       np.maximum(definition((2, 3), 1e-5), 0))
    with pytest.raises(norma.Error, match="activation: expected one of 'identity', 'relu', 'gelu', 'silu', got 'elu'"):
        norma.instance_norm(x, activation="elu")
    with pytest.raises(norma.Error, match="num_channels must be divisible by num_groups"):
        norma.group_norm(x, 4)


def test_loss_of_a_linear_layer() -> None:
    logits = norma.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
    loss = norma.cross_entropy(logits, norma.tensor([0]))
    assert math.isclose(loss.item(), math.log(1 + math.exp(-1) + math.exp(-2)), rel_tol=1e-6)
    with pytest.raises(norma.Error, match="reduction"):
        norma.cross_entropy(logits, norma.tensor([0]), reduction="avg")


def test_docstrings_come_from_the_headers() -> None:
    assert "Wu and He" in (norma.group_norm.__doc__ or "")
    assert "Softmax" in (norma.softmax.__doc__ or "")


def test_numbers_of_numpy_keep_the_tape() -> None:
    x = norma.ones([3], requires_grad=True)
    y: Any = np.float32(2) * x + np.float64(1) / x  # type: ignore[operator]
    assert isinstance(y, norma.Tensor) and y.requires_grad and y.tolist() == [3, 3, 3]


def test_grad_modes_nest_and_recur() -> None:
    @norma.no_grad()
    def f(n: int) -> bool:
        return f(n - 1) if n else norma.grad_enabled()

    assert not f(2) and norma.grad_enabled()


def test_grad_takes_one_tensor_or_several() -> None:
    x = norma.ones([3], requires_grad=True)
    (g,) = norma.grad((x * 2).sum(), x)
    assert g is not None and g.tolist() == [2, 2, 2]


def test_copy_does_not_hide_a_change_from_the_tape() -> None:
    w = norma.ones([2], requires_grad=True)
    x = w * 2
    with pytest.raises(norma.Error, match="copy_: x: expected a tensor that takes part in no graph"):
        x.copy_(norma.zeros([2]))
    with norma.no_grad():
        x.copy_(norma.zeros([2]))
    assert x.tolist() == [0, 0]
    row = norma.arange(1000)
    row[1:].copy_(row[:-1])
    assert row.tolist() == [0, *range(999)]


def test_integers_behind_those_that_doubles_hold() -> None:
    big = 2**53 + 1
    x = norma.tensor([big])
    assert (x + 0).item() == big and (norma.zeros([1], dtype=norma.int64) + big).item() == big
    assert (big - norma.zeros([1], dtype=norma.int64)).item() == big
    assert (x == big).tolist() == [True] and (x == 2**53).tolist() == [False] and (x > 2**53).tolist() == [True]
    assert (norma.tensor([1.0]) * big).dtype == norma.float32
    with pytest.raises(norma.Error, match="fits into int32"):
        norma.tensor([1], dtype=norma.int32) + 2**60


def test_numbers_that_a_dtype_does_not_hold() -> None:
    for value, dtype in [(300, norma.uint8), (-1, norma.uint8), (2**31, norma.int32), (math.nan, norma.int64),
                         (math.inf, norma.int32), (1e30, norma.int64)]:
        with pytest.raises(norma.Error, match="data: expected a number in"):
            norma.tensor([0, value], dtype=dtype)
        with pytest.raises(norma.Error, match="fill_: value: expected a number in"):
            norma.full([2], value, dtype=dtype)
    with pytest.raises(norma.Error, match="data: expected integers of 64 bits, got 1180591620717411303424"):
        norma.tensor([2**70])
    assert norma.tensor([2**63 - 1, -2**63], dtype=norma.int64).tolist() == [2**63 - 1, -2**63]
    assert norma.tensor([255.9, 0], dtype=norma.uint8).tolist() == [255, 0]


def test_scalars_of_numpy_are_numbers() -> None:
    assert norma.tensor([np.float32(1.5), 2]).tolist() == [1.5, 2]
    assert norma.tensor([np.int32(1), np.int64(2)]).dtype == norma.int64
    assert norma.tensor([[np.True_], [np.False_]]).dtype == norma.bool_
    assert norma.tensor([norma.tensor(1.0), norma.tensor(2.0)]).tolist() == [1, 2]
    size: Any = np.int64(3)
    axis: Any = np.int64(0)
    assert norma.zeros(size).shape == (3,) and norma.ones([2, size]).sum(axis).tolist() == [2, 2, 2]


def test_indices_that_are_none() -> None:
    x = norma.arange(6).reshape([2, 3])
    assert x[:, 1:2**70].tolist() == [[1, 2], [4, 5]] and x[-2**70:0].shape == (0, 3)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (2**70, IndexError, "int"), (slice("a", None), TypeError, "int"), (slice(1.5, None), TypeError, "int"),
        (True, norma.Error, "got bool"), ((..., 0, ...), norma.Error, "at most one …, got 2"),
        ((norma.tensor([0]), norma.tensor([0])), norma.Error, "at most one tensor of row numbers, got 2")]
    for key, error, text in wrong:
        with pytest.raises(error, match=text):
            x[key]


def test_copies_and_pickles() -> None:
    nhwc = norma.randn([2, 3, 4, 5], memory_format="channels_last", requires_grad=True)
    tensors = [nhwc, norma.tensor([1.5, -2]).to(norma.bfloat16), norma.tensor(2**62 + 1), norma.zeros([0, 3]),
               norma.tensor([True, False]), norma.randn([3, 4]).transpose(0, 1)]
    for x in tensors:
        for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), pickle.loads(pickle.dumps(x, 2))):
            assert y.tolist() == x.tolist() and y.dtype == x.dtype and y.strides == x.strides
            assert y.requires_grad == x.requires_grad and y.is_leaf and not y.is_same(x)
    (nhwc * 2).sum().backward()
    deep, shallow = copy.deepcopy(nhwc), copy.copy(nhwc)
    assert deep.grad is not None and deep.grad.tolist() == norma.full([2, 3, 4, 5], 2).tolist()
    with norma.no_grad():
        nhwc.copy_(norma.zeros([1]))
        nhwc.grad = None
    assert shallow.tolist() == nhwc.tolist() and deep.tolist() != nhwc.tolist() and deep.grad is not None
    assert pickle.loads(pickle.dumps(nhwc * 2)).is_leaf
    assert copy.copy(nhwc * 2).requires_grad
    with pytest.raises(norma.Error, match="deepcopy: x: expected a leaf of the tape, got the result of an op"):
        copy.deepcopy(nhwc * 2)
    same = norma.ones([2])
    both = copy.deepcopy([same, same])
    assert both[0] is both[1] and both[0] is not same
    same.label = ["a"]  # type: ignore[attr-defined]
    labelled: list[Any] = [copy.deepcopy(same), pickle.loads(pickle.dumps(same))]
    assert all(y.label == ["a"] and y.label is not same.label for y in labelled)  # type: ignore[attr-defined]
    slice_of_more = pickle.dumps(norma.zeros([1000])[:2])
    assert len(slice_of_more) < 1000


def test_a_damaged_pickle_of_a_tensor() -> None:
    rebuild, arguments = norma.ones([2]).__reduce__()
    with pytest.raises(norma.Error, match=r"unpickle: bytes: expected 8 for float32 of sizes \[2\], got 3"):
        rebuild(b"abc", *arguments[1:])


def test_arrays_of_numpy_are_operands() -> None:
    a = np.array([2.0, 3.0])
    x = norma.tensor([1.0, 4.0], dtype=norma.float64, requires_grad=True)
    operators: list[Any] = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.eq,
                            operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    for operate in operators:
        for pair, expected in [((x, a), operate(x.numpy(), a)), ((a, x), operate(a, x.numpy()))]:
            y = operate(*pair)
            assert isinstance(y, norma.Tensor) and np.allclose(y.numpy(), expected), operate
    (g,) = norma.grad([(a[::-1] * x).sum()], [x])
    assert g is not None and g.tolist() == [3, 2]
    y = x * a
    a[0] = 100  # what the tape has kept is a copy
    (g,) = norma.grad([y.sum()], [x])
    assert g is not None and g.tolist() == [2, 3]
    names: Any = np.array(["a", "b"])
    with pytest.raises(TypeError):
        x + names


def test_numbers_to_the_power_of_tensors() -> None:
    x = norma.tensor([0.5, 2.0, -1.0], dtype=norma.float64, requires_grad=True)
    (2.5**x).sum().backward()
    assert np.allclose((2.5**x).numpy(), 2.5 ** x.numpy()) and x.grad is not None
    assert np.allclose(x.grad.numpy(), np.log(2.5) * 2.5 ** x.numpy())
    (g,) = norma.grad([(0 ** norma.maximum(x, norma.zeros([], dtype=norma.float64))).sum()], [x])
    assert g is not None and g.tolist() == [0, 0, 0]
    assert (2 ** norma.ones([1])).dtype == norma.float32
    with pytest.raises(norma.Error, match="pow: exponent: expected a floating dtype, got int64"):
        2 ** norma.tensor([1])


def test_a_tensor_is_a_copy_of_any_array() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    a.flags.writeable = False
    arrays: list[Any] = [a, a[::-1], a.T[:, ::-1], np.broadcast_to(np.float32(2), (2, 3)), a[1:1], np.array(3.5)]
    for array in arrays:
        x = norma.tensor(array)
        assert np.array_equal(x.numpy(), array) and x.numpy().dtype == array.dtype
        x.add_(1)
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_full_of_integers_behind_those_that_doubles_hold() -> None:
    for value in (2**53 + 1, -2**53 - 1, 2**63 - 1, -2**63, 7):
        assert norma.full([2], value, dtype=norma.int64).tolist() == [value, value]
    assert norma.full([1], 2**53 + 1, dtype=norma.float64).item() == 2**53
    assert norma.full([1], 2**70).item() == 2**70
    half: Any = np.float32(2.5)
    assert norma.full([1], half).item() == 2.5 and norma.full([], True, dtype=norma.bool_).item() is True
    assert norma.full([2, 3, 4, 5], 1, dtype=norma.int64, memory_format="channels_last").strides == (60, 1, 15, 3)
    with pytest.raises(norma.Error, match="fill_: value: expected a number in"):
        norma.full([1], 2**70, dtype=norma.int64)


def test_names_and_arguments_of_pytorch() -> None:
    x = norma.randn([2, 3, 4], dtype=norma.float64)
    assert x.mean(dim=1, keepdim=True).shape == (2, 1, 4) and x.sum(dim=[0, -1]).shape == (3,)
    assert x.amax(dim=2).max().item() == x.max().item() and x.argmax(dim=-1).shape == (2, 3)
    deviation = x.std(dim=0, correction=0)
    assert np.allclose(deviation.numpy(), x.numpy().std(0)) and x.std().item() == x.var().item() ** 0.5
    assert x.size() == x.shape and x.size(-1) == 4 and x.size(dim=0) == 2 and x.dim() == 3
    assert x.view(4, 6).shape == x.view([4, 6]).shape == x.reshape(4, -1).reshape((4, 6)).shape == (4, 6)
    assert x.permute(2, 0, 1).shape == x.transpose(dim0=0, dim1=2).permute([0, 2, 1]).shape == (4, 2, 3)
    assert x.unsqueeze(dim=0).expand(5, 2, 3, 4).squeeze(dim=0).shape == (5, 2, 3, 4)
    assert norma.cat([x, x], dim=1).flatten(start_dim=1).shape == (2, 24)
    assert norma.clamp(x, min=0, max=1).max().item() <= 1 and norma.softmax(x, dim=-1).shape == x.shape
    assert norma.full([2], fill_value=3).tolist() == [3, 3]
    q, k = norma.randn([1, 2, 3, 4]), norma.randn([1, 2, 5, 4])
    y = norma.scaled_dot_product_attention(q, k, k, attn_mask=norma.zeros([5]), scale=0.5)
    p = norma.softmax(q @ k.transpose(-2, -1) * 0.5, dim=-1)
    assert y.shape == (1, 2, 3, 4) and np.allclose(y.numpy(), (p @ k).numpy(), atol=1e-6)
    first = norma.scaled_dot_product_attention(q, k, k, is_causal=True)[:, :, :1]
    assert np.allclose(first.numpy(), k[:, :, :1].numpy(), atol=1e-6)


def test_a_missing_attribute_names_the_nearest() -> None:
    x = norma.ones([2])
    for holder, name, text in [
            (x, "reshap", "'Tensor' object has no attribute 'reshap'; did you mean 'reshape'?"),
            (norma.nn.ReLU(), "parameter", "'ReLU' object has no attribute 'parameter'; did you mean 'parameters'?"),
            (norma, "layer_norm2d", "module 'norma' has no attribute 'layer_norm2d'; did you mean 'layer_norm_2d'?"),
            (x, "qqq", "'Tensor' object has no attribute 'qqq'")]:
        with pytest.raises(AttributeError) as error:
            getattr(holder, name)
        assert str(error.value) == text
    assert not hasattr(x, "__cuda_array_interface__")
    assert norma.conformance.NORMS
