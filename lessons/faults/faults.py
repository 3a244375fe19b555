#!/usr/bin/env python3
"""What ./run break does, the table of faults, and the tests that Norma's tools find each fault and only that."""
import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEYS = {"symptom", "hint", "tool", "find", "found", "explanation", "wrong", "right"}
BEGIN, END = "<!-- made by faults.py table --write -->", "<!-- end of what faults.py makes -->"


class Fault:
    """NAME.cpp has the fault. NAME.toml says how it shows and is found, and what to write in its place."""

    def __init__(self, name):
        self.name = name
        self.code = HERE / f"{name}.cpp"
        facts = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
        if facts.keys() != KEYS:
            raise SystemExit(f"{name}.toml: expected the keys {', '.join(sorted(KEYS))}; differs in "
                             f"{', '.join(sorted(facts.keys() ^ KEYS))}")
        self.__dict__.update(facts)
        self.is_plugin = "NORMA_PLUGIN" in self.code.read_text(encoding="utf-8")

    def mended(self):
        """The text without the fault."""
        text = self.code.read_text(encoding="utf-8")
        if (times := text.count(self.wrong)) != 1:
            raise SystemExit(f"{self.name}.toml: expected 'wrong' once in {self.name}.cpp, got it {times} times")
        return text.replace(self.wrong, self.right)

    def command(self, norma, programs, suffix=""):
        """The line that finds it; `suffix` names the mended one."""
        built = pathlib.Path(programs) / f"{self.name}{suffix}{'.so' if self.is_plugin else ''}"
        return self.find.format(norma=norma, built=built)

    def run(self, norma, programs, suffix=""):
        """The exit code of that line, and what it prints."""
        result = subprocess.run(["bash", "-c", self.command(norma, programs, suffix)], capture_output=True, text=True,
                                encoding="utf-8", errors="replace", timeout=120)
        return result.returncode, result.stdout + result.stderr

    def finds(self, text):
        """The line by which the tool finds the fault, or None."""
        match = re.search(self.found, text, re.MULTILINE)
        return match and match.group(0).strip()


def all_faults():
    return [Fault(path.stem) for path in sorted(HERE.glob("*.toml"))]


def number_of(name):
    """A fault's number, which gives nothing away: 1 is the first in an order that no name shows."""
    order = sorted((hashlib.sha256(path.stem.encode()).hexdigest(), path.stem) for path in HERE.glob("*.toml"))
    return 1 + [stem for _, stem in order].index(name)


def fault_named(name):
    """By its name or its number."""
    names = [path.stem for path in sorted(HERE.glob("*.toml"))]
    if name.isdigit():
        name = next((one for one in names if number_of(one) == int(name)), name)
    if name not in names:
        raise SystemExit(f"run: break: expected one of {', '.join(names)}, got '{name}'")
    return Fault(name)


def wrapped(head, text, indent=12):
    return textwrap.fill(" ".join(text.split()), 100, initial_indent=f"{head:{indent}}", subsequent_indent=" " * indent)


def build(folder, target):
    command = [ROOT / "cmake/build.sh", folder, "--target", target, "-j", str(os.cpu_count() or 2)]
    if subprocess.run(command).returncode != 0:
        raise SystemExit(1)


def break_command(args):
    if args.name is None:
        for fault in sorted(all_faults(), key=lambda one: number_of(one.name)):
            print(wrapped(f"{number_of(fault.name)}", fault.symptom, 4))
        print("one of them: ./run break 7")
        return
    fault = fault_named(args.name)
    programs = (args.build / "lessons/faults").relative_to(ROOT)
    call = f"./run break {number_of(fault.name)}"
    if args.hint or args.tool:
        print(wrapped("hint:", fault.hint) if args.hint else wrapped("see:", fault.tool))
        if args.tool:
            print(f"{'find it:':12}{fault.command('./run', programs)}")
        return
    if args.explain:
        print(wrapped("fault:", fault.explanation))
        for text, mark in (fault.wrong, "  - "), (fault.right, "  + "):
            print(textwrap.indent(text.rstrip("\n"), mark))
        return
    print(f"fault {number_of(fault.name)}: building", file=sys.stderr)
    build(args.build, f"fault_{fault.name}")
    if args.check:
        build(args.build, "norma")
        code, text = fault.run(args.build / "cli/norma", args.build / "lessons/faults")
        print(text, end="")
        line = fault.finds(text)
        print(f"still there: {line}" if line else "not found any more" if code == 0 else "something else is wrong now")
        sys.exit(0 if code == 0 and not line else 1)
    print(wrapped("symptom:", fault.symptom))
    print(f"{'code:':12}{fault.code.relative_to(ROOT)}")
    print(f"{'hint:':12}{call} --hint")
    print(f"{'find it:':12}{call} --tool says which command finds it")
    print(f"{'mend it:':12}change the code, then {call} --check")
    print(f"{'give up:':12}{call} --explain")


def mend_command(args):
    args.file.write_text(fault_named(args.name).mended(), encoding="utf-8")


def test_command(args):
    fault = fault_named(args.name)
    code, text = fault.run(args.norma, args.programs)
    line = fault.finds(text)
    print(f"the fault (exit code {code}): {line or 'NOT FOUND'}")
    mended_code, mended_text = fault.run(args.norma, args.programs, "_mended")
    mended_line = fault.finds(mended_text)
    print(f"mended (exit code {mended_code}): {mended_line or 'nothing'}")
    if not line or mended_line or mended_code != 0:
        print(text, "--- mended ---", mended_text, sep="\n")
        sys.exit(1)


def table():
    lines = ["| fault | what you see |", "|---|---|"]
    for fault in sorted(all_faults(), key=lambda one: number_of(one.name)):
        lines.append(f"| {number_of(fault.name)} | {' '.join(fault.symptom.split())} |")
    return "\n".join(lines)


def table_command(args):
    page = HERE / "README.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    text = f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"
    if args.write:
        page.write_text(text, encoding="utf-8")
    elif text != page.read_text(encoding="utf-8"):
        raise SystemExit("lessons/faults/README.md is not what `lessons/faults/faults.py table --write` writes")
    for fault in all_faults():
        fault.mended()


def main():
    parser = argparse.ArgumentParser(prog="./run", description="Faults to find")
    parser.add_argument("--build", type=pathlib.Path, help=argparse.SUPPRESS)  # the build folder
    parser.add_argument("--programs", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--norma", type=pathlib.Path, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("break", help="a fault to find: builds it, and says what you would see")
    one.add_argument("name", nargs="?", metavar="N", help="its number or name; none: the list")
    one.add_argument("--hint", action="store_true", help="a question that leads to it")
    one.add_argument("--tool", action="store_true", help="the command that finds it")
    one.add_argument("--explain", action="store_true", help="the fault, and the lines that mend it")
    one.add_argument("--check", action="store_true", help="whether it is still found after your change")
    one.set_defaults(call=break_command)
    mend = commands.add_parser("mend")
    mend.add_argument("name")
    mend.add_argument("file", type=pathlib.Path)
    mend.set_defaults(call=mend_command)
    test = commands.add_parser("test")
    test.add_argument("name")
    test.set_defaults(call=test_command)
    page = commands.add_parser("table")
    page.add_argument("--write", action="store_true")
    page.set_defaults(call=table_command)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
