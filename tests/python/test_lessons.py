"""The notebooks of the lessons: their cells print what the pages show, and the exercises can be solved."""

import contextlib
import importlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

LESSONS = Path(__file__).parents[2] / "lessons"
sys.path.insert(0, str(LESSONS))
notebooks = importlib.import_module("notebooks")
pages = importlib.import_module("pages")
EVERY = pytest.mark.parametrize("lesson", notebooks.lessons(), ids=lambda lesson: lesson.folder.name)


def ran(code: str, names: dict[str, Any]) -> str:
    """What a cell prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "cell", "exec"), names)
    return out.getvalue()


def test_there_are_notebooks() -> None:
    assert {lesson.number for lesson in notebooks.lessons()} == {"1", "2", "3", "4", "5", "6", "7", "10", "11", "12"}


@EVERY
def test_cells_print_what_the_page_shows_and_checks_fail_until_their_gaps_are_filled(lesson: Any) -> None:
    assert notebooks.check(lesson) == []
    names: dict[str, Any] = {}
    gap = ""
    for kind, part, block in notebooks.parts_of(lesson):
        if kind == "gap":
            assert not ran(part.for_reader(solved=False), names)
            gap = part.for_reader(solved=True)
        elif kind == "check":
            with pytest.raises(NotImplementedError, match=f"gap {part.number} is not filled yet"):
                ran(part.code, names)
            assert not ran(gap + "\n" + part.code, names)
        elif kind != "markdown":
            printed = ran(part.code, names).splitlines()
            assert [pages.masked(line.rstrip()) for line in printed] == [pages.masked(line) for line in block or []] \
                if kind == "text" else not printed, part.code


def test_notebooks_are_whole_files(tmp_path: Path) -> None:
    """What the format of version 4.5 asks for, and no link or picture that leads nowhere."""
    written = notebooks.write(tmp_path)
    assert len(written) == len(notebooks.lessons())
    for name in written:
        notebook = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        ids = [cell["id"] for cell in notebook["cells"]]
        assert len(set(ids)) == len(ids) and all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", i) for i in ids)
        for cell in notebook["cells"]:
            expected = {"cell_type", "id", "metadata", "source"}
            if cell["cell_type"] == "code":
                expected |= {"execution_count", "outputs"}
                assert notebooks.BEGIN not in cell["source"]
                compile(cell["source"], name, "exec")
            else:
                assert cell["cell_type"] == "markdown"
                for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?s)```.*?```", "", cell["source"])):
                    assert re.match("https?:", link) or (tmp_path / link.partition("#")[0]).exists(), link
            assert set(cell) == expected and cell["source"].strip()
