#!/usr/bin/env python3
"""Plants faults in kernels, launches, streams and calls of libraries, one at a time, and says who finds them.

Each fault of planted_faults.py replaces one text of one source. The sources stay as they are: a copy with the fault is
compiled, and linked into a program of tests beside the others' objects. Named test cases of it run on the virtual GPU and
on cuda-emulated; who fails has found the fault.

    ./run configure --preset cuda-release               # CUDAARCHS=90 makes it much shorter
    python3 tests/virtual_gpu/mutations.py               # all; writes the table of docs/cuda.md
    python3 tests/virtual_gpu/mutations.py --only index  # those whose description or file has this text; writes nothing
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from planted_faults import FAULTS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BEGIN, END = "<!-- made by tests/virtual_gpu/mutations.py -->", "<!-- end of what tests/virtual_gpu/mutations.py makes -->"
LIMIT_S = 300
# What a run prints, and what the table says of it. The first that is found counts.
ANSWERS = (
    (r"virtual GPU: fault: .*multiple of", "misaligned access"),
    (r"virtual GPU: fault: .*without a barrier between", "race"),
    (r"virtual GPU: fault: .*(barrier|mask names the lanes|not there)", "divergence"),
    (r"virtual GPU: fault: .*never written", "read of what was never written"),
    (r"virtual GPU: fault: .*freed", "use after free"),
    (r"virtual GPU: fault: .*copy had been done", "pinned memory in use"),
    (r"virtual GPU: fault: .*(after the end|bytes before|at byte|inside one allocation)", "out of bounds"),
    (r"virtual GPU: fault: .*", "another fault"),
    (r"virtual GPU: .*", "refused call"),
    (r"launch: .*", "refused launch"),
    (r"ERROR: (CHECK|REQUIRE)", "wrong numbers"),
    (r"ERROR: test case THREW|test case CRASHED|SIG[A-Z]+", "exception or signal"),
)


class Build:
    """How the build in a folder makes its objects and programs."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        self.ninja("test_core", "test_ops", "norma_virtual_gpu")
        self.commands = {entry["output"]: entry["command"] for entry in json.loads(self.ninja("-t", "compdb"))}

    def ninja(self, *arguments):
        return subprocess.run(["ninja", "-C", str(self.folder), "--quiet", *arguments],
                              check=True, capture_output=True, text=True).stdout

    def objects_of(self, unit):
        """A unit of kernels has one object for cuda and one for cuda-emulated."""
        found = [o for o in self.commands if o.endswith((f".dir/{unit}.o", f".dir/emulated/{unit}.cpp.o"))]
        assert found, unit
        return found

    def compile(self, output, overlay, to):
        """Compiles an object as the build does, with the sources of `overlay` before the others."""
        words = shlex.split(self.commands[output])
        of_root = words.index(f"-I{ROOT}")
        source = words.index("-c") + 1
        relative = pathlib.Path(words[source]).relative_to(ROOT)
        words[source] = str(overlay / relative) if (overlay / relative).exists() else words[source]
        words[words.index("-o") + 1] = str(to)
        words[words.index("-MF") + 1] = f"{to}.d"
        words.insert(of_root, f"-I{overlay}")
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True)

    def link(self, program, objects, to):
        """Links a program of tests. Its own objects come first, so that the libraries' are not taken."""
        command = self.ninja("-t", "commands", f"tests/{program}").strip().splitlines()[-1]
        words = shlex.split(command.split(" && ")[1])
        words[words.index("-o") + 1] = str(to)
        first_library = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words[first_library:first_library] = map(str, objects)
        subprocess.run(words, cwd=self.folder, check=True)


def environment(build, device, caching, gpu):
    result = dict(os.environ, NORMA_DEVICE=device, OMP_NUM_THREADS="1")
    if device == "cuda":
        library = build.folder / "tests/virtual_gpu/libnorma_virtual_gpu.so"
        result.update(LD_PRELOAD=str(library), NORMA_CUDA_CACHING="1" if caching else "0", NORMA_VIRTUAL_GPU=gpu)
    return result


def answer(build, program, fault, device, caching=False):
    """What a run of the test cases says: "" where all passed."""
    command = [str(program), f"--test-case={fault.cases}", "--no-breaks", "--abort-after=20"]
    try:
        done = subprocess.run(command, env=environment(build, device, caching, fault.gpu), cwd=build.folder,
                              capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return "no end"
    output = done.stdout + done.stderr
    if done.returncode == 0:
        if re.search(r"test cases: +0 ", output):
            sys.exit(f"mutations: no test case is named {fault.cases}")
        return ""
    return next((text for pattern, text in ANSWERS if re.search(pattern, output)), f"exit code {done.returncode}")


def plant(fault, overlay):
    text = (ROOT / fault.file).read_text()
    if text.count(fault.old) != 1:
        sys.exit(f"mutations: {fault.file}: expected this once, got it {text.count(fault.old)} times:\n{fault.old}")
    to = overlay / fault.file
    to.parent.mkdir(parents=True)
    to.write_text(text.replace(fault.old, fault.new))


def found_by(build, fault):
    """What the virtual GPU says, what it says where tensors lie in blocks of the caching allocator, and cuda-emulated."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        overlay = work / "overlay"
        plant(fault, overlay)
        objects = []
        for unit in fault.units:
            for output in build.objects_of(unit):
                objects.append(work / f"{len(objects)}.o")
                compiled = build.compile(output, overlay, objects[-1])
                if compiled.returncode != 0:
                    sys.exit(f"mutations: {fault.what}: does not compile:\n{compiled.stdout}{compiled.stderr}")
        program = work / f"test_{fault.program}"
        build.link(f"test_{fault.program}", objects, program)
        return (answer(build, program, fault, "cuda"), answer(build, program, fault, "cuda", caching=True),
                answer(build, program, fault, "cuda-emulated"))


def row(fault, virtual, cached, emulated):
    how = virtual or "no"
    if virtual and not cached:
        how += " (not inside blocks of the allocator)"
    return f"| {fault.what} | `{fault.file}` | {how} | {emulated or 'no'} |"


def check_unplanted(build):
    for fault in {(f.program, f.cases): f for f in FAULTS}.values():
        for device in ("cuda", "cuda-emulated"):
            said = answer(build, build.folder / f"tests/test_{fault.program}", fault, device)
            if said:
                sys.exit(f"mutations: test_{fault.program} -tc='{fault.cases}' fails on {device} without a fault: {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda-release")
    parser.add_argument("--only", metavar="TEXT", help="faults with this text in their description or file; writes nothing")
    options = parser.parse_args()
    build = Build(options.build)
    chosen = [f for f in FAULTS if options.only is None or options.only in f.what or options.only in f.file]
    if options.only is None:
        check_unplanted(build)
    rows = ["| fault | file | found by the virtual GPU | found by cuda-emulated |", "|---|---|---|---|"]
    missed = []
    for fault in chosen:
        virtual, cached, emulated = found_by(build, fault)
        rows.append(row(fault, virtual, cached, emulated))
        print(rows[-1], flush=True)
        missed += [] if virtual else [fault.what]
    if options.only is None:
        docs = ROOT / "docs/cuda.md"
        text = docs.read_text()
        if text.count(BEGIN) != 1 or text.count(END) != 1:
            sys.exit(f"mutations: docs/cuda.md: expected one line '{BEGIN}' and one '{END}' behind it")
        docs.write_text(text.split(BEGIN)[0] + "\n".join([BEGIN, "", *rows, "", END]) + text.split(END)[1])
    print("\n".join(f"not found by the virtual GPU: {what}" for what in missed) or "the virtual GPU found all")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
