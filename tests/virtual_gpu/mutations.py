#!/usr/bin/env python3
"""Plants faults in kernels, launches, streams and calls of libraries, one at a time, and says who finds them.

Each fault of planted_faults.toml replaces one text of one source. The sources stay as they are: a copy with the fault is
compiled, and linked into a program of tests beside the others' objects. Named test cases of it run on the virtual GPU,
where each tensor has memory of its own and where tensors lie in blocks of the caching allocator, and on cuda-emulated;
who fails has found the fault. Without the fault all of them must pass.

    cmake --preset cuda-release                          # CUDAARCHS=90 makes it much shorter
    python3 tests/virtual_gpu/mutations.py               # all; writes planted_faults.csv and a line of README.md
    python3 tests/virtual_gpu/mutations.py --only index  # those whose description or file has this text; writes nothing
"""
import argparse
import csv
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE, TABLE = HERE / "README.md", HERE / "planted_faults.csv"
BEGIN, END = "<!-- made by tests/virtual_gpu/mutations.py -->", "<!-- end of what tests/virtual_gpu/mutations.py makes -->"
LIMIT_S = 300
SEEDS = 4  # the virtual GPU's streams work in so many orders
NOT_RUN, NOT_FOUND = "not run", "no"
# What a run prints, and what the table says of it. The first that is found counts.
ANSWERS = (
    (r"virtual GPU: fault: .*multiple of", "misaligned access"),
    (r"virtual GPU: fault: .*without a barrier between", "race"),
    (r"virtual GPU: fault: .*(barrier|mask names the lanes|not there)", "divergence"),
    (r"virtual GPU: fault: .*never written", "read of what was never written"),
    (r"virtual GPU: fault: .*copy .*had been done", "pinned memory in use"),
    (r"virtual GPU: fault: .*freed", "use after free"),
    (r"virtual GPU: fault: .*(after the end|bytes before|at byte|inside one allocation|null pointer)", "out of bounds"),
    (r"virtual GPU: fault: .*", "another fault"),
    (r"virtual GPU: .*", "refused call"),
    (r"launch: .*", "refused launch"),
    (r"ERROR: (CHECK|REQUIRE)", "wrong numbers"),
    (r"ERROR: test case THREW|test case CRASHED|SIG[A-Z]+", "exception or signal"),
)


@dataclasses.dataclass
class Fault:
    """A table of planted_faults.toml."""
    what: str  # its name there
    file: str
    old: str  # occurs once
    cases: str  # doctest's filter of the test cases
    new: str = ""
    units: list = None  # the sources that are compiled with it; the file, if none are named
    program: str = "ops"
    gpu: str = "h200"
    graphs: bool = False  # the cases need graphs, which take their memory from the caching allocator alone

    def __post_init__(self):
        self.units = self.units or [self.file]


FAULTS = [Fault(what, **keys) for what, keys in tomllib.loads((HERE / "planted_faults.toml").read_text()).items()]


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to run test cases, and its column in the table."""
    name: str
    device: str
    caching: bool = False

    def environments(self, build, gpu):
        """The environment of each run. The first run that finds a fault is the last."""
        result = dict(os.environ, NORMA_DEVICE=self.device, OMP_NUM_THREADS="1")
        if self.device == "cuda-emulated":
            return [result]
        library = build.folder / "tests/virtual_gpu/libnorma_virtual_gpu.so"
        result.update(LD_PRELOAD=str(library), NORMA_CUDA_CACHING=str(int(self.caching)), NORMA_VIRTUAL_GPU=gpu)
        return [result | {"NORMA_VIRTUAL_GPU_SEED": str(seed)} for seed in range(1, 1 + SEEDS)]

    def makes_sense(self, build, fault):
        """Whether the fault's test cases run this way, and with the fault."""
        if self.device == "cuda-emulated":
            return not fault.graphs and build.is_emulated(fault)
        return self.caching or not fault.graphs


VIRTUAL = Way("virtual GPU", "cuda")
BLOCKS = Way("virtual GPU, blocks of the allocator", "cuda", caching=True)
EMULATED = Way("cuda-emulated", "cuda-emulated")
WAYS = (VIRTUAL, BLOCKS, EMULATED)


