"""What a normalization layer costs, and what it buys, inside a whole network.

Tensors with memory formats, a readable tape, convolution and every norm layer; networks that are trained and compared.
The functions are those of Norma's C++ headers; where PyTorch has the same, name and arguments are PyTorch's
(docs/python.md).
"""

import difflib
import importlib
import os
from collections.abc import Iterable
from typing import Any

# Threads that wait for the next loop spin for some 50 µs, as in the norma command. OpenMP reads this when it is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from norma import models as models, nn as nn, optim as optim  # noqa: E402
from norma._compare import Comparison as Comparison, compare as compare, run as run  # noqa: E402
from norma._grad_mode import (  # noqa: E402
    enable_grad as enable_grad, no_grad as no_grad, remake_outputs as remake_outputs)
from norma._norma import *  # noqa: E402, F403
from norma._norma import Tensor, version  # noqa: E402
from norma._register import register_norm as register_norm  # noqa: E402

__version__ = version()


def _missing(holder: str, name: str, known: Iterable[str]) -> AttributeError:
    near = [] if name.startswith("__") else difflib.get_close_matches(name, known, 1)
    return AttributeError(f"{holder} has no attribute '{name}'" + "".join(f"; did you mean '{n}'?" for n in near))


def _missing_of_object(self: Any, name: str) -> Any:
    raise _missing(f"'{type(self).__name__}' object", name, dir(self))


for _class in (Tensor, nn.Module, optim.Optimizer):
    setattr(_class, "__getattr__", _missing_of_object)


def __getattr__(name: str) -> Any:
    if name == "conformance":
        return importlib.import_module("norma.conformance")
    raise _missing("module 'norma'", name, globals())
