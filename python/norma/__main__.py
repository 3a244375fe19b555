"""The norma command: python -m norma."""

import ctypes
import sys

from norma import _norma


def main() -> int:
    # Plug-ins take what they call from the module, so its names must be there for all libraries.
    ctypes.CDLL(_norma.__file__, mode=ctypes.RTLD_GLOBAL)
    return _norma._run_program(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
