#!/usr/bin/env python3
"""The long check of data parallel training: equality, kills, bits. About half an hour on two processors; not in CI.

    ./run build && python3 tests/parallel/long.py
    python3 tests/parallel/long.py --only kills --seed 7

equality  ResNet-18 and ConvNeXt-atto after 30 steps in 1, 2, 3 and 4 processes: losses and weights beside one process.
kills     Processes are killed (20 times) and stopped (10 times) at random moments. The others end with a line that
          names the process; checkpoints are whole; the run goes on in another number of processes, and ends at the
          weights of a run that nobody disturbed.
bits      The same run 20 times in the same number of processes.

Needs MPI and numpy (Debian: openmpi-bin libopenmpi-dev python3-numpy). Exit code 1 if anything is not as it should be.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

DEBIAN_PYTHON = "/usr/bin/python3"  # the one that Debian's packages belong to
try:
    import numpy as np
except ModuleNotFoundError:
    if sys.executable == DEBIAN_PYTHON or not os.path.exists(DEBIAN_PYTHON):
        sys.exit("long: missing (names of Debian's packages): python3-numpy")
    os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, *sys.argv])

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"resnet18": [], "convnext_atto": ["--patch-size", "4", "--drop-path", "0.1", "--layer-scale", "0.1"]}
NORMS = {"group": ["--norm", "group:8"], "batch, --sync-bn": ["--norm", "batch", "--sync-bn"]}
FORMATS = ["channels-last", "no-channels-last"]
EVERYTHING = "--grad-accum-steps 2 --mixup 0.4 --smoothing 0.1 --model-ema --model-ema-decay 0.9 --clip-grad 1".split()
SGD = "--opt sgd --lr 0.01".split()
STEPS = 30
PROCESSES = [1, 2, 3, 4]
FLOAT64_LIMIT = 1e-10
FLOAT32_LIMIT = 1e-5
SMALL = 1e-3  # beside weights of about 1
END_LIMIT = 10  # seconds until the others have ended
TIMEOUT = 2  # --timeout, after which a stopped process counts as lost

faults = []


def check(holds, text):
    if not holds:
        faults.append(text)
        print(f"FAILED: {text}", flush=True)


class Program:
    """norma train in a folder of its own, by which its processes are found."""

    def __init__(self, norma):
        self.norma = norma
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="norma-long-"))
        self.common = "train --dataset shapes --img-size 32 --test-images 12 --threads 1 --workers 0 --quiet".split()

    def new(self, options):
        return [*self.common, *options]

    def start(self, arguments, processes):
        command = [self.norma, *arguments]
        if processes > 1:
            command += ["--procs", str(processes)]
        self.err = open(self.folder / "stderr.txt", "w+")
        return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=self.err, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def said(self):
        self.err.seek(0)
        return self.err.read()

    def run(self, arguments, processes):
        code = self.start(arguments, processes).wait()
        if code != 0:
            sys.exit(f"long: exit code {code} of norma {' '.join(arguments)}: {self.said()}")

    def ranks(self):
        """The number of each process by its rank."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "cwd").readlink() == self.folder:
                    rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)\0", (entry / "environ").read_bytes())
                    if rank:
                        found[int(rank[1])] = int(entry.name)
            except OSError:
                pass  # it has ended meanwhile
        return found


