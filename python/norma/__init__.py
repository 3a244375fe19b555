"""What a normalization layer costs, and what it buys, inside a whole network.

Tensors with memory formats, a readable tape, convolution and every norm layer; networks that are trained and compared.
The functions are those of Norma's C++ headers, with the same names and arguments: https://github.com, docs/python.md.
"""

import os

# Threads that wait for the next loop spin for some 50 µs, as in the norma command. OpenMP reads this when it is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from norma import models as models, nn as nn, optim as optim  # noqa: E402
from norma._compare import Comparison as Comparison, compare as compare, run as run  # noqa: E402
from norma._grad_mode import (  # noqa: E402
    enable_grad as enable_grad, no_grad as no_grad, remake_outputs as remake_outputs)
from norma._norma import *  # noqa: E402, F403
from norma._norma import version  # noqa: E402
from norma._register import register_norm as register_norm  # noqa: E402

__version__ = version()
