#!/usr/bin/env python3
"""Wrong answers to the exercises (wrong_answers.toml): each is compiled and must fail with a message that helps."""
import argparse
import pathlib
import subprocess
import sys
import tomllib

import grade
import pages

TABLE = tomllib.loads((pages.HERE / "wrong_answers.toml").read_text(encoding="utf-8"))


def wrong_text(lesson, gap, right, wrong):
    """The solution with one mistake."""
    before, mark, rest = lesson.text("solution.cpp").partition(f"// GAP {gap}")
    if not mark or right not in rest:
        raise SystemExit(f"wrong_answers.toml: {lesson.folder.name}: gap {gap} of solution.cpp has no {right!r}")
    return before + mark + rest.replace(right, wrong, 1)


def write(lesson, folder):
    """Writes folder/K/exercise.cpp for each wrong answer, and prints how many there are."""
    answers = TABLE.get(lesson.number, [])
    for k, (gap, right, wrong, *_) in enumerate(answers):
        file = folder / str(k) / "exercise.cpp"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = wrong_text(lesson, gap, right, wrong)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    print(len(answers), end="")


def faults_of(lesson, program, answer, show):
    gap, right, wrong, says, *alone = answer  # a gap that fails because of another does not count
    text = wrong_text(lesson, gap, right, wrong)
    gaps = grade.grade(lesson, program, text)["gaps"] if alone else [grade.run_gap(program, gap)]
    said = "\n".join(text for result in gaps if result["gap"] == gap for test in result["tests"]
                     for text in test["messages"])
    failed = [result["gap"] for result in gaps if not result["passed"] and "because_of" not in result]
    what = f"lesson {lesson.number}, gap {gap}, {wrong!r} instead of {right!r}"
    if show:
        print(f"{what}\n{said}\n")
    if failed != [gap]:
        return [f"{what}: expected that gap {gap} alone fails, got {failed}\n{said}"]
    return [] if says in said else [f"{what}: expected {says!r}, got\n{said}"]


def test(lesson, build, programs, show):
    """Builds the wrong answers of a lesson and grades them."""
    answers = TABLE.get(lesson.number, [])
    names = [f"{lesson.target('wrong')}_{k}" for k in range(len(answers))]
    subprocess.run(["cmake", "--build", build, "--target", *names, "-j", "2"], check=True, stdout=subprocess.DEVNULL)
    faults = [fault for name, answer in zip(names, answers)
              for fault in faults_of(lesson, programs / name, answer, show)]
    for name in names:
        (programs / name).unlink()  # each holds a copy of Norma
    print("\n".join(faults) or f"lesson {lesson.number}: {len(names)} wrong answers fail as they should")
    sys.exit(1 if faults else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--show", action="store_true", help="print the message that each wrong answer gets")
    parser.add_argument("command", choices=["write", "test"])
    parser.add_argument("lesson", help="its number")
    args = parser.parse_args()
    lesson = next(one for one in pages.all_lessons() if args.lesson in (one.number, one.folder.name[:2]))
    if args.command == "write":
        write(lesson, args.programs)
    else:
        test(lesson, args.build, args.programs, args.show)


if __name__ == "__main__":
    main()
