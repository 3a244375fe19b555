"""A lesson as a Jupyter notebook: the prose of README.md, and in the place of its C++ the Python of lesson.py.

lesson.py has cells in the order of the page. A line "# %% KIND" begins each:

  # %% text    stands in the place of the page's next `text` block, and prints the lines of that block
  # %% cpp     stands in the place of the next `cpp` block, and prints nothing; without code, nothing stands there
  # %% gap N   a gap of the exercise, solved: the lines from ### BEGIN SOLUTION to ### END SOLUTION are left out for
               readers (nbgrader's marks)
  # %% check N what a gap must do: assertions, which fail until it is filled
  # %% note    a comment: a Markdown cell of the notebook alone, after the title
  # %% prose   a comment: words of the page, a line "->", and the words in their place, where the page's do not hold

Gaps and checks stand in the place of the page's last `sh` block. Blocks that quote a file of Norma (`cpp FILE`) stay.
"""
import json
import re
import shutil

import pages

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
LONGEST = 260  # lines of a lesson.py, with the exercise and its checks
OF_CPP = ("exercise.cpp", "exercise.h", "lesson.cpp", "./run ", "set_requires_grad")  # words that must be swapped
MADE_OF = ("This notebook is the lesson's page with Python in the place of C++. It needs Norma's Python package "
           "([docs/python.md](../../docs/python.md)): `pip install .` in a clone. Run the cells from the top; each "
           "prints what you see below it.")


class Cell:
    def __init__(self, kind, number=None):
        self.kind = kind
        self.number = number  # of a gap or check
        self.lines = []

    @property
    def code(self):
        return "\n".join(self.lines).strip("\n")

    @property
    def words(self):
        """The text of a comment."""
        return "\n".join(line.removeprefix("#").removeprefix(" ") for line in self.code.splitlines())

    def for_reader(self, solved):
        """The code, without its solution unless it is solved."""
        code, inside = [], False
        for line in self.code.splitlines():
            if line.strip() == BEGIN:
                inside = True
                if not solved:
                    missing = f'raise NotImplementedError("gap {self.number} is not filled yet")'
                    code.append(line.replace(BEGIN, missing))
            elif line.strip() == END:
                inside = False
            elif solved or not inside:
                code.append(line)
        return "\n".join(code)


def lessons(root=pages.HERE):
    """Those that have a lesson.py."""
    return [lesson for lesson in pages.all_lessons(root) if (lesson.folder / "lesson.py").exists()]


def cells_of(lesson):
    cells = [Cell("before the first")]
    for line in lesson.text("lesson.py").splitlines():
        if not line.startswith("# %%"):
            cells[-1].lines.append(line)
        elif mark := re.fullmatch(r"# %% (?:(text|cpp|note|prose)|(gap|check) ([123]))", line):
            cells.append(Cell(mark[1] or mark[2], mark[3] and int(mark[3])))
        else:
            raise RuntimeError(f"{lesson.folder.name}/lesson.py: what kind of cell is '{line}'?")
    return cells[1:]


def swapped(lesson, cells):
    """The page with the words of its `prose` cells; blanks and ends of lines count as the same."""
    text = lesson.text()
    for cell in cells:
        if cell.kind == "prose":
            old, arrow, new = cell.words.partition("\n->")
            pattern = r"\s+".join(re.escape(word) for word in old.split())
            if not arrow or len(re.findall(pattern, text)) != 1:
                raise RuntimeError(f"{lesson.folder.name}/lesson.py: expected once on the page: {old!r}")
            text = re.sub(pattern, lambda _: new.strip("\n"), text)
    return text


