"""Layers. A class derived from Module has forward(x), and parameters by assignment: self.weight = Parameter(x)."""

from typing import Any, cast

from norma import _norma
from norma._norma import (
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, GELU, GroupNorm, Identity, InstanceNorm2d, LayerNorm,
    LayerNorm2d, Linear, MaxPool2d, Norm, ReLU, RMSNorm2d, Sequential, SiLU, Tensor, make_norm, norm_names)

__all__ = [
    "AdaptiveAvgPool2d", "BatchNorm2d", "Buffer", "Conv2d", "Dropout", "Flatten", "GELU", "GroupNorm", "Identity",
    "InstanceNorm2d", "LayerNorm", "LayerNorm2d", "Linear", "MaxPool2d", "Module", "Norm", "Parameter", "RMSNorm2d",
    "ReLU", "Sequential", "SiLU", "make_norm", "norm_names"]


class _Parameter:
    def __init__(self, data: Tensor) -> None:
        self.data = data


class _Buffer:
    def __init__(self, data: Tensor) -> None:
        self.data = data


def Parameter(data: Tensor) -> Tensor:  # noqa: N802
    """A tensor that a Module trains: assigned to an attribute, it is the tensor itself, registered under that name."""
    return cast(Tensor, _Parameter(data))


def Buffer(data: Tensor) -> Tensor:  # noqa: N802
    """A tensor that a Module keeps and does not train, likewise."""
    return cast(Tensor, _Buffer(data))


class Module(_norma.Module):
    """A layer or a network of your own: call super().__init__() first, and write forward(x)."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, _Parameter):
            value = self.register_parameter(name, value.data)
        elif isinstance(value, _Buffer):
            value = self.register_buffer(name, value.data)
        elif isinstance(value, _norma.Module):
            self.register_module(name, value)
        super().__setattr__(name, value)
