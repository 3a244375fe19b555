#!/usr/bin/env python3
"""Every link in the Markdown files of the project leads to a file that is there, and to a heading of it."""
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK_OF_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<!`)(`+)(?!`)(?:[^\n]|\n(?!\s*\n))+?(?<!`)\1(?!`)")  # in a line of text; it may go on in the next line


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings, and those of anchors in HTML."""
    found: dict[str, int] = {}
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} (.*)", BLOCK_OF_CODE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def faults(files: list[Path]) -> list[str]:
    found = []
    for file in files:
        text = CODE.sub("", BLOCK_OF_CODE.sub("", file.read_text(encoding="utf-8")))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue  # a site, or an address of mail
            path, _, anchor = link.partition("#")
            target = file.parent / path if path else file
            if not target.exists():
                found.append(f"{file.name}: {link}: no such file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                found.append(f"{file.name}: {link}: no such heading")
    return found


class Links(unittest.TestCase):
    def test_all_links_lead_somewhere(self) -> None:
        names = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
        files = [ROOT / name for name in names.stdout.split("\0") if name]
        self.assertGreater(len(files), 20)
        self.assertEqual(faults(files), [])

    def test_planted_faults_are_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.md")
            page.write_text("# One `two`, three\n## Same\n## Same\n```\n# no heading\n[no link](none.md)\n```\n"
                            "[a](#one-two-three) [b](page.md#same-1) [c](https://none.example/#x) `[d](none.md)`\n"
                            "[e](none.md) [f](#same-2) [g](page.md#no-heading)\n\n"
                            "Code `of two\nlines`, [h](gone.md) and `code`, and one more `\n\n[i](lost.md) `x`\n",
                            encoding="utf-8")
            self.assertEqual(faults([page]), ["page.md: none.md: no such file", "page.md: #same-2: no such heading",
                                              "page.md: page.md#no-heading: no such heading",
                                              "page.md: gone.md: no such file", "page.md: lost.md: no such file"])


if __name__ == "__main__":
    unittest.main()
