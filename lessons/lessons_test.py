#!/usr/bin/env python3
"""The checks of lessons find planted faults: a small lesson in a folder of its own, whose program is a shell script."""
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import grade
import lessons
import marks
import notebooks
import pages

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>\n'
PAGE = """# 1. A lesson

The mean is 0.25, and the learning rate 0.125.

![a picture](a.svg)

```text
mean 0.25
measured 3.1 GB/s
```

```cpp
  double rate = 0.125;
```
"""
TESTS = "".join(f'TEST_CASE("gap {gap}: it works") {{}}\n' for gap in "123")
GAPS = "".join(f"// GAP {gap}: fill it\n" for gap in "123")
PRINTS = "mean 0.25\\nmeasured  12.75 GB/s\\n"


def lesson_in(folder, page=PAGE, prints=PRINTS, drawn=SVG.format("x"), kept=SVG.format("x"), exercise=GAPS,
              solution=GAPS, tests=TESTS):
    lesson = pathlib.Path(folder) / "lessons" / "01_a"
    lesson.mkdir(parents=True, exist_ok=True)
    for name, text in (("README.md", page), ("lesson.cpp", "double rate = 0.125;\n"), ("exercise.h", ""),
                       ("test.cpp", tests), ("exercise.cpp", exercise), ("solution.cpp", solution), ("a.svg", kept)):
        (lesson / name).write_text(text)
    program = pathlib.Path(folder) / "program"
    program.write_text(f"#!/bin/sh\nprintf '{prints}'\ncat >\"$1/a.svg\" <<'END'\n{drawn}END\n")
    program.chmod(0o755)
    return pages.Lesson(lesson), program


def expect(what, fault, **planted):
    with tempfile.TemporaryDirectory() as folder:
        lesson, program = lesson_in(folder, **planted)
        found = pages.check(lesson, program, pathlib.Path(folder))
    if fault is None and found or fault is not None and not any(fault in text for text in found):
        print(f"{what}: expected {fault!r}, got {found}")
        return 1
    return 0


def expect_grade(what, passed, report, code=0):
    """The grade of a program that prints something, and whose tests report this for each gap."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "tests"
        program.write_text("#!/bin/sh\necho '<?xml is here'\nfor word; do file=${word#--out=}; done\n"
                           f"cat >\"$file\" <<'END'\n{report}\nEND\nexit {code}\n")
        program.chmod(0o755)
        lesson, _ = lesson_in(folder)
        result = grade.grade(lesson, program)
    printed = all(gap["printed"] == "<?xml is here\n" for gap in result["gaps"])
    if result["passed"] != passed or result["of"] != 3 or not printed:
        print(f"{what}: expected {passed} of 3, got {result}")
        return 1
    return 0


def case(inside, success="true"):
    return (f'<?xml version="1.0"?><doctest><TestSuite><TestCase name="gap 1: it works">{inside}'
            f'<OverallResultsAsserts test_case_success="{success}"/></TestCase></TestSuite></doctest>')


FAILED = ('<Expression success="false" type="CHECK" filename="a.cpp" line="1">'
          '<Original>a</Original><Expanded>b</Expanded></Expression>')
THROWN = '<Exception crash="false">not written yet</Exception>'


def expect_hint():
    crashed = case('<Exception crash="true">SIGSEGV - a signal</Exception>', "false")
    test, = (grade.test_of(found) for found in ElementTree.fromstring(crashed).iter("TestCase"))
    if "An index is out of range" not in test["messages"][0]:
        print(f"a crash: got {test}")
        return 1
    return 0


def script_in(folder, commands):
    """A program of the shell in the place of a lesson's tests."""
    program = pathlib.Path(folder) / "tests"
    program.write_text(f"#!/bin/sh\n{commands}\n")
    program.chmod(0o755)
    return program


