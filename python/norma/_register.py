"""Norms that are written in Python."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from norma import _norma, nn

Layer = TypeVar("Layer", bound=type[nn.Module])


def register_norm(name: str) -> Callable[[Layer], Layer]:
    """Gives a class a name by which every network, compare() and check_norm() of this process know it.

    The class is derived from norma.nn.Module, and made with the number of channels. Its further parameters are options
    of the norm: class Mine with __init__(self, channels, alpha=0.5) is also "mine[alpha=0.7]". Its forward(x) gets
    (N, channels, H, W) and returns a tensor of the same sizes. Registering a name again, as a notebook's cell does that
    runs again, replaces the norm. A built-in norm's name is an error.
    """
    def register(layer: Layer) -> Layer:
        if not (isinstance(layer, type) and issubclass(layer, nn.Module)):
            raise _norma.Error(f"register_norm: expected a class derived from norma.nn.Module, got {layer!r}")
        parameters = list(inspect.signature(layer).parameters.values())
        rest = parameters[1:]
        if not parameters:
            raise _norma.Error(f"register_norm: {layer.__name__}: expected __init__(self, channels), got no parameter")
        if bad := [p.name for p in rest if p.default is p.empty]:
            raise _norma.Error(f"register_norm: {layer.__name__}: expected a default for each option, got none for {bad[0]}")
        defaults = {p.name: p.default for p in rest}

        def make(channels: int, **texts: str) -> nn.Module:
            values = {option: _value(name, option, text, defaults[option]) for option, text in texts.items()}
            return cast(Callable[..., nn.Module], layer)(channels, **values)

        _norma._register_norm(name, make, list(defaults))
        return layer
    return register


def _value(norm: str, option: str, text: str, default: Any) -> Any:
    """The text of an option in the type of its default."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise _norma.Error(f"{norm}: {option}: expected true or false, got '{text}'")
        return text.lower() == "true"
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                raise _norma.Error(f"{norm}: {option}: expected a {kind.__name__}, got '{text}'") from None
    return text