def read_tensors(path):
    """The tensors of a checkpoint. Raises ValueError for one that is not whole."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    body = memoryview(data)[8 + length:]
    if len(body) != max(entry["data_offsets"][1] for entry in header.values()):
        raise ValueError(f"{path}: {len(body)} bytes of tensors")
    types = {"F64": np.float64, "F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(body[slice(*entry["data_offsets"])], types[entry["dtype"]])
            for name, entry in header.items()}


def read_losses(folder):
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["type"] == "metrics"]
    return [row["loss"] for row in rows] + [row["test_loss"] for row in rows if "test_loss" in row]


def distance(found, expected, optimizer=False):
    """The largest difference, as a share of the largest number of its tensor: of weights, averages and statistics, or
    of what the optimizer keeps. Tensors below SMALL count as that large: a bias in front of batch norm has the gradient
    0, and is made of rounding alone."""
    worst = 0.0
    assert found.keys() == expected.keys()
    for name, x in found.items():
        if name.startswith("optimizer.") == optimizer and x.dtype != np.int64:
            share = np.abs(x.astype(np.float64) - expected[name]).max() / max(np.abs(expected[name]).max(), SMALL)
            worst = max(worst, share if np.isfinite(share) else np.inf)
    return worst


def learned(program, options, processes):
    output = program.folder / "o"
    shutil.rmtree(output, ignore_errors=True)
    program.run(program.new([*options, "--log-interval", "1", "--log-json", "--output", "o"]), processes)
    losses = read_losses(output)
    return losses, read_tensors(output / "last.safetensors")


def equality(program, arguments):
    def of(model, norm, batch, layout, everything, precision):
        accumulate = 2 if everything else 1
        return [*MODELS[model], "--model", model, *NORMS[norm], f"--{layout}", "--precision", precision, *SGD,
                "--batch-size", str(batch), "--images", str(STEPS * accumulate * batch),
                *(EVERYTHING if everything else [])]

    cases = [(model, norm, batch, layout, everything, "float64") for model in MODELS for norm in NORMS
             for batch in (24, 23) for layout in FORMATS for everything in (True, False)
             if everything or (batch == 23 and layout == FORMATS[0])]
    cases += [(model, norm, 23, FORMATS[0], True, "float32") for model in MODELS for norm in NORMS]
    print("| network, norm | precision | runs | losses | weights | momentum |\n|---|---|---|---|---|---|")
    worst = {}
    for case in cases:
        model, norm, batch, layout, everything, precision = case
        if precision not in arguments.precision:
            continue
        losses, tensors = learned(program, of(*case), 1)
        limits = [FLOAT64_LIMIT] * 2
        if precision == "float32":
            # Rounding decides which side of a kink (ReLU, the largest of a window) some numbers fall on. The distance to
            # float64 in one process says how far that leads.
            exact_losses, exact = learned(program, of(*case[:-1], "float64"), 1)
            of_rounding = max(abs(a - b) / abs(b) for a, b in zip(losses, exact_losses)), distance(tensors, exact)
            limits = [max(FLOAT32_LIMIT, 3 * far) for far in of_rounding]
            if arguments.verbose:
                print(case, "beside float64", *(f"{far:.2g}" for far in of_rounding), flush=True)
        for processes in PROCESSES[1:]:
            found_losses, found = learned(program, of(*case), processes)
            check(len(found_losses) == len(losses) > STEPS, f"{case}: {len(found_losses)} and {len(losses)} losses")
            of_losses = max(abs(a - b) / abs(b) for a, b in zip(found_losses, losses))
            of_weights = distance(found, tensors)
            check(of_losses <= limits[0] and of_weights <= limits[1],
                  f"{case} in {processes} processes: losses {of_losses:.2g}, weights {of_weights:.2g}")
            key = (f"{model}, {norm}", precision)
            so_far = worst.setdefault(key, [0, 0, 0, 0])
            worst[key] = [so_far[0] + 1, max(so_far[1], of_losses), max(so_far[2], of_weights),
                          max(so_far[3], distance(found, tensors, optimizer=True))]
            if arguments.verbose:
                print(case, processes, f"{of_losses:.2g} {of_weights:.2g}", flush=True)
    for (name, precision), (count, of_losses, of_weights, of_momentum) in worst.items():
        print(f"| {name} | {precision} | {count} | {of_losses:.1e} | {of_weights:.1e} | {of_momentum:.1e} |")


def steps_in(folder):
    try:
        return (folder / "metrics.csv").read_text().count("\n")
    except OSError:
        return 0


class Disturbed:
    """A run whose processes are killed, or stopped, again and again."""

    def __init__(self, program, options, chance, verbose):
        self.program, self.options, self.chance, self.verbose = program, options, chance, verbose
        self.output = program.folder / "o"
        shutil.rmtree(self.output, ignore_errors=True)
        self.processes = chance.choice(PROCESSES[1:])
        self.seconds = []

    def start(self):
        whole = [path for path in self.output.glob("*.safetensors")] if self.output.exists() else []
        common = ["--log-interval", "1", "--timeout", str(TIMEOUT)]
        if whole:
            arguments = ["train", "--resume", "o", "--threads", "1", "--workers", "0", "--quiet", *common]
        else:
            arguments = self.program.new([*self.options, *common, "--output", "o"])
        return self.program.start(arguments, self.processes)

    def other_number(self):
        self.processes = self.chance.choice([n for n in PROCESSES if n != self.processes])

    def disturb(self, what):
        """True iff the run was disturbed: it could be over before."""
        if self.processes == 1:
            self.processes = self.chance.choice(PROCESSES[1:])
        before = steps_in(self.output)
        program = self.start()
        while program.poll() is None and steps_in(self.output) <= before:
            time.sleep(0.01)
        time.sleep(self.chance.uniform(0, 2))
        ranks = self.program.ranks()
        if program.poll() is not None or len(ranks) < self.processes:
            program.wait()
            return False
        victim = self.chance.choice(sorted(ranks))
        chosen = ranks.values() if what == "all" else [ranks[victim]]
        for process in chosen:
            os.kill(process, signal.SIGSTOP if what == "stop" else signal.SIGKILL)
        start = time.monotonic()
        code = program.wait()
        seconds = time.monotonic() - start
        said = self.program.said()
        name = rf"rank {victim} \(process {ranks[victim]} on \S+\) "
        expected = {"kill": name + "has ended without a word", "all": r"a process was ended by signal 9",
                    "stop": name + rf"has said nothing for {TIMEOUT} s \(--timeout\): it is stopped"}[what]
        where = f"{what} of rank {victim} of {self.processes}"
        check(code in (2, 137), f"{where}: exit code {code}")
        check(re.search(expected, said), f"{where}: said {said!r}")
        limit = END_LIMIT + (TIMEOUT if what == "stop" else 0)
        check(seconds <= limit, f"{where}: the others ended after {seconds:.1f} s")
        check(not self.program.ranks(), f"{where}: processes are left")
        for path in self.output.glob("*.safetensors"):
            try:
                check(all(np.isfinite(x).all() for x in read_tensors(path).values()), f"{where}: {path} is not finite")
            except ValueError as error:
                check(False, f"{where}: {error}")
        if self.verbose:
            print(f"{where} after step {steps_in(self.output)}: {seconds:.1f} s", flush=True)
        self.seconds.append(seconds)
        self.other_number()
        return True

    def finish(self):
        code = self.start().wait()
        check(code == 0, f"going on in {self.processes} processes: exit code {code}, {self.program.said()!r}")
        return read_tensors(self.output / "last.safetensors")


def kills(program, arguments):
    chance = random.Random(arguments.seed)
    print("| processes | times | the others end after, seconds: median, most | weights at the end |\n|---|---|---|---|")
    chains = [["kill", "kill", "all", "kill", "kill"]] * 4 + [["stop"] * 5] * 2
    seconds, worst, times = {}, {}, {}
    for number, chain in enumerate(chains):
        options = [*MODELS["convnext_atto"], "--model", "convnext_atto", *list(NORMS.values())[number % 2],
                   "--precision", "float64", *SGD, *EVERYTHING, "--batch-size", "12", "--images", str(24 * 60)]
        _, expected = learned(program, options, 1)
        run = Disturbed(program, [*options, "--recovery-interval", "3"], chance, arguments.verbose)
        for what in chain:
            while not run.disturb(what):
                run = Disturbed(program, run.options, chance, arguments.verbose)  # it was over: anew
            seconds.setdefault(what, []).append(run.seconds[-1])
        far = distance(run.finish(), expected)
        check(far <= FLOAT64_LIMIT, f"after {chain}: weights {far:.2g}")
        for what in set(chain):
            worst[what] = max(worst.get(what, 0), far)
    names = {"kill": "one is killed", "all": "all are killed", "stop": "one is stopped"}
    for what, all_seconds in seconds.items():
        all_seconds.sort()
        median = all_seconds[len(all_seconds) // 2]
        print(f"| {names[what]} | {len(all_seconds)} | {median:.1f}, {all_seconds[-1]:.1f} | {worst[what]:.1e} |")


def bits(program, arguments):
    del arguments
    seen = {}
    options = [*MODELS["convnext_atto"], "--model", "convnext_atto", *NORMS["batch, --sync-bn"], "--batch-size", "23",
               "--images", str(2 * 23 * 6), *EVERYTHING]
    for _ in range(20):
        losses, tensors = learned(program, options, 3)
        digest = hashlib.sha256(repr(losses).encode())
        for name in sorted(tensors):
            digest.update(tensors[name].tobytes())
        seen[digest.hexdigest()] = seen.get(digest.hexdigest(), 0) + 1
    check(len(seen) == 1, f"20 runs in 3 processes: {len(seen)} results")
    print(f"20 runs in 3 processes, float32: {len(seen)} result{'' if len(seen) == 1 else 's'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norma", default=ROOT / "build/cpu-release/cli/norma", help="the program")
    parser.add_argument("--only", choices=["equality", "kills", "bits"])
    parser.add_argument("--precision", nargs="+", default=["float64", "float32"], help="of equality")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of kills")
    parser.add_argument("--verbose", action="store_true", help="print each comparison and kill")
    arguments = parser.parse_args()
    program = Program(pathlib.Path(arguments.norma).resolve())
    try:
        for part in (equality, kills, bits):
            if arguments.only in (None, part.__name__):
                start = time.monotonic()
                part(program, arguments)
                print(f"{part.__name__}: {time.monotonic() - start:.0f} s\n", flush=True)
    finally:
        for process in program.ranks().values():  # of a run that was cut
            os.kill(process, signal.SIGKILL)
        shutil.rmtree(program.folder)
    print(f"{len(faults)} faults" if faults else "all is as it should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