def parts_of(lesson):
    """What the notebook has, in order: ("markdown", text, None), or (kind, cell, lines of the block in whose place it
    stands); no lines for gaps and checks. Throws RuntimeError where page and lesson.py do not fit."""
    def fit(good, text):
        if not good:
            raise RuntimeError(f"{lesson.folder.name}/lesson.py: {text}")

    cells = cells_of(lesson)
    text = swapped(lesson, cells)
    exercise = [cell for cell in cells if cell.kind in ("gap", "check")]
    fit([(cell.kind, cell.number) for cell in exercise] == [(kind, n) for n in (1, 2, 3) for kind in ("gap", "check")],
        "expected gap 1, check 1, … check 3 in this order")
    places = pages.fences(text)
    last_sh = max((start for info, start, _ in places if info == "sh"), default=None)
    fit(last_sh is not None, "the page has no block 'sh' in whose place the gaps stand")
    lines = text.splitlines()
    parts = [("markdown", lines[0], None), ("markdown", MADE_OF, None)]
    parts += [("markdown", cell.words, None) for cell in cells if cell.kind == "note"]
    blocks = [cell for cell in cells if cell.kind in ("text", "cpp")]
    at = 1
    for info, start, block in places:
        if info not in ("text", "cpp") and start != last_sh:
            continue  # it stays as it is
        parts.append(("markdown", "\n".join(lines[at:start - 1]), None))
        at = start + len(block) + 1
        if start == last_sh:
            parts += [(cell.kind, cell, None) for cell in exercise]
            continue
        cell = blocks.pop(0) if blocks else Cell("none")
        fit(cell.kind == info, f"expected a cell '{info}' for the block that begins with '{block[0]}', got {cell.kind}")
        parts.append((info, cell, block))
    fit(not blocks, f"the page has no block for the last {len(blocks)} cells")
    return [*parts, ("markdown", "\n".join(lines[at:]), None)]


def check(lesson):
    """The faults of a lesson.py, each as a line."""
    try:
        parts = parts_of(lesson)
    except RuntimeError as error:
        return [str(error)]
    faults = []
    if (count := len(lesson.text("lesson.py").splitlines())) > LONGEST:
        faults.append(f"lesson.py has {count} lines: expected at most {LONGEST}")
    for kind, part, block in parts:
        text = part if kind == "markdown" else part.code
        faults += [f"the notebook says {word!r}: swap it in lesson.py" for word in OF_CPP if word in text]
        marks = [line.strip() for line in text.splitlines() if line.strip() in (BEGIN, END)]
        if kind == "gap" and marks != [BEGIN, END]:
            faults.append(f"lesson.py: gap {part.number}: expected one {BEGIN} and one {END}")
        if kind == "text" and not text:
            faults.append(f"lesson.py: a cell 'text' without code; it must print {block[0]!r}")
    return faults


def notebook_of(lesson, folder, root, links, solved=False):
    """The notebook, as json.dump() takes it, whose outputs are the blocks of the page. Copies the pictures that it
    shows into `folder`. For `root` and `links` see pages.linked()."""
    cells = []

    def add(kind, source, **more):
        number = f"{lesson.folder.name[:2]}-{len(cells)}"
        cells.append({"cell_type": kind, "id": number, "metadata": {}, "source": source, **more})

    def beside(picture):
        name = f"{lesson.folder.name}_{picture[2]}"
        shutil.copy(lesson.folder / picture[2], folder / name)
        return f"{picture[1]}({name})"

    for kind, part, block in parts_of(lesson):
        if kind == "markdown":
            text = pages.linked(part, lesson.folder, folder, root, links)
            text = re.sub(r"(!\[[^\]]+\])\(([^)/]+\.svg)\)", beside, text)
            for section in re.split(r"(?m)^(?=## )", text):
                if section.strip():
                    add("markdown", section.strip("\n"))
        elif code := part.for_reader(solved):
            printed = {"output_type": "stream", "name": "stdout", "text": "".join(f"{line}\n" for line in block or [])}
            add("code", code, execution_count=None, outputs=[printed] if kind == "text" else [])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}


def write(folder, solved=False, root=pages.HERE.parent):
    """Writes NN_name.ipynb for each lesson that has one, and beside them what they show and link to. Returns the
    names of the notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    links = {lesson.folder / "README.md": f"{lesson.folder.name}.ipynb" for lesson in lessons()}
    for lesson, name in zip(lessons(), links.values()):
        text = json.dumps(notebook_of(lesson, folder, root, links, solved), indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return list(links.values())
