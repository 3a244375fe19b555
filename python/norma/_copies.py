"""What a pickle of a tensor names: pickle takes functions of Python alone."""

from typing import Any

from norma._norma import Tensor, _rebuild_tensor


def rebuild_tensor(*kept: Any) -> Tensor:
    """A tensor of what Tensor.__reduce__() has kept of it."""
    return _rebuild_tensor(*kept)
