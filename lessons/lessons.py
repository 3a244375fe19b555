#!/usr/bin/env python3
"""What ./run lesson and ./run lessons do, and the lessons' tests."""
import argparse
import functools
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tomllib

import grade
import marks
import notebooks
import pages

BUILD = pathlib.Path(__file__).resolve().parent.parent / "cmake/build.sh"


def said_by_compiler(text):
    """What is left of a build's output without the commands; all of it if that is nothing."""
    commands = ("[", "ninja:", "FAILED:", "/usr/bin/", "ccache ", ": &&")
    said = [line for line in text.splitlines() if not line.startswith(commands) or line.startswith("/usr/bin/ld:")]
    return "\n".join(said).strip() or text.strip()


def build(folder, *target, seconds=None, memory=None):
    """Builds a target; what the compiler said if it failed, else None. Throws after some seconds. `memory`: bytes that
    each process may have."""
    command = [BUILD, "--caller-says-why", folder, "--target", *target, "-j", str(os.cpu_count() or 2)]
    limits = {"preexec_fn": lambda: grade.limit(resource.RLIMIT_AS, memory)} if memory else {}
    with grade.started(command, signal.SIGTERM, **limits) as process:  # at which ninja stops its compilers
        process.wait(seconds)
    if process.returncode != 0:
        return said_by_compiler((folder / "build.log").read_text(errors="replace"))


def built(folder, *target):
    if subprocess.run([BUILD, folder, "--target", *target, "-j", str(os.cpu_count() or 2)]).returncode != 0:
        sys.exit(1)


def find_lesson(text):
    lessons = pages.all_lessons()
    for lesson in lessons:
        if text in (lesson.number, lesson.folder.name[:2], lesson.name, lesson.folder.name):
            return lesson
    sys.exit(f"run: lesson: expected one of {', '.join(f'{l.number} ({l.name})' for l in lessons)}, got '{text}'")


