"""Compiles the kernels for GPUs that the build at hand leaves out, and notes what compiled.

    python3 tests/house/cuda_architectures.py build/cuda-release [--write] [--all]

Nobody waits for six architectures in each build. So cuda_architectures.txt has a hash of each kernel file, with all that
it includes from the project and the compiler's flags, at the time when it last compiled for compute capability 8.0 and
12.0, the oldest and the newest. A file that changed since then, or whose flags did, is compiled for both, and a warning
or an error fails. Without --write the file
stays as it is. --write notes what compiled. --all compiles every file, for all six architectures of CMakeLists.txt.
"""

import argparse
import hashlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTES = Path(__file__).with_suffix(".txt")
OLDEST_AND_NEWEST = ("80", "120")
ALL = ("80", "86", "89", "90", "100", "120")
WARNINGS = "-Werror=all-warnings"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def sources(file: Path, root: Path, seen: dict) -> dict:
    """The code of `file` and of all that it includes from the project, without comments, by path."""
    name = str(file.relative_to(root))
    if name not in seen:
        text = file.read_text()
        seen[name] = " ".join(COMMENT.sub("", text).split())
        for include in INCLUDE.findall(text):
            for place in (root / include, file.parent / include):
                if place.exists():
                    sources(place.resolve(), root, seen)
                    break
    return seen


def flags_of(words: list) -> list:
    """Of a compiler's arguments those that decide what a kernel becomes: no paths, which differ from machine to machine,
    no macros of the host's libraries, and neither the flag that is given each time nor the host's position-independent
    code."""
    def counts(word: str) -> bool:
        is_foreign = word.startswith("-D") and not word.startswith(("-DNORMA_", "-DNDEBUG"))
        return "/" not in word and not is_foreign and word not in (WARNINGS, "-Xcompiler=-fPIC")
    return [word for word in words if counts(word)]


def hash_of(file: Path, root: Path, words: list) -> str:
    parts = sources(file, root, {})
    lines = [f"{name} {parts[name]}" for name in sorted(parts)] + flags_of(words)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def compiler_commands(build: Path, root: Path) -> dict:
    """The compiler's arguments for each kernel file, without what is in front of nvcc and without its architectures."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = Path(entry["file"]).resolve()
        if file.suffix != ".cu" or (root / "tests") in file.parents:
            continue
        words = shlex.split(entry["command"])
        first = next(i for i, word in enumerate(words) if Path(word).name == "nvcc")
        words = [word for word in words[first:] if "arch=compute" not in word]
        output = words.index("-o")
        del words[output : output + 2]
        commands[file] = (words, entry["directory"])
    return commands


def compiles(file: Path, command: tuple, architectures: tuple) -> bool:
    words, directory = command
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        targets = [f"--generate-code=arch=compute_{number},code=sm_{number}" for number in architectures]
        result = subprocess.run(
            words + targets + [WARNINGS, "-o", f"{folder}/kernel.o"],
            cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
    said = "" if result.returncode == 0 else "FAILED\n" + result.stdout
    print(f"{file.relative_to(ROOT)} for {', '.join(architectures)}: {time.monotonic() - start:.0f} s {said}".rstrip())
    return result.returncode == 0


def noted(notes: Path) -> dict:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return {name: code for code, name in (line.split() for line in lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build with CUDA")
    parser.add_argument("--write", action="store_true", help="note what compiled")
    parser.add_argument("--all", action="store_true", help="every file, for all architectures")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()

    commands = compiler_commands(arguments.build, ROOT)
    if not commands:
        print(f"cuda_architectures: found no kernel file in {arguments.build}", file=sys.stderr)
        return 1
    hashes = {file: hash_of(file, ROOT, commands[file][0]) for file in sorted(commands)}
    before = noted(NOTES)
    changed = [f for f in hashes if arguments.all or before.get(str(f.relative_to(ROOT))) != hashes[f]]
    architectures = ALL if arguments.all else OLDEST_AND_NEWEST
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda file: compiles(file, commands[file], architectures), changed))
    failed = {file for file, good in zip(changed, results) if not good}
    if arguments.write:
        good = (f"{hashes[file]} {file.relative_to(ROOT)}" for file in hashes if file not in failed)
        NOTES.write_text("".join(f"{line}\n" for line in good))
    print(f"cuda_architectures: {len(commands)} kernel files, {len(changed)} compiled, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
