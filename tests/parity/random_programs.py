#!/usr/bin/env python3
"""Compares random programs of public ops with PyTorch: values, gradients, second derivatives with and without
create_graph, and strides. Prints the smallest failing program.

A program is a list of ops over a few small tensors: views, changes in place, memory formats, shared subexpressions,
arguments that depend on each other (its form: tests/parity/program.h). What one side refuses is not compared, but
counted by its text. Needs PyTorch and NumPy from PyPI:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch numpy
    ./run build && /tmp/venv/bin/python tests/parity/random_programs.py --seed 1 --count 1000
    /tmp/venv/bin/python tests/parity/random_programs.py --program failing.json     # one that was saved
"""
import argparse
import collections
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    sys.exit("random_programs: PyTorch is missing; see the head of this file")

import program_makers
import torch_programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHUNK = 250


def run_norma(runner, programs):
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "programs.json"), pathlib.Path(folder, "results.json")
        source.write_text(json.dumps(programs))
        done = subprocess.run([runner, source, target])
        if done.returncode == 0:
            return json.loads(target.read_text())
    if len(programs) == 1:
        return [{"crash": done.returncode}]
    half = len(programs) // 2
    return run_norma(runner, programs[:half]) + run_norma(runner, programs[half:])


def tensor_of(values):
    return torch.tensor([float(v) for v in values], dtype=torch.float64)


def allowed(program, name, expected):
    """How far a result may lie from PyTorch's: its own error, measured, and rounding relative to its largest value."""
    finite = expected[expected.isfinite()]
    scale = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    single = any(x["dtype"] == "float32" for x in program["inputs"]) or any(
        s.get("dtype") == "float32" for s in program["steps"])
    exact = torch_programs.run(program, dtype=torch.float64)
    shaken = torch_programs.run(program, dtype=torch.float64, noise=1e-7 if single else 1e-15)
    if "error" in exact or "error" in shaken or name not in exact["values"] or name not in shaken["values"]:
        return 0.0
    exact, shaken = (x["values"][name].double().reshape(-1) for x in (exact, shaken))
    def largest(x):  # of what is finite
        return x.abs().nan_to_num(0, posinf=0).max().item() if x.numel() else 0.0

    own = largest(expected - exact) if single else 0.0
    condition = largest(shaken - exact)
    return 8 * own + 30 * condition + (2e-6 if single else 1e-11) * scale


def differences(program, got, expected):
    """Texts of what differs; none where one side refused."""
    if "crash" in got:
        return [f"crash: exit code {got['crash']}"]
    if "error" in got or "error" in expected:
        return []
    found = []
    for name in sorted(set(got.get("values", {})) | set(expected["values"])):
        theirs = expected["values"].get(name)
        ours = got["values"].get(name)
        theirs = theirs.double().reshape(-1) if theirs is not None else torch.zeros(len(ours), dtype=torch.float64)
        ours = tensor_of(ours) if ours is not None else torch.zeros_like(theirs)  # no gradient is one of zeros
        if ours.shape != theirs.shape:
            found.append(f"{name}: {ours.numel()} values, PyTorch has {theirs.numel()}")
            continue
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        error = (ours - theirs).abs()
        if same.all():
            continue
        worst = error[~same].max().item()  # NaN where only one side is
        limit = 1e-12 * max(1.0, theirs[theirs.isfinite()].abs().max().item() if theirs.isfinite().any() else 0.0)
        if not worst <= limit:
            limit = allowed(program, name, theirs)
        if not worst <= limit:
            at = int((error * ~same).nan_to_num(float("inf")).argmax())
            found.append(f"{name}[{at}]: {ours[at]:.17g}, PyTorch has {theirs[at]:.17g} (allowed {limit:.3g})")
    if program_makers.strides_follow_pytorch(program):
        for name, theirs in expected["strides"].items():
            ours = got["strides"][name]
            sizes = expected["values"][name].shape
            if 0 not in sizes and any(a != b for a, b, n in zip(ours, theirs, sizes) if n > 1):
                found.append(f"{name}: strides {ours}, PyTorch has {theirs} (sizes {list(sizes)})")
    return found


def compare(runner, programs):
    results = []
    for program, got in zip(programs, run_norma(runner, programs)):
        expected = torch_programs.run(program)
        results.append((differences(program, got, expected), got, expected))
    return results


# --- making a failing program smaller ---------------------------------------------------------------------------

def without_step(program, number):
    """The program without one step; who used it uses its first argument."""
    smaller = copy.deepcopy(program)
    variable = len(program["inputs"]) + number
    instead = smaller["steps"].pop(number)["args"][0]

    def renumber(v):
        return v if v is None or v < variable else instead if v == variable else v - 1

    for step in smaller["steps"]:
        step["args"] = [renumber(a) for a in step["args"]]
    smaller["outputs"] = sorted({renumber(v) for v in smaller["outputs"]})
    return smaller


def without_input(program, number):
    if any(number in s["args"] for s in program["steps"]) or number in program["outputs"]:
        return None
    smaller = copy.deepcopy(program)
    smaller["inputs"].pop(number)
    for step in smaller["steps"]:
        step["args"] = [a if a is None or a < number else a - 1 for a in step["args"]]
    smaller["outputs"] = [v if v < number else v - 1 for v in smaller["outputs"]]
    return smaller if smaller["inputs"] else None


