"""docstrings.py OUTPUT HEADER…: the comments of functions and classes in headers, as a list of pairs for C++."""

import re
import sys
from pathlib import Path

DECLARATION = re.compile(
    r"^(?:inline |explicit |virtual |static |\[\[nodiscard\]\] )*"
    r"(?:class (?P<class>\w+)|(?P<type>[\w:<>&*, ]+?[ &*])(?P<name>\w+)\()")


def comments_of(header: Path) -> dict[str, str]:
    """The first comment for each name. A function without its own has that of its section, which begins with //."""
    found: dict[str, str] = {}
    own: list[str] = []
    section: list[str] = []
    for line in header.read_text(encoding="utf-8").splitlines():
        if line.startswith("/// "):
            own.append(line[4:])
            continue
        if line.startswith("// ") and not line.startswith("// ---"):
            section = section + [line[3:]] if own == ["section"] else [line[3:]]
            own = ["section"]
            continue
        declared = DECLARATION.match(line)
        if declared and not line.startswith(("struct ", "enum ", "template", "namespace", "using", "return")):
            name = declared["class"] or declared["name"]
            behind = line.partition("///< ")[2]
            if own and own != ["section"]:
                text = " ".join(own)
            else:
                text = behind or " ".join(section)
            if text:
                found.setdefault(name, text)
        own = []
    return found


def main() -> None:
    output, *headers = sys.argv[1:]
    comments: dict[str, str] = {}
    for header in headers:
        for name, text in comments_of(Path(header)).items():
            comments.setdefault(name, text.replace("\\", "\\\\").replace('"', '\\"'))
    lines = [f'{{"{name}", "{text}"}},\n' for name, text in sorted(comments.items())]
    Path(output).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
