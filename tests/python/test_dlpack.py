"""Tensors of other frameworks on the same memory, both ways."""

import gc
import weakref

import numpy as np
import pytest

import norma


def test_numpy_in_place_both_ways() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = norma.from_dlpack(a)
    a[0, 0, 0] = 100
    assert x[0, 0, 0].item() == 100
    x.add_(1)
    assert a[1, 2, 3] == 24
    b = x.numpy()
    b[:] = 7
    assert a.min() == 7
    assert np.asarray(x).ctypes.data == a.ctypes.data


def test_inference_follows_weights_that_numpy_changes() -> None:
    layer = norma.nn.Linear(300, 330, bias=False)
    x = norma.ones((300, 300))
    with norma.no_grad():
        layer.weight.numpy()[:] = 1
        assert (layer(x).numpy() == 300).all()
        layer.weight.numpy()[:] = 2
        assert (layer(x).numpy() == 600).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
def test_views_with_strides(dtype: str) -> None:
    base = np.arange(120).reshape(4, 5, 6) % 7
    a = base.astype(dtype).transpose(2, 0, 1)[1:5:2, :, 1:]
    x = norma.from_dlpack(a)
    assert x.shape == a.shape and str(x.dtype).endswith(dtype)
    assert x.strides == tuple(s // a.itemsize for s in a.strides)
    assert np.array_equal(np.array(x.tolist()), a.astype(np.float64))
    back = x.transpose(0, 2).numpy()
    assert np.array_equal(back, a.transpose(2, 1, 0)) and back.strides == a.transpose(2, 1, 0).strides


def test_without_elements() -> None:
    assert norma.from_dlpack(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert norma.zeros([3, 0]).numpy().shape == (3, 0)
    assert norma.tensor(2.0).numpy().shape == ()


def test_either_side_may_go_first() -> None:
    a = np.ones(1000, np.float32)
    gone = weakref.ref(a)
    x = norma.from_dlpack(a)
    view = x[10:20]
    del a, x
    gc.collect()
    assert gone() is not None and view.sum().item() == 10
    del view
    gc.collect()
    assert gone() is None
    x = norma.ones([1000])
    b = x.numpy()
    del x
    gc.collect()
    assert b.sum() == 1000


def test_capsules_are_taken_once_and_freed_if_nobody_takes_them() -> None:
    x = norma.ones([3])
    capsule = x.__dlpack__()
    assert norma.from_dlpack(capsule).tolist() == [1, 1, 1]
    with pytest.raises(norma.Error, match="a capsule whose tensor somebody has taken"):
        norma.from_dlpack(capsule)
    x.__dlpack__()  # dropped
    copy = np.from_dlpack(x, copy=True)
    x.mul_(2)
    assert copy.sum() == 3


def test_bfloat16() -> None:
    x = norma.tensor([1.0, 2.5]).to(norma.bfloat16)
    assert norma.from_dlpack(x.__dlpack__()).dtype == norma.bfloat16
    with pytest.raises(norma.Error, match="expected a dtype that NumPy has, got bfloat16"):
        x.numpy()


def test_gradients_flow_into_memory_of_numpy() -> None:
    a = np.array([1.0, 2.0])
    x = norma.from_dlpack(a).requires_grad_()
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.numpy().tolist() == [2, 4]


def test_what_is_refused() -> None:
    read_only = np.ones(3)
    read_only.flags.writeable = False
    with pytest.raises(norma.Error, match="from_dlpack: x: .*readonly"):
        norma.from_dlpack(read_only)
    with pytest.raises(norma.Error, match="strides: expected none below 0, got -1 for axis 0"):
        norma.from_dlpack(np.ones(3)[::-1])
    with pytest.raises(norma.Error, match="dtype: expected float32, .*, got complex128"):
        norma.from_dlpack(np.ones(3, np.complex128))
    with pytest.raises(norma.Error, match="x: expected an array with __dlpack__, got list"):
        norma.from_dlpack([1, 2])
    emulated = norma.zeros([2], device="cuda-emulated")
    with pytest.raises(norma.Error, match="expected a tensor on cpu or cuda, got one on cuda-emulated:0"):
        emulated.__dlpack__()
    with pytest.raises(norma.Error, match="no CUDA|cuda"):
        norma.zeros([2], device="cuda")


def test_torch_both_ways() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).transpose(0, 2)[1:]
    x = norma.from_dlpack(t)
    assert x.shape == tuple(t.shape) and x.strides == t.stride()
    x.mul_(2)
    assert t[0, 0, 0].item() == x[0, 0, 0].item()
    half = torch.ones(5, dtype=torch.bfloat16)
    y = norma.from_dlpack(half)
    assert y.dtype == norma.bfloat16
    back = torch.from_dlpack(y)
    back[0] = 3
    assert half[0] == 3
    z = torch.from_dlpack(norma.zeros([0, 4]))
    assert z.shape == (0, 4)
    del x, y
    gc.collect()
    assert t.sum().item() == 2 * sum(range(24)) - 2 * sum(range(0, 24, 4))