def smaller_ones(program):
    for i in reversed(range(len(program["steps"]))):
        yield without_step(program, i)
    for i in range(len(program["outputs"])):
        if len(program["outputs"]) > 1:
            yield {**program, "outputs": program["outputs"][:i] + program["outputs"][i + 1:]}
    for i in reversed(range(len(program["inputs"]))):
        yield without_input(program, i)
    if program["order"] == 2:
        yield {**program, "order": 1}
    for i, x in enumerate(program["inputs"]):
        for key, plain in (("layout", "contiguous"), ("grad", False)):
            if x[key] != plain:
                smaller = copy.deepcopy(program)
                smaller["inputs"][i][key] = plain
                yield smaller


def shrink(runner, program):
    while True:
        for candidate in smaller_ones(program):
            if candidate is not None and compare(runner, [candidate])[0][0]:
                program = candidate
                break
        else:
            return program


def text_of(program):
    lines = []
    for i, x in enumerate(program["inputs"]):
        lines.append(f"  v{i} = {x['dtype']} {x['sizes']} {x['layout']}{' requires_grad' if x['grad'] else ''}")
    for i, step in enumerate(program["steps"], len(program["inputs"])):
        args = ["none" if a is None else f"v{a}" for a in step["args"]]
        args += [f"{k}={v}" for k, v in step.items() if k not in ("op", "args")]
        lines.append(f"  v{i} = {step['op']}({', '.join(args)})")
    outputs = ", ".join(f"v{v}" for v in program["outputs"])
    lines.append(f"  outputs {outputs}; derivatives of order {program['order']}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=8, help="most steps of a program")
    parser.add_argument("--runner", default=ROOT / "build/cpu-release/tests/run_programs")
    parser.add_argument("--program", help="run this file instead of making programs")
    parser.add_argument("--save", default="failing_program.json", help="where the smallest failing one goes")
    parser.add_argument("--keep", help="write the first --count programs that both sides run, with PyTorch's results")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many")
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.program:
        program = json.loads(pathlib.Path(args.program).read_text())
        found, got, expected = compare(args.runner, [program])[0]
        print(text_of(program), *found, got.get("error", ""), expected.get("error", ""), sep="\n")
        sys.exit(1 if found else 0)
    if args.keep:
        keep(args)
        return

    counts, refusals, ops, failing = collections.Counter(), collections.Counter(), collections.Counter(), []
    for first in range(0, args.count, CHUNK):
        seeds = range(first, min(first + CHUNK, args.count))
        programs = [program_makers.make_program(args.seed, number, args.steps) for number in seeds]
        for number, program, (found, got, expected) in zip(seeds, programs, compare(args.runner, programs)):
            ops.update(s["op"] for s in program["steps"])
            if "error" in got or "error" in expected:
                side = "both refuse" if "error" in got and "error" in expected else (
                    "Norma refuses" if "error" in got else "PyTorch refuses")
                counts[side] += 1
                if side != "both refuse":
                    refusals[f"{side}: {got.get('error') or expected.get('error')}"[:150]] += 1
                continue
            counts["differ" if found else "agree"] += 1
            if "ddx" in " ".join(expected["values"]):
                counts["with second derivatives"] += 1
            if found:
                failing.append((number, program, found))
        print(f"{min(first + CHUNK, args.count)} programs: {dict(counts)}", flush=True)
        if len(failing) >= args.failures:
            break
    print("ops:", ", ".join(f"{name} {count}" for name, count in ops.most_common()))
    for text, count in refusals.most_common(20):
        print(f"{count:5}  {text}")
    small = []
    for number, program, found in failing[:args.failures]:
        small.append((shrink(args.runner, program), number, found))
    for program, number, found in sorted(small, key=lambda entry: -len(entry[0]["steps"])):
        print(f"\nprogram {number} of seed {args.seed}: {found[0]}\nsmallest form:")
        print(text_of(program), *compare(args.runner, [program])[0][0], sep="\n")
    if small:
        smallest = min(small, key=lambda entry: len(entry[0]["steps"]))[0]
        pathlib.Path(args.save).write_text(json.dumps(smallest))
        print(f"\nsaved the smallest: {args.save}")
        sys.exit(1)


def keep(args):
    """Programs for tests/parity/random_programs_test.cpp, which needs no Python."""
    kept, number = [], 0
    while len(kept) < args.count:
        program = program_makers.make_program(args.seed, number, args.steps)
        number += 1
        found, got, expected = compare(args.runner, [program])[0]
        if found:
            sys.exit(f"random_programs: program {number - 1} differs; nothing is kept")
        double = all(x["dtype"] != "float32" for x in program["inputs"])
        if double and "error" not in got and any("ddx" in name for name in expected["values"]):
            values = {name: torch_programs.numbers(x) for name, x in expected["values"].items()}
            strides = {name: s for name, s in expected["strides"].items()  # those of axes of size 1 are free
                       if program_makers.strides_follow_pytorch(program) and min(expected["values"][name].shape, default=1) > 1}
            kept.append({"program": program, "values": values, "strides": strides})
    head = {"made_by": f"tests/parity/random_programs.py --seed {args.seed} --count {args.count} --steps {args.steps} "
                       f"--keep FILE, PyTorch {torch.__version__}"}
    lines = ",\n".join(json.dumps(entry) for entry in kept)
    pathlib.Path(args.keep).write_text(json.dumps(head)[:-1] + ', "programs": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