def expect_abort():
    """Tests that end by a signal: the signal's name, and what it may be."""
    with tempfile.TemporaryDirectory() as folder:
        test, = grade.run_gap(script_in(folder, "kill -ABRT $$"), 2)["tests"]
    if test["passed"] or test["name"] != "gap 2" or "by SIGABRT\nAn index is out of range" not in test["messages"][0]:
        print(f"an abort: got {test}")
        return 1
    return 0


def expect_endless():
    """Tests that never end: first a line on stderr, then a grade."""
    with tempfile.TemporaryDirectory() as folder:
        program = script_in(folder, "echo turn\nfor word; do file=${word#--out=}; done\n"
                            "printf '<doctest><TestCase name=\"gap 1: first\"/><TestCase name=\"gap 1: a &gt; b\">\\n'"
                            " >\"$file\"\nexec sleep 100")
        before, grade.PATIENCE, grade.LONGEST = (grade.PATIENCE, grade.LONGEST), 0.5, 1
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            result = grade.run_gap(program, 1)
        grade.PATIENCE, grade.LONGEST = before
    test, = result["tests"]
    if (test["passed"] or test["name"] != "gap 1: a > b" or "an endless loop?" not in test["messages"][0]
            or result["printed"] != "turn\n" or said.getvalue().count("\n") != 1
            or not said.getvalue().endswith("still running after 0.5 s (it may take 1 s): gap 1: a > b\n")):
        print(f"an endless loop: got {result} and {said.getvalue()!r}")
        return 1
    return 0


def expect_stopped():
    """Of tests that print without end the last is kept; what tests or a build leave running is not waited for."""
    before, grade.MOST_WRITTEN, began = (grade.MOST_WRITTEN, lessons.BUILD), 10000, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        printed = grade.run_gap(script_in(folder, "exec seq 99999"), 1)
        left = grade.run_gap(script_in(folder, f"(sleep 0.3; touch {folder}/lives; sleep 9) &\n"
                                       "for word; do file=${word#--out=}; done\n"
                                       f"cat >\"$file\" <<'END'\n{case('')}\nEND"), 1)
        lessons.BUILD = script_in(folder, "sleep 9 | cat")
        with contextlib.suppress(subprocess.TimeoutExpired):
            lessons.build(pathlib.Path(folder), seconds=0.6)
        lives = (pathlib.Path(folder) / "lives").exists()
    (grade.MOST_WRITTEN, lessons.BUILD), took = before, time.monotonic() - began
    if (len(printed["printed"]) != grade.MOST_PRINTED or "SIGXFSZ\\nIt wrote more" not in str(printed["tests"][0])
            or "\n2200\n" not in printed["printed"] or not left["passed"] or lives or took > 5):
        print(f"what is stopped: got {printed}, {left}, {lives} and {took} s")
        return 1
    return 0


def expect_said(what, text, expected):
    if (got := lessons.said_by_compiler(text)) != expected:
        print(f"{what}: expected {expected!r}, got {got!r}")
        return 1
    return 0


def expect_link():
    with tempfile.TemporaryDirectory() as folder:
        lesson, _ = lesson_in(folder)
        page = lesson.folder / "README.md"
        text = "[why E[x] lies](README.md) and [a gap](exercise.cpp#L2)"
        found = pages.linked(text, lesson.folder, pathlib.Path(folder), pathlib.Path(folder), {page: "01_a.html"})
    if found != "[why E[x] lies](01_a.html) and [a gap](source/lessons/01_a/exercise.cpp.html#L2)":
        print(f"links: got {found}")
        return 1
    return 0


def expect_changed():
    """A page is made of more than its text."""
    with tempfile.TemporaryDirectory() as folder:
        lesson, _ = lesson_in(folder)
        os.utime(lesson.folder / "lesson.cpp", (2**32, 2**32))
        if (got := pages.changed(lesson)) != 2**32:
            print(f"a page that is out of date: got {got}")
            return 1
    return 0


