"""Layers. A class derived from Module has forward(x), and parameters by assignment: self.weight = Parameter(x)."""

from typing import Any, cast

from norma._norma import (
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Error, Flatten, GELU, GroupNorm, Identity, InstanceNorm2d,
    LayerNorm, LayerNorm2d, Linear, MaxPool2d, Module, Norm, ReLU, RMSNorm2d, Sequential, SiLU, Tensor, make_norm, norm_names)

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


def _set_attribute(self: Module, name: str, value: Any) -> None:
    registered = self.__dict__.setdefault("_registered", {})
    if isinstance(value, (_Parameter, _Buffer)):
        register = self.register_parameter if isinstance(value, _Parameter) else self.register_buffer
        value = register(name, value.data)
        registered[name] = type(value)
    elif isinstance(value, Module):
        self.register_module(name, value)
        registered[name] = Module
    elif name in registered and value is not self.__dict__.get(name):
        raise Error(f"{type(self).__name__}: {name}: expected it to stay what the module has registered; change a "
                    f"parameter or a buffer in place, with copy_()")
    object.__setattr__(self, name, value)


def _init_subclass(cls: type[Module], /, **options: Any) -> None:
    """A network calls forward() of a layer that is not written in Python without a look at the class of Python."""
    super(Module, cls).__init_subclass__(**options)
    layer = next(base for base in cls.__mro__ if base.__module__ == Module.__module__)
    if layer is not Module and cast(type[Module], layer).forward is not cls.forward:
        raise Error(f"{cls.__name__}: forward: expected a class derived from Module itself to have its own, got one "
                    f"derived from {layer.__name__}; hold one in an attribute")


# On the class itself, so that the layers below are modules, too.
Module.__setattr__ = _set_attribute  # type: ignore[method-assign, assignment]
Module.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[assignment]
