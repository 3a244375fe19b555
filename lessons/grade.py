"""The student's tests of one lesson: each gap in a process of its own, so that one that crashes costs no other."""
import contextlib
import html
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from pages import QUIET_THREADS

LONGEST = 60  # seconds for a gap
PATIENCE = 4  # seconds until a student hears that the tests still run
MOST_MESSAGES = 2
MOST_PRINTED = 2000  # characters of what the student's code prints
MOST_WRITTEN = 2**26  # bytes of a file that it writes
CRASH = "\nAn index is out of range, or a loop runs too far."
ENDLESS_LOOP = re.compile(r"size_t\s+(\w+)\s*=[^;]*;\s*\1\s*>=\s*0\s*;")
NO_SIZE_BELOW_0 = " A loop down to 0 must not say i >= 0: no size_t is below 0."


def text_of(element, tag):
    return (element.findtext(tag) or "").strip()


def message_of(failure):
    """A failed check of doctest as text: first what the test says about it."""
    lines = [info.text.strip() for info in failure.findall("Info") if info.text]
    file = failure.get("filename", "").rsplit("/", 1)[-1]
    lines.append(f"line {failure.get('line')} of {file}: {text_of(failure, 'Original')}")
    values = text_of(failure, "Expanded")
    if values and "{?}" not in values:  # what doctest cannot print
        lines.append(f"  was: {values}")
    lines += [f"  threw: {text_of(failure, tag)}" for tag in ("Exception", "FatalException")
              if failure.find(tag) is not None]
    return "\n".join(lines)


def test_of(case):
    """{"name", "passed", "notes", "messages"} of a test case: why it failed, and what it says besides."""
    checks = [check for check in case.iter("Expression") if check.get("success") == "false"]
    messages, notes = [message_of(check) for check in checks], []
    for message in case.iter("Message"):
        (notes if message.get("type") == "WARNING" else messages).append(text_of(message, "Text"))
    thrown = [exception.text.strip() for exception in case.findall("Exception") if exception.text]
    messages += [text + (CRASH if text.startswith("SIGSEGV") else "") for text in thrown]
    overall = case.find("OverallResultsAsserts")
    passed = not messages and (overall is None or overall.get("test_case_success") != "false")
    left_out = len(messages) - MOST_MESSAGES
    return {"name": case.get("name"), "passed": passed, "notes": notes,
            "messages": messages[:MOST_MESSAGES] + ([f"and {left_out} more"] if left_out > 0 else [])}


def begun_last(report, gap):
    """The name of the test that a report, which may have no end yet, is about."""
    text = report.read_text(encoding="utf-8", errors="replace") if report.exists() else ""
    names = re.findall(rf'<TestCase name="(gap {gap}: [^"]*)"', text)
    return html.unescape(names[-1]) if names else f"gap {gap}"


def limit(what, most):
    """Limits this process and those that it starts, to less than `most` where they were limited to that before."""
    _, before = resource.getrlimit(what)
    resource.setrlimit(what, (most if before == resource.RLIM_INFINITY else min(most, before),) * 2)


@contextlib.contextmanager
def started(command, stop, **how):
    """A process that reads nothing. What it began and left running gets the signal `stop`."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **how) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, stop)


def ends_in_time(process, running):
    """`running()` names what the process does."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
        return True
    with contextlib.suppress(subprocess.TimeoutExpired):
        print(f"still running after {PATIENCE} s (it may take {LONGEST} s): {running()}", file=sys.stderr, flush=True)
        process.wait(LONGEST - PATIENCE)
        return True
    return False


