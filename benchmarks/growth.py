#!/usr/bin/env python3
"""How time and memory of training grow with the batch, the images, the network and the threads, beside PyTorch.

Each point is a training step (float32, channels_last, AdamW) of Norma, of Norma with --grad-checkpointing (by batch) and of
PyTorch with timm's network, as processes that take turns step by step (peers.py). Figures go to
benchmarks/results/PROCESSOR/growth.json, and the page docs/growth/PROCESSOR.md is made of them: tables, curves by gnuplot,
and for each curve a sentence that says where it bends. A curve bends at the first point that is more than 15 % off the
straight line through the points before it. Times are those of the fastest round, since other programs only add to it.

    ./run build && python3 benchmarks/growth.py            # about half an hour on two cores
    python3 benchmarks/growth.py --quick                   # less than three minutes, small networks and images; no page
    python3 benchmarks/growth.py --page                    # only the pages, from figures that are there
    python3 benchmarks/growth.py --check                   # fails where a page is not what the figures give

(scaling_model.py is about many machines, and measures nothing.)
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import peers
import processor
import records

HERE = pathlib.Path(__file__).resolve().parent
OFF = 0.15  # the share from which on a point is off the line
LEAST = 3  # points that make a line
NORMA, CHECKPOINTS, PYTORCH = "Norma", "Norma, checkpoints", "PyTorch"
AXES = {  # title, the x of the straight line, and what one more of it is
    "batch": ("By batch size", "images of a batch", "image"),
    "size": ("By image size", "thousand pixels of an image", "thousand pixels"),
    "depth": ("By depth", "10⁹ multiplications of an image", "10⁹ multiplications"),
    "threads": ("By threads", "", ""),
}
FULL = {"model": "resnet50", "batch": (1, 2, 4, 8, 16, 32, 64), "size": (32, 64, 96, 128, 160, 224, 320), "images": 8,
        "pixels": 224, "depth": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), "rounds": 5}
QUICK = {"model": "resnet18", "batch": (1, 2, 4, 8, 16), "size": (32, 64, 96, 128), "images": 4, "pixels": 64,
         "depth": ("resnet18", "resnet34", "resnet50", "resnet101"), "rounds": 3}


def line_through(points):
    """(a, b) of y = a + b x with the least squares of relative distances; points: (x, y > 0) at two x and more."""
    weights = [1 / y**2 for _, y in points]
    total = sum(weights)
    x_mean = sum(w * x for w, (x, _) in zip(weights, points)) / total
    y_mean = sum(w * y for w, (_, y) in zip(weights, points)) / total
    slope = (sum(w * (x - x_mean) * (y - y_mean) for w, (x, y) in zip(weights, points)) /
             sum(w * (x - x_mean)**2 for w, (x, _) in zip(weights, points)))
    return y_mean - slope * x_mean, slope


def off_line(line, point):
    """By what share the point lies above the line; infinite where the line has no positive value."""
    expected = line[0] + line[1] * point[0]
    return point[1] / expected - 1 if expected > 0 else float("inf")


def find_bend(points):
    """The number of the first point off the line through those before it, or None; that line; how far the point is off.
    Without a bend: the line through all, and the distance of the farthest."""
    points = list(points)
    for i in range(LEAST, len(points)):
        line = line_through(points[:i])
        off = off_line(line, points[i])
        if not abs(off) <= OFF:
            return i, line, off
    line = line_through(points)
    return None, line, max((off_line(line, point) for point in points), key=abs)


def amount(value, unit):
    return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}".replace(",", " ")


def sentence(who, what, unit, points, names, one):
    """Where a curve bends. points: (x, y) with rising x; names: what people call each x; one: an x of 1 in words."""
    if len(points) <= LEAST:
        return f"{who}: {what} has too few points to look for a bend."
    bend, (start, slope), off = find_bend(points)
    line = f"{amount(start, unit)}, and {amount(slope, unit)} more for each {one}"
    if bend is None and abs(off) > OFF:  # among the first ones, which no line comes before
        farthest = max(range(len(points)), key=lambda i: abs(off_line((start, slope), points[i])))
        return (f"{who}: {what} is no straight line from {names[0]} to {names[-1]}: {names[farthest]} is {100 * abs(off):.0f} % "
                f"{'above' if off > 0 else 'below'} the best one ({line}).")
    if bend is None:
        return (f"{who}: {what} is a straight line from {names[0]} to {names[-1]} ({line}); no point is more than "
                f"{100 * abs(off):.0f} % off it.")
    side = "above" if off > 0 else "below"
    return (f"{who}: {what} is a straight line up to {names[bend - 1]} ({line}) and bends at {names[bend]}, which is "
            f"{100 * abs(off):.0f} % {side} it.")


def points_of(rows, program, what):
    """(x, milliseconds of the fastest step) or (x, MB), and the names of the points that this program has."""
    chosen = [row for row in rows if program in row[what]]
    value = (lambda row: 1e3 * min(row["seconds"][program])) if what == "seconds" else (
        lambda row: row["peak_rss"][program] / 1e6)
    return [(row["x"], value(row)) for row in chosen], [row["name"] for row in chosen]


def sentences(axis, rows):
    _, _, one = AXES[axis]
    programs = [p for p in (NORMA, CHECKPOINTS, PYTORCH) if p in rows[0]["seconds"]]
    if axis == "threads":
        few, many = rows[0], rows[-1]
        return [f"{p}: {many['name']} are {min(few['seconds'][p]) / min(many['seconds'][p]):.2f} "
                f"times as fast as {few['name']}." for p in programs]
    made = []  # of Norma alone: the charts show the others' lines
    for what, unit, words in (("seconds", "ms", "the time of a step"), ("peak_rss", "MB", "the peak of memory")):
        points, names = points_of(rows, NORMA, what)
        made.append(sentence(NORMA, words, unit, points, names, one))
    return made


def memory_sentence(rows):
    last = rows[-1]["peak_rss"]
    text = f"At {rows[-1]['name']} Norma's peak of memory is {last[NORMA] / last[PYTORCH]:.2f} of PyTorch's"
    if CHECKPOINTS in last:
        text += f", with --grad-checkpointing {last[CHECKPOINTS] / last[PYTORCH]:.2f}"
    return text + "."


def table(axis, rows):
    programs = list(rows[0]["seconds"])
    lines = ["| | " + " | ".join(f"{p}, ms an image" for p in programs) + " | Norma / PyTorch, speed | " +
             " | ".join(f"{p}, MB" for p in programs) + " | Norma / PyTorch, memory |",
             "|---|" + "---|" * (2 * len(programs) + 2)]
    for row in rows:
        seconds, peak = row["seconds"], row["peak_rss"]
        times = [f"{1e3 * min(seconds[p]) / row['batch_size']:.1f}" for p in programs]
        speed = min(seconds[PYTORCH]) / min(seconds[NORMA])
        lines.append(f"| {row['name']} | " + " | ".join(times) + f" | {speed:.2f} | " +
                     " | ".join(f"{peak[p] / 1e6:.0f}" for p in programs) + f" | {peak[NORMA] / peak[PYTORCH]:.2f} |")
    return lines


def plot(axis, rows, path):
    """An SVG of gnuplot's with two charts: milliseconds of an image, and MB. Broken lines: the straight lines."""
    programs = list(rows[0]["seconds"])
    title, label, _ = AXES[axis]
    script = ["set terminal svg size 900,360 font 'sans,11' background '#ffffff'", f"set output {json.dumps(str(path))}",
              "set multiplot layout 1,2", f"set xlabel {json.dumps(label)}", "set yrange [0:*]", "set grid", "set key top left",
              "set logscale x 2"]
    for what, caption in (("seconds", "milliseconds of an image"), ("peak_rss", "peak of memory, MB")):
        script.append(f"set title {json.dumps(title + ': ' + caption)}")
        curves = []
        for number, program in enumerate(programs):
            points, _ = points_of(rows, program, what)
            divisor = [row["batch_size"] if what == "seconds" else 1 for row in rows]
            _, line, _ = find_bend(points)
            name = f"${what}{number}"
            script += [f"{name} << EOD", *(f"{x} {y / d} {(line[0] + line[1] * x) / d}" for (x, y), d in zip(points, divisor)), "EOD"]
            curves += [f"{name} using 1:2 with linespoints linecolor {number + 1} pointtype 7 title {json.dumps(program)}",
                       f"{name} using 1:3 with lines linecolor {number + 1} dashtype 2 notitle"]
        script.append("plot " + ", ".join(curves))
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def page(result):
    """The text of docs/growth/PROCESSOR.md."""
    machine = result["processor"]
    setting = result["setting"]
    lines = [f"# How training grows on {machine['name']}", "",
             "`python3 benchmarks/growth.py` measured this: steps of training in float32 and channels_last with AdamW, in turns.",
             "A time is that of the fastest round, memory the most that a process held. *Checkpoints* is `--grad-checkpointing`. A",
             f"curve bends at the first point that is more than {100 * OFF:.0f} % off the straight line through those before it."]
    if setting.get("processor_time"):
        lines += ["", "The machine had other work meanwhile, so times are processor seconds over the number of threads, in which waiting",
                  "threads count too little (`--processor-time`)."]
    for axis, rows in result["axes"].items():
        fixed = {"batch": f"{setting['model']}, {setting['pixels']} pixels",
                 "size": f"{setting['model']}, batch {setting['images']}",
                 "depth": f"{setting['pixels']} pixels, batch {setting['images']}",
                 "threads": f"{setting['model']}, {setting['pixels']} pixels, batch {setting['images']}"}[axis]
        lines += ["", f"## {AXES[axis][0]}: {fixed}", "", *table(axis, rows), ""]
        if axis != "threads":
            lines += [f"![{AXES[axis][0]}: time of an image and peak of memory]({machine['folder']}-{axis}.svg)", ""]
        lines += [f"- {text}" for text in sentences(axis, rows)]
        if axis == "batch":
            lines.append(f"- {memory_sentence(rows)}")
    lines += ["", f"{result['date']}, {result['threads']} threads, {result['rounds']} rounds, {result['versions']['pytorch']}."]
    return "\n".join(lines) + "\n"