def expect_site():
    """Each page is there although no program ran, code links to its line, and links to a missing line are found."""
    if shutil.which("pandoc") is None:
        print("lessons_test: the site is NOT TESTED: there is no pandoc")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        pages.make_pages([], None, site)
        faults = pages.check_site(site)
        index = (site / "index.html").read_text()
        sections = json.loads(index.partition('id="sections">')[2].partition("</script>")[0])
        tape = next((text for link, title, text in sections if link == "03_tape.html#better-steps"), "")
        page = site / "03_tape.html"
        code = re.search(r'class="from"><a href="(source/lessons/03_tape/lesson.cpp.html)#(L\d+)">', page.read_text())
        line = code and re.search(f'id="{code.group(2)}">(.*)<', (site / code.group(1)).read_text()).group(1)
        page.write_text(page.read_text().replace(f"#{code.group(2)}", "#L9999") if code else "")
        planted = pages.check_site(site)
    if faults or "momentum" not in tape or not line or "Where an entry came from" not in line or not planted:
        print(f"a site: got {faults}, {tape!r}, {line!r} and {planted}")
        return 1
    return 0


def expect_handout():
    """A copy has what git knows, and none of our answers."""
    with tempfile.TemporaryDirectory() as folder:
        root, copy = pathlib.Path(folder) / "root", pathlib.Path(folder) / "copy"
        lesson, _ = lesson_in(root)
        (lesson.folder / "lesson.py").write_text(CELLS)
        (root / "lessons" / "wrong_answers.toml").write_text("1 = []\n")
        for command in (["init", "-q"], ["add", "lessons"]):
            subprocess.run(["git", "-C", root, *command], check=True)
        with contextlib.redirect_stdout(io.StringIO()):
            lessons.write_handout(copy, root)
        found = sorted(file.relative_to(copy).as_posix() for file in copy.rglob("*") if file.is_file())
        expected = sorted(file.relative_to(root).as_posix() for file in (root / "lessons").rglob("*")
                          if file.is_file() and file.name != "lesson.py")
        answers = (copy / "lessons/01_a/solution.cpp").read_text() + (copy / "lessons/wrong_answers.toml").read_text()
    if found != expected or answers != lessons.NO_ANSWERS:
        print(f"a handout: got {found}: {answers}")
        return 1
    return 0


def expect_causes():
    """A gap that fails only where a test needs an earlier one names that gap."""
    def gap(number, *tests):
        return {"gap": number, "tests": [{"name": name, "passed": passed, "messages": []} for name, passed in tests]}

    gaps = [gap(1, ("gap 1: a", False)), gap(2, ("gap 2: b", True)), gap(3, ("gap 3: c (needs gaps 1 and 2)", False))]
    grade.name_causes(gaps)
    alone = [gap(1, ("gap 1: a", True)), gap(2, ("gap 2: b (needs gap 1)", False))]
    grade.name_causes(alone)
    if [one.get("because_of") for one in gaps + alone] != [None, None, [1], None, None]:
        print(f"causes: got {gaps} and {alone}")
        return 1
    return 0


# 2^30 classes, in no loop that a compiler counts.
BOMB = """template <int N, long K> struct Bomb {
  static constexpr long value = Bomb<N - 1, 2 * K>::value + Bomb<N - 1, 2 * K + 1>::value;
};
template <long K> struct Bomb<0, K> { static constexpr long value = K; };
long bomb = Bomb<30, 0>::value;
"""