class Build:
    """How the build in a folder makes its objects and programs."""

    def __init__(self, folder, programs):
        self.folder = folder.resolve()
        self.ninja(*(f"test_{program}" for program in programs), "norma_virtual_gpu")
        self.commands = {entry["output"]: entry["command"] for entry in json.loads(self.ninja("-t", "compdb"))}

    def ninja(self, *arguments):
        return subprocess.run(["ninja", "-C", str(self.folder), "--quiet", *arguments],
                              check=True, capture_output=True, text=True).stdout

    def objects_of(self, unit):
        """A unit of kernels has one object for cuda and one for cuda-emulated."""
        found = [o for o in self.commands if o.endswith((f".dir/{unit}.o", f".dir/emulated/{unit}.cpp.o"))]
        assert found, unit
        return found

    def is_emulated(self, fault):
        """Whether an object of cuda-emulated is made from the file with the fault."""
        objects = [o for unit in fault.units for o in self.objects_of(unit) if ".dir/emulated/" in o]
        sources = self.ninja("-t", "deps", *objects).splitlines() if objects else []
        return any((self.folder / line.strip()).resolve() == ROOT / fault.file for line in sources)

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


def answer_of_run(build, program, fault, environment):
    """What a run of the test cases says, or why there is none."""
    command = [str(program), f"--test-case={fault.cases}", "--no-breaks", "--abort-after=20"]
    try:
        done = subprocess.run(command, env=environment, cwd=build.folder, capture_output=True, text=True, errors="replace",
                              timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return "no end"
    output = done.stdout + done.stderr
    if done.returncode == 0:
        if re.search(r"test cases: +0 ", output):
            sys.exit(f"mutations: no test case is named {fault.cases}")
        return NOT_RUN if re.search(r"^skipped: ", output, re.MULTILINE) else NOT_FOUND
    return next((text for pattern, text in ANSWERS if re.search(pattern, output)), f"exit code {done.returncode}")


def answer(build, program, fault, way):
    """What the runs of a way say of the fault."""
    said = NOT_RUN
    for environment in way.environments(build, fault.gpu) if way.makes_sense(build, fault) else []:
        said = answer_of_run(build, program, fault, environment)
        if said != NOT_FOUND:
            break
    return said


def plant(fault, overlay):
    text = (ROOT / fault.file).read_text()
    if text.count(fault.old) != 1:
        sys.exit(f"mutations: {fault.file}: expected this once, got it {text.count(fault.old)} times:\n{fault.old}")
    to = overlay / fault.file
    to.parent.mkdir(parents=True)
    to.write_text(text.replace(fault.old, fault.new))


def answers(build, fault):
    """What each of WAYS says of the fault."""
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
        return {way: answer(build, program, fault, way) for way in WAYS}


def check_unplanted(build, faults):
    """Ends the program unless all cases pass without a fault, and the virtual GPU runs them."""
    for fault in {(f.program, f.cases, f.gpu): f for f in faults}.values():
        for way in WAYS:
            said = answer(build, build.folder / f"tests/test_{fault.program}", fault, way)
            skipped = said == NOT_RUN and way != EMULATED and way.makes_sense(build, fault)
            if skipped or said not in (NOT_FOUND, NOT_RUN):
                sys.exit(f"mutations: test_{fault.program} -tc='{fault.cases}', without a fault, on {way.device}"
                         f"{' with the caching allocator' if way.caching else ''}: {said}")


def summary(results):
    """How many faults each way has found, of those that it was asked for."""
    counts = []
    for way in WAYS:
        said = [result[way] for result in results if result[way] != NOT_RUN]
        counts.append(f"{way.name}: {sum(one != NOT_FOUND for one in said)} of {len(said)}")
    return f"{len(results)} faults. Found of those that were run: {'; '.join(counts)}."


def write(faults, results):
    """The table of all faults, and its summary in the page."""
    text = PAGE.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"mutations: {PAGE.name}: expected one line '{BEGIN}' and one '{END}' behind it")
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["fault", "file", *(way.name for way in WAYS)])
        table.writerows([fault.what, fault.file, *result.values()] for fault, result in zip(faults, results))
    PAGE.write_text(text.split(BEGIN)[0] + "\n".join([BEGIN, "", summary(results), "", END]) + text.split(END)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda-release")
    parser.add_argument("--only", metavar="TEXT", help="faults with this text in their description or file; writes nothing")
    options = parser.parse_args()
    chosen = [f for f in FAULTS if options.only is None or options.only in f.what or options.only in f.file]
    if not chosen:
        sys.exit(f"mutations: no fault has '{options.only}' in its description or file")
    build = Build(options.build, sorted({fault.program for fault in chosen}))
    check_unplanted(build, chosen)
    results = []
    for fault in chosen:
        results.append(answers(build, fault))
        print(f"{fault.what} ({fault.file}): {'; '.join(results[-1].values())}", flush=True)
    missed = [fault.what for fault, said in zip(chosen, results)
              if {said[VIRTUAL], said[BLOCKS]} <= {NOT_FOUND, NOT_RUN}]
    if options.only is None:
        write(chosen, results)
    print(summary(results))
    print("\n".join(f"not found by the virtual GPU: {what}" for what in missed) or "the virtual GPU found all")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