def pages(root):
    """Path, text and figures of each page."""
    found = [json.loads(path.read_text()) for path in sorted((root / "benchmarks/results").glob("*/growth.json"))]
    return [(root / "docs/growth" / (result["processor"]["folder"] + ".md"), page(result), result) for result in found]


def write_pages(root):
    for path, text, result in pages(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {path.relative_to(root)}")
        if shutil.which("gnuplot"):
            for axis in result["axes"]:
                if axis != "threads":
                    plot(axis, result["axes"][axis], path.with_name(f"{result['processor']['folder']}-{axis}.svg"))
        else:
            print("growth: no gnuplot, so the charts stay as they were (Debian: gnuplot-nox)", file=sys.stderr)


def check_pages(root):
    made = pages(root)
    extra = set((root / "docs/growth").glob("*.md")) - {path for path, _, _ in made}
    wrong = [path for path, text, _ in made if not path.exists() or path.read_text() != text] + sorted(extra)
    for path in wrong:
        print(f"growth: {path.relative_to(root)} is not what the results give", file=sys.stderr)
    return not wrong


def free_bytes():
    with open("/proc/meminfo") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))


def expected_bytes(rows, x):
    """The peaks of all programs together at x, by the lines of the points so far; 0 if these are too few."""
    if len(rows) < 2:
        return 0
    total = 0
    for program in rows[0]["peak_rss"]:
        start, slope = line_through([(row["x"], row["peak_rss"][program]) for row in rows])
        total += max(0, start + slope * x)
    return total


