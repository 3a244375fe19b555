"""no_grad and enable_grad, as `with` statements and as decorators."""

from contextlib import ContextDecorator
from types import TracebackType
from typing import Self

from norma._norma import grad_enabled, set_grad_enabled


class _GradMode(ContextDecorator):
    _enabled: bool

    def __init__(self) -> None:
        self._before: list[bool] = []

    def _recreate_cm(self) -> Self:  # as a decorator, one for each call
        return type(self)()

    def __enter__(self) -> None:
        self._before.append(grad_enabled())
        set_grad_enabled(self._enabled)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        set_grad_enabled(self._before.pop())


class no_grad(_GradMode):  # noqa: N801
    """Nothing is recorded on the tape inside."""

    _enabled = False


class enable_grad(_GradMode):  # noqa: N801
    """Ops are recorded on the tape inside, also within no_grad()."""

    _enabled = True
