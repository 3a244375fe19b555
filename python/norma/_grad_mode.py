"""no_grad, enable_grad and remake_outputs, as `with` statements and as decorators."""

from contextlib import ContextDecorator
from types import TracebackType
from typing import Self

from norma._norma import grad_enabled, remakes_outputs, set_grad_enabled, set_remakes_outputs


class _Mode(ContextDecorator):
    _enabled = True

    def __init__(self) -> None:
        self._before: list[bool] = []

    def _recreate_cm(self) -> Self:  # as a decorator, one for each call
        return type(self)()

    def __enter__(self) -> None:
        self._before.append(self._get())
        self._set(self._enabled)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._set(self._before.pop())

    def _get(self) -> bool:
        return grad_enabled()

    def _set(self, on: bool) -> None:
        set_grad_enabled(on)


class no_grad(_Mode):  # noqa: N801
    """Nothing is recorded on the tape inside."""

    _enabled = False


class enable_grad(_Mode):  # noqa: N801
    """Ops are recorded on the tape inside, also within no_grad()."""


class remake_outputs(_Mode):  # noqa: N801
    """Ops that are recorded inside keep no outputs of norms and activations, but compute them again in backward().

    The gradients have the same bits; the tape holds less memory, and backward() takes a little longer.
    """

    def _get(self) -> bool:
        return remakes_outputs()

    def _set(self, on: bool) -> None:
        set_remakes_outputs(on)