def processor_seconds(contender):
    """The processor time of all threads of a contender's process."""
    return time.clock_gettime((~contender.process.pid << 3) | 2)  # what clock_getcpuclockid() gives


def measure(programs, model, batch, pixels, rounds, checkpoints):
    common = ["--model", model, "--bench", "train", "-b", batch, "--img-size", pixels, "--channels-last"]
    contenders = {NORMA: programs.start_norma(common)}
    if checkpoints:
        contenders[CHECKPOINTS] = programs.start_norma([*common, "--grad-checkpointing"])
    contenders[PYTORCH] = programs.start_pytorch(common)
    for contender in contenders.values():
        contender.step()  # memory and plans are made
    seconds = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            before = processor_seconds(contender)
            by_clock = contender.step()
            of_processors = (processor_seconds(contender) - before) / programs.options.threads
            seconds[name].append(of_processors if programs.options.processor_time else by_clock)
    return {"batch_size": batch, "seconds": seconds, "peak_rss": {name: c.stop() for name, c in contenders.items()}}


def gmacs_of(programs, model, pixels):
    text = programs.run([programs.options.norma, "bench", "--model", model, "--bench", "infer", "-b", 1, "--img-size", pixels,
                         "--num-warm-iter", 0, "--num-bench-iter", 1, "--quiet"])
    return json.loads(text[text.index("--result") + len("--result"):])["infer_gmacs"]


