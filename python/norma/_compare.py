"""The norma command inside of Python: compare() and run()."""

import html
import json
import signal
from pathlib import Path
from typing import Any

from norma import _norma

_INTERRUPTED = 130


def _unless_ended(code: int) -> int:
    """The exit code of a command. A signal that has ended it ends the script in the way the script handles it."""
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    if code > 128:
        signal.raise_signal(code - 128)
    return code


def _values(value: Any) -> list[str]:
    """The value of an option as words of the command line: True is true; the items of a list."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in items]


def _words(options: dict[str, Any]) -> list[str]:
    """Keyword arguments as options: img_size=64 is --img-size 64; flip=False is --flip=false; lists are joined."""
    words = []
    for name, value in options.items():
        option = "-" + name if len(name) == 1 else "--" + name.replace("_", "-")
        if value is True or value is False:
            words.append(f"{option}={str(value).lower()}")
        elif value is not None:
            items = _values(value)
            for word in items if name == "plugin" else [",".join(items)]:  # a file's name may have commas
                words += [option, word]
    return words


def run(command: str, *words: str, **options: Any) -> int:
    """A command of the norma program in this process, which knows the norms registered here.

    run("info"); run("train", model="resnet18", norm="mine", epochs=1). Returns the exit code. The options threads,
    device and conv hold for this call alone. Throws Error for bad input, and KeyboardInterrupt after Ctrl-C, when the
    command has saved its work. SIGTERM and SIGHUP have their effect on the script then, too.
    """
    words = (*words, *_words(options))
    if any(word.split("=")[0] == "--procs" for word in words):
        raise _norma.Error(f"{command}: procs: expected the norma command, which mpirun can start, got a call in Python")
    return _unless_ended(_norma._run_command([command, *words]))


class Comparison:
    """The folder of a comparison: `results` as in its results.json. It shows its report in a notebook."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.results: dict[str, Any] = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))

    def report(self) -> str:
        """The report as Markdown."""
        return (self.folder / "report.md").read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"Comparison({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        page = (self.folder / "report.html").read_text(encoding="utf-8")
        return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 40em; border: 0"></iframe>'


def compare(output: str | Path, **options: Any) -> Comparison:
    """Trains each model with each norm and writes a report, as `norma compare` does.

    The options are those of the command (norma compare --help), with _ for -: compare("runs/mine",
    models=["resnet18"], norms=["batch", "mine"], images=2000). A comparison that was interrupted goes on when it is
    called again. With quiet=True nothing is printed but warnings.
    """
    given = {name: value for name, value in {"output": str(output), **options}.items() if value is not None}
    call = f"norma.compare({', '.join(f'{name}={value!r}' for name, value in given.items())})"
    _unless_ended(_norma._compare([(name, _values(value)) for name, value in given.items()], call))
    return Comparison(output)
