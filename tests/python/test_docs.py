"""What docs/python.md shows is what happens."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_norm_of_the_page_is_right_and_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    program = block[1].replace("images=5000", "images=32, test_images=16, dataset='shapes', img_size=16, batch_size=8, "
                                              "workers=0, timing_rounds=0")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(PAGE), "exec"), {})
    out = capsys.readouterr().out
    assert "FAILED" not in out and "second derivatives       ok" in out
    assert (tmp_path / "runs" / "derf" / "report.html").exists()