def measure_axis(axis, options, programs, setting):
    """The rows of one axis, as far as memory suffices."""
    rows = []
    for value in ((1, 2) if axis == "threads" else setting[axis]):
        model, batch, pixels, those = setting["model"], setting["images"], setting["pixels"], programs
        if axis == "batch":
            batch, x, name = value, value, f"batch {value}"
        elif axis == "size":
            pixels, x, name = value, value * value / 1e3, f"{value} pixels"
        elif axis == "depth":
            model, x, name = value, gmacs_of(programs, value, pixels), value
        else:
            if value > options.threads:
                break
            those = peers.Programs(argparse.Namespace(**vars(options) | {"threads": value}))
            those.versions = programs.versions  # what these say of PyTorch
            x, name = value, "1 thread" if value == 1 else f"{value} threads"
        expected = expected_bytes(rows, x)
        if expected > 0.8 * free_bytes():
            print(f"growth: {name} and more would take {expected / 1e9:.1f} GB, too much here", file=sys.stderr)
            break
        rows.append({"name": name, "x": x} | measure(those, model, batch, pixels, setting["rounds"], axis == "batch"))
        print(f"{name}: " + ", ".join(f"{p} {1e3 * min(s) / batch:.1f} ms an image, "
                                      f"{rows[-1]['peak_rss'][p] / 1e6:.0f} MB" for p, s in rows[-1]["seconds"].items()),
              flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small networks and images; writes nothing")
    parser.add_argument("--page", action="store_true", help="only make the pages of the figures that are there")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a page differs from its figures")
    parser.add_argument("--only", choices=AXES, nargs="+", default=list(AXES),
                        help="these axes only; others keep their figures if their setting is the same")
    parser.add_argument("--norma", type=pathlib.Path, default=peers.own_program(None, "cli/norma"), help="the program")
    parser.add_argument("--turns", type=pathlib.Path, default=peers.own_program(None, "benchmarks/turns"),
                        help="the program that does steps when told to")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has torch and timm")
    parser.add_argument("--model", help="the network of all axes but depth")
    parser.add_argument("--pixels", type=int, help="the size of the images of all axes but size")
    parser.add_argument("--processor-time", action="store_true",
                        help="count processor seconds / threads in place of the clock's, for a machine with other work on it")
    parser.add_argument("--rounds", type=int, help="timed steps of each point")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent, help="of the project")
    options = parser.parse_args()
    if options.check:
        sys.exit(0 if check_pages(options.root) else 1)
    if options.page:
        return write_pages(options.root)
    options.isa = None  # of what peers.py asks
    peers.check_programs(options)
    setting = dict(QUICK if options.quick else FULL)
    for name in ("model", "pixels", "rounds"):
        setting[name] = getattr(options, name) or setting[name]
    setting["processor_time"] = options.processor_time
    if options.processor_time:  # more threads take no less of it
        options.only = [axis for axis in options.only if axis != "threads"]
    programs = peers.Programs(options)
    machine = processor.describe()
    path = options.root / "benchmarks/results" / machine["folder"] / "growth.json"
    before = json.loads(path.read_text()) if path.exists() and not options.quick else {"axes": {}}
    # One page has one setting: figures of another would stand under a wrong heading.
    same = {"setting": json.loads(json.dumps(setting)), "threads": options.threads}.items() <= before.items()
    axes = before["axes"] if same else {}
    for axis in options.only:
        print(f"\n{AXES[axis][0]}", flush=True)
        axes[axis] = measure_axis(axis, options, programs, setting)
        print("\n".join(sentences(axis, axes[axis]) + ([memory_sentence(axes[axis])] if axis == "batch" else [])), flush=True)
        if not options.quick:
            result = {"processor": machine, "date": datetime.date.today().isoformat(), "threads": options.threads,
                      "rounds": setting["rounds"], "versions": programs.versions, "setting": setting,
                      "axes": {known: axes[known] for known in AXES if known in axes}}
            records.write(path, result)
    return None if options.quick else write_pages(options.root)


if __name__ == "__main__":
    main()
