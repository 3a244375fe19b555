"""Layers. A class derived from Module has forward(x), and parameters by assignment: self.weight = Parameter(x)."""

from typing import Any, cast

from norma._norma import (
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Error, Flatten, GELU, GroupNorm, Identity, InstanceNorm2d,
    LayerNorm, LayerNorm2d, Linear, MaxPool2d, Module, Norm, ReLU, RMSNorm2d, Sequential, SiLU, Tensor, make_norm, norm_names)

__all__ = [
    "AdaptiveAvgPool2d", "BatchNorm2d", "Buffer", "Conv2d", "Dropout", "Flatten", "GELU", "GroupNorm", "Identity",
    "InstanceNorm2d", "LayerNorm", "LayerNorm2d", "Linear", "MaxPool2d", "Module", "Norm", "Parameter", "RMSNorm2d",
    "ReLU", "Sequential", "SiLU", "make_norm", "norm_names"]


def _marked(data: Tensor, kind: str, requires_grad: bool) -> Tensor:
    """A tensor on the memory of `data` that is registered where a Module gets it as an attribute."""
    x = data.detach()
    x.requires_grad = requires_grad
    x._kind = kind  # type: ignore[attr-defined]
    return x


def Parameter(data: Tensor, requires_grad: bool = True) -> Tensor:  # noqa: N802
    """A tensor that is trained; assigned to an attribute of a Module, it is registered under that name."""
    return _marked(data, "parameter", requires_grad)


def Buffer(data: Tensor) -> Tensor:  # noqa: N802
    """A tensor that a Module keeps and does not train, likewise."""
    return _marked(data, "buffer", False)


def _set_attribute(self: Module, name: str, value: Any) -> None:
    registered = self.__dict__.setdefault("_registered", {})
    kind = vars(value).get("_kind") if isinstance(value, Tensor) else None
    if kind:
        value = (self.register_parameter if kind == "parameter" else self.register_buffer)(name, value)
        registered[name] = kind
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
