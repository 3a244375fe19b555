"""The student's tests of one lesson: each gap in a process of its own, so that one that crashes costs no other."""
import json
import subprocess
import xml.etree.ElementTree as ElementTree

from pages import QUIET_THREADS

LONGEST = 60  # seconds for a gap
MOST_MESSAGES = 2


def message_of(failure):
    """A failed check of doctest as text: first what the test says about it."""
    def of(tag):
        return (failure.findtext(tag) or "").strip()
    where = f"line {failure.get('line')} of {failure.get('filename', '').rsplit('/', 1)[-1]}"
    infos = [info.text.strip() for info in failure.findall("Info") if info.text]
    thrown = [(failure.findtext(tag) or "").strip() for tag in ("Exception", "FatalException") if failure.find(tag) is not None]
    lines = infos + [f"{where}: {of('Original')}"] + ([f"  was: {of('Expanded')}"] if of("Expanded") and "{?}" not in of("Expanded") else [])
    return "\n".join(lines + [f"  threw: {text}" for text in thrown])


def run_gap(program, gap):
    """{"gap", "passed", "tests": [{"name", "passed", "notes", "messages"}]}"""
    try:
        result = subprocess.run([program, f"--test-case=gap {gap}: *", "--reporters=xml"], capture_output=True, text=True,
                                encoding="utf-8", errors="replace", timeout=LONGEST, env=QUIET_THREADS)
    except subprocess.TimeoutExpired:
        return {"gap": gap, "passed": False, "tests": [{"name": f"gap {gap}", "passed": False, "notes": [], "messages": [
            f"did not end within {LONGEST} s: does a loop never stop?"]}]}
    tests = []
    try:
        tree = ElementTree.fromstring(result.stdout[result.stdout.index("<?xml"):])
    except (ElementTree.ParseError, ValueError):
        return {"gap": gap, "passed": False, "tests": [{"name": f"gap {gap}", "passed": False, "notes": [], "messages": [
            f"the program ended with exit code {result.returncode} in the middle of the test\n{result.stdout[-2000:]}"]}]}
    for case in tree.iter("TestCase"):
        if case.get("skipped") == "true":
            continue
        failures = [e for e in case.iter("Expression") if e.get("success") == "false"]
        messages = [message_of(e) for e in failures]
        notes = []
        for message in case.iter("Message"):
            text = (message.findtext("Text") or "").strip()
            (notes if message.get("type") == "WARNING" else messages).append(text)
        expressions = {id(x) for e in case.iter("Expression") for x in e.iter("Exception")}
        for thrown in case.iter("Exception"):
            if id(thrown) not in expressions:
                messages.append((thrown.text or "").strip())
        overall = case.find("OverallResultsAsserts")
        passed = not messages and (overall is None or overall.get("test_case_success") != "false")
        tests.append({"name": case.get("name"), "passed": passed, "notes": notes, "messages": messages[:MOST_MESSAGES] + (
            [f"and {len(messages) - MOST_MESSAGES} more"] if len(messages) > MOST_MESSAGES else [])})
    passed = bool(tests) and all(test["passed"] for test in tests) and result.returncode == 0
    return {"gap": gap, "passed": passed, "tests": tests}


def grade(lesson, program):
    gaps = [run_gap(program, gap) for gap in (1, 2, 3)]
    return {"lesson": lesson.number, "name": lesson.name, "built": True, "passed": sum(gap["passed"] for gap in gaps),
            "of": len(gaps), "gaps": gaps}


def not_built(lesson, text):
    return {"lesson": lesson.number, "name": lesson.name, "built": False, "passed": 0, "of": 3, "gaps": [], "message": text}


def show(result, file, as_json):
    """Prints a result for a student, or for a program."""
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    print(f"lesson {result['lesson']}, {result['name']}")
    if not result["built"]:
        print(f"  {file} does not compile:\n{result['message']}")
    for gap in result["gaps"]:
        for test in gap["tests"]:
            print(f"  {'passed' if test['passed'] else 'FAILED'}  {test['name']}")
            for message in test["notes"] + test["messages"]:
                print("\n".join("          " + line for line in message.splitlines()))
    print(f"{result['passed']} of {result['of']} gaps are filled." + ("" if result["passed"] == result["of"] else f" Open {file}"))