def expect_marks():
    """A class: answers that pass, that are those of the exercise, that do not compile, that crash, and none."""
    files = {"ann": "int x;", "bob": pages.HERE.joinpath("03_tape/exercise.cpp").read_text(), "cy": "no",
             "dee": '#define A "solution.cpp"\n#include A', "eve": "crash", "fay": None, "gus": "link", "hal": "slow",
             "ivy": BOMB}
    with tempfile.TemporaryDirectory() as folder:
        students, programs = pathlib.Path(folder) / "class", pathlib.Path(folder) / "lessons"
        program, source = programs / "lesson_03_graded", programs / "graded/03/exercise.cpp"
        for file in (programs / "solution.cpp", students / "eve/03_tape/exercise.cpp"):
            file.parent.mkdir(parents=True)
            file.write_text("")
        (pathlib.Path(folder) / "build.ninja").write_text(
            "rule preprocess\n  command = c++ -E -MD -MF d -Ilessons $in -o $out\n  depfile = d\n  deps = gcc\n"
            f"build lessons/CMakeFiles/{program.name}.dir/graded/03/exercise.cpp.o: preprocess {source}\n")
        for student, text in files.items():
            file = students / student / ("lessons/03_tape" if student == "eve" else "03_tape") / "exercise.cpp"
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                file.write_text(text)
        script_in(folder, "for word; do file=${word#--out=}; done\n[ \"$PWD\" = \"${file%/*}\" ] || exit 1\n"
                  f"grep -q crash '{source}' && kill -SEGV $$\n"
                  f"cat >\"$file\" <<'END'\n{case('')}\nEND").rename(program)

        before, marks.MOST_MEMORY = (lessons.BUILD, marks.MOST_MEMORY), 2**28
        lessons.BUILD = script_in(folder, f"exec c++ -fsyntax-only '{source}' >'{folder}/build.log' 2>&1")

        def build(*targets, **limits):
            if targets != (program.name,):
                return write(students, None)  # at the same time
            if (text := source.read_text()) == "slow":
                raise subprocess.TimeoutExpired("c++", limits["seconds"])
            if text == BOMB:
                return lessons.build(pathlib.Path(folder), *targets, **limits)
            subprocess.run(["ninja"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            return {"no": f"In file included from base/error.h\n{source}:1:1: error: 'no' has no type",
                    "link": "ld: a: undefined reference to `f()'\ncollect2: error: ld returned 1"}.get(text)

        def write(folder, compiles):
            try:
                marks.write(folder, programs, lambda *_: compiles, io.StringIO())
            except RuntimeError as error:
                faults.append(str(error))

        out, said, faults = io.StringIO(), io.StringIO(), []
        with contextlib.redirect_stderr(said):
            marks.write(students, programs, build, out)
            for broken, compiles in ((students / "fay", None), (students / "none", None), (students, "no space")):
                write(broken, compiles)
    lessons.BUILD, marks.MOST_MEMORY = before
    expected = "student,3,total,of\nann,3 of 3,3,3\n" + "".join(f"{name},0 of 3,0,3\n" for name in
                                                                list(files)[1:])
    reasons = ["bob, lesson 3: no gap is filled", "cy, lesson 3: it does not compile: exercise.cpp:1:1: error: 'no'",
               "dee, lesson 3: it includes another .cpp", "eve, lesson 3: gap 3: the program ended in the middle",
               "fay, lesson 3: nothing is handed in", "eve, lesson 3: handed in twice",
               "gus, lesson 3: it does not compile: ld: a: undefined", "hal, lesson 3: it does not compile in 120 s",
               "ivy, lesson 3: it does not compile in 256 MiB of memory: templates that"]
    if (out.getvalue() != expected or not all(reason in said.getvalue() for reason in reasons)
            or [re.search("somebody else|found none|no folder|no space|$", text).group() for text in faults]
            != ["somebody else", "found none", "no folder", "no space"]):
        print(f"marks: got {out.getvalue()}{said.getvalue()}{faults}")
        return 1
    return 0


def expect_hints():
    """Each hint is one for a gap that is there."""
    table = tomllib.loads((pages.HERE / "hints.toml").read_text())
    known = {lesson.number: {str(gap) for gap in lesson.gaps()} for lesson in pages.all_lessons()}
    wrong = [number for number, hints in table.items() if not set(hints) <= known.get(number, set())]
    lesson = next(lesson for lesson in pages.all_lessons() if lesson.number == "9")
    said = lessons.hint_for(lesson, 2), lessons.hint_for(pages.all_lessons()[0], 1)
    if wrong or "five steps" not in said[0] or "say all there is" not in said[1]:
        print(f"hints: got {wrong} and {said}")
        return 1
    return 0


CELLS = ("# %% text\nprint(1)\n# %% cpp\nrate = 0.125\n# %% prose\n# The mean is 0.25,\n# ->\n# Its mean is 0.25,\n" +
         "".join(f"# %% gap {gap}\ndef f():\n    ### BEGIN SOLUTION\n    return {gap}\n    ### END SOLUTION\n"
                 f"# %% check {gap}\nassert f() == {gap}\n" for gap in "123"))
EXERCISE = "\n```sh\n./run lesson 1 --check\n```\n\nThe end.\n"


def expect_notebook(what, fault, cells=CELLS, page=PAGE + EXERCISE):
    """A fault of a lesson.py; without one, what its notebook has."""
    with tempfile.TemporaryDirectory() as folder:
        lesson, _ = lesson_in(folder, page=page)
        (lesson.folder / "lesson.py").write_text(cells)
        (pathlib.Path(folder) / "docs").mkdir()
        (pathlib.Path(folder) / "docs" / "python.md").write_text("")
        found = notebooks.check(lesson)
        if fault is None and not found:
            for solved in (False, True):
                made = notebooks.notebook_of(lesson, pathlib.Path(folder), pathlib.Path(folder), {}, solved)["cells"]
                code = [cell["source"] for cell in made if cell["cell_type"] == "code"]
                answer = "    return 1" if solved else '    raise NotImplementedError("gap 1 is not filled yet")'
                markdown = "".join(cell["source"] for cell in made if cell["cell_type"] == "markdown")
                if (code[:4] != ["print(1)", "rate = 0.125", f"def f():\n{answer}", "assert f() == 1"] or len(code) != 8
                        or made[3]["outputs"][0]["text"] != "mean 0.25\nmeasured 3.1 GB/s\n" or "```" in markdown
                        or "Its mean is 0.25, and the" not in markdown or not markdown.endswith("The end.")
                        or "(01_a_a.svg)" not in markdown or not (pathlib.Path(folder) / "01_a_a.svg").exists()):
                    found.append(str(made))
    if fault is None and found or fault is not None and not any(fault in text for text in found):
        print(f"{what}: expected {fault!r}, got {found}")
        return 1
    return 0


faults = sum([
    expect_link(),
    expect_changed(),
    expect_handout(),
    expect_site(),
    expect_causes(),
    expect_marks(),
    expect_hints(),
    expect_notebook("a good notebook", None),
    expect_notebook("a block without a cell", "expected a cell 'cpp' for the block that begins with '  double rate",
                    CELLS.replace("# %% cpp\nrate = 0.125\n", "")),
    expect_notebook("a cell without a block", "the page has no block for the last 1 cells", CELLS + "# %% cpp\n"),
    expect_notebook("words that are not on the page", "expected once on the page: 'The mean is 0.26,'",
                    CELLS.replace("The mean is 0.25", "The mean is 0.26")),
    expect_notebook("words that are there twice", "expected once on the page", page=PAGE + PAGE + EXERCISE),
    expect_notebook("words of C++", "the notebook says 'exercise.cpp'", page=PAGE + EXERCISE + "Open exercise.cpp.\n"),
    expect_notebook("a gap without its solution", "gap 2: expected one ### BEGIN SOLUTION",
                    CELLS.replace("    ### END SOLUTION\n# %% check 2", "# %% check 2")),
    expect_notebook("a gap too few", "expected gap 1, check 1", CELLS.partition("# %% gap 3")[0]),
    expect_notebook("no exercise on the page", "has no block 'sh'", page=PAGE),
    expect_notebook("a kind of cell that is none", "what kind of cell is '# %% txt'?",
                    CELLS.replace("# %% text", "# %% txt")),
    expect_notebook("a cell that prints nothing", "a cell 'text' without code",
                    CELLS.replace("print(1)\n", "")),
    expect("a good lesson", None),
    expect("a number that is not printed", "the program does not print this; first: 'mean 0.25'",
           prints="mean 0.26\\nmeasured 1 GB/s\\n"),
    expect("other words in a measured line", "does not print this", prints="mean 0.25\\nmeasured 1 MB/s\\n"),
    expect("a number in the prose", "line 3: the program does not print the number 0.126",
           page=PAGE.replace("rate 0.125", "rate 0.126")),
    expect("a large number in a formula", "the number 2048", page=PAGE + "\n$n = 2048$\n"),
    expect("a measured number in the prose", "the number 12.75", page=PAGE + "\n12.75 GB/s\n"),
    expect("code that is elsewhere", "this code stands in no file",
           page=PAGE.replace("double rate = 0.125;", "float rate = 0.125;")),
    expect("code of a file that is not there", "there is no file core/a.h",
           page=PAGE.replace("```cpp", "```cpp core/a.h")),
    expect("no output", "has no ```text block", page=PAGE.replace("```text", "```sh")),
    expect("another picture", "a.svg is not what the program draws", drawn=SVG.format("y")),
    expect("a measured picture with other numbers", None,
           drawn=SVG.format("measured 2"), kept=SVG.format("measured 1.5")),
    expect("a measured picture with other words", "differs by more than numbers", drawn=SVG.format("measured 2"),
           kept=SVG.format("then measured 2")),
    expect("a picture that the page does not show", "the page does not show a.svg",
           page=PAGE.replace("![a picture]", "![]")),
    expect("a picture that is not drawn", "the program does not draw b.svg",
           page=PAGE.replace("(a.svg)", "(a.svg) ![b](b.svg)")),
    expect("a gap too few", "exercise.cpp: expected the comments", exercise="// GAP 1: fill it\n"),
    expect("two gaps", None, exercise=GAPS.partition("// GAP 3")[0], solution=GAPS.partition("// GAP 3")[0],
           tests=TESTS.partition('TEST_CASE("gap 3')[0]),
    expect("a gap without a test", "test.cpp: expected cases of gaps 1, 2", tests=TESTS.replace("gap 2", "gap 1")),
    expect("no gap", "test.cpp: expected cases of gaps", tests="", exercise="", solution=""),
    expect("a test without a gap", "expected a name like", tests=TESTS + 'TEST_CASE("it works") {}'),
    expect_grade("tests that pass", 3, case("")),
    expect_grade("a check that fails", 0, case(FAILED, "false"), 1),
    expect_grade("an exception", 0, case(THROWN, "false"), 1),
    expect_hint(),
    expect_abort(),
    expect_endless(),
    expect_stopped(),
    expect_said("a compiler's message", "[1/2] Building CXX\nFAILED: a.o\n/usr/bin/c++ -c a.cpp\na.cpp:1:2: error: b\n",
                "a.cpp:1:2: error: b"),
    expect_said("the linker's message", ": && /usr/bin/c++ a.o\n/usr/bin/ld: a.o: undefined reference to `f()'\n",
                "/usr/bin/ld: a.o: undefined reference to `f()'"),
    expect_said("nothing of the compiler", "[0/1] Re-checking\nninja: error: no\n",
                "[0/1] Re-checking\nninja: error: no"),
    expect_grade("no test case at all", 0, '<?xml version="1.0"?><doctest/>'),
    expect_grade("a crash", 0, '<?xml version="1.0"?><doctest><TestSuite>', 139),
    expect_grade("an exit code of its own", 0, case(""), 1),
])
sys.exit(1 if faults else 0)
