"""Norms that are written in Python."""

import inspect
from collections.abc import Callable
from typing import TypeVar

from norma import _norma, nn

Layer = TypeVar("Layer", bound=type[nn.Module])


def register_norm(name: str) -> Callable[[Layer], Layer]:
    """Gives a class a name by which every network, compare() and check_norm() of this process know it.

    The class is derived from norma.nn.Module, and made with the number of channels. Its further parameters are options
    of the norm: class Mine with __init__(self, channels, alpha=0.5) is also "mine[alpha=0.7]". Its forward(x) gets
    (N, channels, H, W) and returns a tensor of the same sizes. Registering a name again replaces the norm.
    """
    def register(layer: Layer) -> Layer:
        if not (isinstance(layer, type) and issubclass(layer, nn.Module)):
            raise _norma.Error(f"register_norm: expected a class derived from norma.nn.Module, got {layer!r}")
        parameters = list(inspect.signature(layer).parameters)
        if not parameters:
            raise _norma.Error(f"register_norm: {layer.__name__}: expected __init__(self, channels), got no parameter")
        _norma._register_norm(name, layer, parameters[1:])
        return layer
    return register
