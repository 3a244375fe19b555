"""./run lessons --grade FOLDER: marks of a class, a CSV line for each student."""
import csv
import re
import shutil
import sys

import grade
import pages

LONGEST_REASON = 200  # characters


def hand_ins(folder):
    """{student: {lesson's number: file}}. A student's folder has NN_name/exercise.cpp, or lessons/NN_name/exercise.cpp
    as in what --handout writes."""
    expected = "expected a folder for each student with NN_name/exercise.cpp in it"
    if not folder.is_dir():
        raise RuntimeError(f"lessons: --grade: {expected}, got {folder}, which is no folder")
    students = {}
    for student in sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")):
        students[student.name] = {}
        for lesson in pages.all_lessons():
            for place in (student, student / "lessons"):
                if (file := place / lesson.folder.name / "exercise.cpp").is_file():
                    students[student.name][lesson.number] = file
    if not any(students.values()):
        raise RuntimeError(f"lessons: --grade: {expected}, found none in {folder}")
    return students


def marks_of(lesson, file, program, build):
    """(gaps that are right, why the others are not). `build` compiles what was copied to the place of the program's
    source, and returns what the compiler said if it failed."""
    answers = file.read_text(encoding="utf-8", errors="replace")
    if answers == lesson.text("exercise.cpp"):
        return 0, ["no gap is filled"]
    if grade.takes_solution(answers):
        return 0, ["it includes a solution"]
    source = program.parent / "graded" / lesson.folder.name[:2] / "exercise.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, source)
    if (said := build(lesson.target("graded"))) is not None:
        error = next((line for line in said.splitlines() if "error" in line), said)
        return 0, ["it does not compile: " + re.sub(r"^\S*/(?=exercise\.cpp:)", "", error)]
    result = grade.grade(lesson, program, answers)
    said = {gap["gap"]: [text for test in gap["tests"] for text in test["messages"]] for gap in result["gaps"]
            if not gap["passed"]}
    reasons = [f"gap {gap}: {messages[0] if messages else 'its program failed'}" for gap, messages in said.items()]
    return result["passed"], reasons


def write(folder, programs, build, out=sys.stdout):
    """The columns are the lessons that anybody has handed in. Why a gap is not right goes to stderr."""
    students = hand_ins(folder)
    lessons = [lesson for lesson in pages.all_lessons() if any(lesson.number in files for files in students.values())]
    if (said := build(*(lesson.target("test") for lesson in lessons))) is not None:  # no fault of a student's
        raise RuntimeError(f"lessons: --grade: the tests do not compile\n{said}")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["student", *(lesson.number for lesson in lessons), "total", "of"])
    for student, files in students.items():
        marks = []
        for lesson in lessons:
            right, reasons = 0, ["nothing is handed in"]
            if lesson.number in files:
                right, reasons = marks_of(lesson, files[lesson.number], programs / lesson.target("graded"), build)
            marks.append((right, len(lesson.gaps())))
            for reason in reasons:
                text = " ".join(reason.split())
                print(f"{student}, lesson {lesson.number}: {text[:LONGEST_REASON]}", file=sys.stderr, flush=True)
        table.writerow([student, *(f"{right} of {gaps}" for right, gaps in marks),
                        sum(right for right, _ in marks), sum(gaps for _, gaps in marks)])
        out.flush()