def run_gap(program, gap):
    """{"gap", "passed", "printed", "tests"}: `printed` is what the student's code writes."""
    def broken(text, name=f"gap {gap}"):
        test = {"name": name, "passed": False, "notes": [], "messages": [text]}
        return {"gap": gap, "passed": False, "printed": printed, "tests": [test]}

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, tempfile.TemporaryFile() as output:
        report = pathlib.Path(folder) / "report.xml"
        command = [pathlib.Path(program).resolve(), f"--test-case=gap {gap}: *", "--reporters=xml", f"--out={report}"]
        # Python runs `preexec_fn` in the new process, which is safe as there is one thread.
        with started(command, signal.SIGKILL, stdout=output, stderr=output, env=QUIET_THREADS, cwd=folder,
                     preexec_fn=lambda: limit(resource.RLIMIT_FSIZE, MOST_WRITTEN)) as process:
            ended = ends_in_time(process, lambda: begun_last(report, gap))
        output.seek(max(0, output.seek(0, os.SEEK_END) - 4 * MOST_PRINTED))  # a character has up to 4 bytes
        printed = output.read(4 * MOST_PRINTED).decode(errors="replace")[-MOST_PRINTED:]
        if not ended:
            return broken(f"did not end within {LONGEST} s, and was stopped: an endless loop?", begun_last(report, gap))
        try:
            tree = ElementTree.parse(report).getroot()
        except (ElementTree.ParseError, OSError):
            code = process.returncode
            full = f"\nIt wrote more than {MOST_WRITTEN >> 20} MiB: an endless loop that prints?"
            cause = full if code == -signal.SIGXFSZ else CRASH
            how = f"by {signal.Signals(-code).name}" + cause if code < 0 else f"with exit code {code}"
            return broken(f"the program ended in the middle of the test, {how}", begun_last(report, gap))
    tests = [test_of(case) for case in tree.iter("TestCase") if case.get("skipped") != "true"]
    passed = bool(tests) and all(test["passed"] for test in tests) and process.returncode == 0
    return {"gap": gap, "passed": passed, "printed": printed, "tests": tests}


def needs(test):
    """The earlier gaps that a test needs: its name says "(needs gaps 1 and 2)"."""
    named = re.search(r"\(needs gaps? ([^)]*)\)", test["name"])
    return {int(gap) for gap in re.findall(r"\d", named.group(1))} if named else set()


def name_causes(gaps):
    """Where only such tests of a gap fail as need an earlier gap that is wrong, says so: {"because_of": [1]}."""
    wrong = set()
    for gap in gaps:
        failed = [test for test in gap["tests"] if not test["passed"]]
        causes = [needs(test) & wrong for test in failed]
        if failed and all(causes):
            gap["because_of"] = sorted(set.union(*causes))
            for test in failed:
                test["messages"].insert(0, f"This test needs gap {min(needs(test) & wrong)}, which is not right yet.")
        elif failed:
            wrong.add(gap["gap"])


def grade(lesson, program, answers=""):
    """`answers`: the text of the student's file, for hints about a crash."""
    gaps = [run_gap(program, gap) for gap in lesson.gaps()]
    name_causes(gaps)
    if ENDLESS_LOOP.search(answers):
        for test in (test for gap in gaps for test in gap["tests"]):
            test["messages"] = [text.replace(CRASH, CRASH + NO_SIZE_BELOW_0) for text in test["messages"]]
    return {"lesson": lesson.number, "name": lesson.name, "built": True,
            "passed": sum(gap["passed"] for gap in gaps), "of": len(gaps), "gaps": gaps}


def takes_answers(program, source):
    """True iff a program's source includes another .cpp file: asks what the compiler read, as text hides it easily."""
    place = program.parent
    command = ["ninja", "-t", "deps", f"{place.name}/CMakeFiles/{program.name}.dir/{source}.o"]
    read = subprocess.run(command, cwd=place.parent, check=True, stdout=subprocess.PIPE, text=True).stdout
    return len(re.findall(r"\.cpp$", read, re.M)) != 1  # the source itself


def not_built(lesson, text):
    return {"lesson": lesson.number, "name": lesson.name, "built": False,
            "passed": 0, "of": len(lesson.gaps()), "gaps": [], "message": text}


def show(result, file, as_json):
    """Prints a result for a student, or for a program."""
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    print(f"lesson {result['lesson']}, {result['name']}")
    if not result["built"]:
        print(f"{result['message']}\n{file} is not graded.")
        return
    for gap in result["gaps"]:
        for test in gap["tests"]:
            print(f"  {'passed' if test['passed'] else 'FAILED'}  {test['name']}")
            for message in test["notes"] + test["messages"]:
                print("\n".join("          " + line for line in message.splitlines()))
        if gap["printed"]:
            print("          your code printed:\n" + gap["printed"].rstrip())
    done = result["passed"] == result["of"]
    print(f"{result['passed']} of {result['of']} gaps are right." + ("" if done else f" Open {file}"))
