"""./run lessons --grade FOLDER: marks of a class, a CSV line for each student."""
import csv
import fcntl
import re
import shutil
import subprocess
import sys

import grade
import pages

LONGEST_REASON = 200  # characters
LONGEST_BUILD = 120  # seconds for a student's file
MOST_MEMORY = 2**31  # bytes for its compiler, which needs less than 1 GiB for our answers
NO_MEMORY = re.compile("virtual memory exhausted|out of memory allocating|LLVM ERROR: out of memory")  # of GCC, Clang


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
                    if lesson.number in students[student.name]:
                        print(f"{student.name}, lesson {lesson.number}: handed in twice, the marks are of {file}",
                              file=sys.stderr)
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
    name = f"graded/{lesson.folder.name[:2]}/exercise.cpp"
    source = program.parent / name
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, source)
    try:
        said = build(lesson.target("graded"), seconds=LONGEST_BUILD, memory=MOST_MEMORY)
    except subprocess.TimeoutExpired:
        return 0, [f"it does not compile in {LONGEST_BUILD} s"]
    if said is not None and NO_MEMORY.search(said):
        return 0, [f"it does not compile in {MOST_MEMORY >> 20} MiB of memory: templates that make others without end?"]
    if said is not None:  # the linker's last line, also an error, names no cause
        error = next((line for cause in ("undefined reference|multiple definition", " error: ")
                      for line in said.splitlines() if re.search(cause, line)), said)
        return 0, ["it does not compile: " + re.sub(r"^\S*/(?=exercise\.cpp:)", "", error)]
    if grade.takes_answers(program, name):
        return 0, ["it includes another .cpp file"]
    result = grade.grade(lesson, program, answers)
    said = {gap["gap"]: [text for test in gap["tests"] for text in test["messages"]] for gap in result["gaps"]
            if not gap["passed"]}
    reasons = [f"gap {gap}: {messages[0] if messages else 'its program failed'}" for gap, messages in said.items()]
    return result["passed"], reasons


def write(folder, programs, build, out=sys.stdout):
    """The columns are the lessons that anybody has handed in. Why a gap is not right goes to stderr."""
    students = hand_ins(folder)
    lock = open(programs / "graded.lock", "w")  # held until this returns
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("lessons: --grade: somebody else grades in this clone; wait, or use another") from None
    lessons = [lesson for lesson in pages.all_lessons() if any(lesson.number in files for files in students.values())]
    # Norma, too, so that a student's file alone is compiled within its time.
    if (said := build(*(lesson.target("exercise") for lesson in lessons))) is not None:  # no fault of a student's
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