def show_page(lesson, args):
    print(f"lesson {lesson.number}: building", file=sys.stderr)
    built(args.build, lesson.target())
    program = args.programs / lesson.target()
    if args.accept:
        return pages.accept(lesson, program)
    site = args.build / "lessons_page"
    print("\n".join(pages.make_pages([lesson], lambda _: program, site)[lesson.number]))
    page = site / f"{lesson.folder.name}.html"
    print(f"\npage:     {page}\nexercise: {lesson.folder / 'exercise.cpp'}")
    print(f"check it: ./run lesson {lesson.number} --check")
    opener = shutil.which("xdg-open")
    if opener and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([opener, page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def check_answers(lesson, args):
    kind = "solution" if args.solution else "exercise"
    answers = lesson.text(f"{kind}.cpp")
    text = build(args.build, lesson.target(kind))
    program = args.programs / lesson.target(kind)
    if text is None and not args.solution and grade.takes_answers(program, f"{lesson.folder.name}/exercise.cpp"):
        text = "It includes another .cpp file. Write the answers into the gaps."
    result = grade.grade(lesson, program, answers) if text is None else grade.not_built(lesson, text)
    grade.show(result, os.path.relpath(lesson.folder / f"{kind}.cpp"), args.json)
    sys.exit(0 if result["passed"] == result["of"] else 1)


def hint_for(lesson, gap, hints=pages.HERE / "hints.toml"):
    if gap not in lesson.gaps():
        sys.exit(f"run: lesson: --hint: expected one of the gaps {', '.join(map(str, lesson.gaps()))}, got {gap}")
    hint = tomllib.loads(hints.read_text(encoding="utf-8")).get(lesson.number, {}).get(str(gap))
    return f"gap {gap}: {hint or 'the comment in exercise.cpp and the page say all there is.'}"


def lesson_command(args):
    lesson = find_lesson(args.lesson)
    if args.hint is not None:
        print(hint_for(lesson, args.hint))
        return
    if args.json and not args.check:
        sys.exit("run: lesson: --json goes with --check")
    if args.check:
        check_answers(lesson, args)
    elif args.solution:
        print(lesson.text("solution.cpp"), end="")
    else:
        show_page(lesson, args)


NO_ANSWERS = """// Our answers are not handed out. What needs them, such as the page's program, takes yours.
#include "exercise.cpp"
"""


def write_handout(folder, root=BUILD.parents[1]):
    """A copy of the files that git knows, without our answers and without history."""
    if folder.exists():
        raise RuntimeError(f"lessons: --handout: {folder} is there already")
    names = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, names.split("\0")):
        file = folder / name
        if re.fullmatch(r"lessons/[^/]*/lesson\.py", name):  # cells of notebooks, answers and all
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        if re.fullmatch(r"lessons/[^/]*/solution\.cpp", name):
            file.write_text(NO_ANSWERS, encoding="utf-8")
        elif name == "lessons/wrong_answers.toml":
            file.write_text("", encoding="utf-8")
        else:
            shutil.copy(root / name, file, follow_symlinks=False)
    print(f"the course without answers: {folder}")


def lessons_command(args):
    if args.handout:
        return write_handout(args.handout.resolve())
    if args.grade:
        return marks.write(args.grade.resolve(), args.programs, functools.partial(build, args.build))
    if args.solved and not args.notebooks:
        sys.exit("run: lessons: --solved goes with --notebooks")
    if args.notebooks:
        folder = args.notebooks.resolve()
        written = notebooks.write(folder, args.solved)
        print(f"{len(written)} notebooks: {', '.join(written)} in {folder}")
        return
    lessons = pages.all_lessons()
    if not args.site:
        for lesson in lessons:
            print(f"{lesson.title}")
        print("one of them: ./run lesson 1")
        return
    built(args.build, *(lesson.target() for lesson in lessons))
    site = args.site.resolve()
    pages.make_pages(lessons, lambda lesson: args.programs / lesson.target(), site)
    if faults := pages.check_site(site):
        sys.exit("\n".join(faults))
    print(f"{len(lessons)} lessons: {site / 'index.html'}")


def test_command(args):
    """For ctest: the page agrees with the program, each gap of the exercise fails, the solution passes."""
    lesson = find_lesson(args.lesson)
    faults = pages.check(lesson, args.programs / lesson.target())
    if (lesson.folder / "lesson.py").exists():
        faults += notebooks.check(lesson)
    unsolved = grade.grade(lesson, args.programs / lesson.target("exercise"))
    for gap in unsolved["gaps"]:
        if gap["passed"]:
            faults.append(f"exercise.cpp: the tests of gap {gap['gap']} pass before it is filled")
        faults += [f"test.cpp: {test['name']}: its failure explains nothing: {test['messages']}"
                   for test in gap["tests"]
                   if not test["passed"] and all(text.startswith("line ") for text in test["messages"])]
        faults += [f"test.cpp: {test['name']}: a const char* is shown as an address, make it a std::string: {text}"
                   for test in gap["tests"] for text in test["messages"] if re.search("0x[0-9a-f]{6}", text)]
    solved = grade.grade(lesson, args.programs / lesson.target("solution"))
    if solved["passed"] != solved["of"]:
        grade.show(solved, "solution.cpp", as_json=False)
        faults.append("solution.cpp does not pass")
    for fault in faults:
        print(f"{lesson.folder.name}: {fault}")
    sys.exit(1 if faults else 0)


def main():
    parser = argparse.ArgumentParser(prog="./run", description="Norma's lessons")
    parser.add_argument("--build", type=pathlib.Path, help=argparse.SUPPRESS)  # the build folder
    parser.add_argument("--programs", type=pathlib.Path, help=argparse.SUPPRESS)  # where the lessons' programs are
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("lesson", help="one lesson: builds, runs, writes the page and opens it")
    one.add_argument("lesson", metavar="N", help="its number or name")
    one.add_argument("--check", action="store_true", help="run the tests of your exercise.cpp")
    one.add_argument("--json", action="store_true", help="with --check: the result as JSON")
    one.add_argument("--hint", type=int, metavar="GAP", help="say how a gap of exercise.cpp may be filled")
    one.add_argument("--solution", action="store_true", help="print solution.cpp; with --check: test it")
    one.add_argument("--accept", action="store_true", help="for authors: keep the pictures beside the page")
    one.set_defaults(call=lesson_command)
    course = commands.add_parser("lessons", help="the list; all pages as a site, or some as notebooks")
    course.add_argument("--site", type=pathlib.Path, metavar="DIR", help="write a static site that needs no network")
    course.add_argument("--notebooks", type=pathlib.Path, metavar="DIR", help="write those that are in Python, too")
    course.add_argument("--handout", type=pathlib.Path, metavar="DIR", help="write the course without our answers")
    course.add_argument("--grade", type=pathlib.Path, metavar="DIR",
                        help="marks as CSV: DIR has a folder for each student with NN_name/exercise.cpp in it")
    course.add_argument("--solved", action="store_true", help="with --notebooks: with our answers in the gaps")
    course.set_defaults(call=lessons_command)
    test = commands.add_parser("test")
    test.add_argument("lesson")
    test.set_defaults(call=test_command)
    args = parser.parse_args()
    args.programs = args.programs or args.build and args.build / "lessons"
    try:
        args.call(args)
    except KeyboardInterrupt:
        sys.exit(130)
    except (RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"run: {error}")


if __name__ == "__main__":
    main()
