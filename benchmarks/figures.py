#!/usr/bin/env python3
"""Makes the tables beside PyTorch in the docs from what peers.py has measured on each kind of processor.

benchmarks/results/PROCESSOR/peers.json -> docs/peers/PROCESSOR.md, and in docs/benchmarks.md the part between the lines
that name this script: a column for each processor.

    python3 benchmarks/figures.py            # after benchmarks/peers.py
    python3 benchmarks/figures.py --check    # fails where a page is not what the results give
"""
import argparse
import json
import pathlib
import statistics
import sys

import peers

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- made by benchmarks/figures.py -->", "<!-- end of what benchmarks/figures.py makes -->"


# What the overview leaves to the pages: cases that say the same as one beside them.
LEFT_OUT = {("vit_tiny_patch16_224", 8), ("vit_small, 32 pixels, patch 4", 128), ("resnet50, 64 pixels, 1 process", 32),
            ("resnet50, 224 pixels, 1 process", 8)}
BATCHES_LEFT_OUT = (2, 4, 8)


# What the overview calls the parts.
WHAT = {"train": "training, float32", "bfloat16": "training, bfloat16", "infer": "inference, float32",
        "infer_bfloat16": "inference, bfloat16", "batches": "training, float32", "data_parallel": "training, float32"}


def is_left_out(part, row):
    return (row["name"], row["batch_size"]) in LEFT_OUT or (part == "batches" and row["batch_size"] in BATCHES_LEFT_OUT)


def made_by(part):
    return (f"{part['date']}, {part['threads']} threads, {part['rounds']} round{'s' * (part['rounds'] != 1)}, {part['versions']['pytorch']}"
            if "pytorch" in part["versions"] else f"{part['date']}, {part['threads']} threads")


def overview(results):
    """A row for each network and case, a column for each processor that is not held to fewer instructions."""
    links = [f"[{r['processor']['name']}](peers/{r['processor']['folder']}.md)" for r in results]
    results = [r for r in results if "held to" not in r["processor"]["name"]]
    rows = {}
    for column, result in enumerate(results):
        for part, what in WHAT.items():
            for row in result.get(part, {}).get("rows", []):
                if is_left_out(part, row):
                    continue
                _, _, middle, _ = peers.ratio(row)
                rows.setdefault((row["name"], row["batch_size"], what), {})[column] = f"**{middle:.2f}**"
        for row in result.get("memory", {}).get("rows", []):
            ours, theirs = peers.memory(row)
            key = (row["name"], row["batch_size"], "peak memory (less is better)")
            rows.setdefault(key, {})[column] = f"**{ours / theirs:.2f}**"
    lines = ["| network | batch | | " + " | ".join(r["processor"]["name"] for r in results) + " |",
             "|---|---|---|" + "---|" * len(results)]
    for (name, batch, what), cells in rows.items():
        lines.append(f"| {name} | {batch} | {what} | " + " | ".join(cells.get(c, "") for c in range(len(results))) + " |")
    return lines + ["", "All figures of each processor, single norms too where they were measured: " + "; ".join(links) + "."]


def page(result):
    """Everything that was measured on one processor."""
    lines = [f"# Beside PyTorch on {result['processor']['name']}", "",
             "`python3 benchmarks/peers.py` measured this. [benchmarks.md](../benchmarks.md) says how to read it.", "",
             "| network | batch | | Norma img/s | PyTorch img/s | Norma / PyTorch | half of the rounds |",
             "|---|---|---|---|---|---|---|"]
    made = {}  # the parts, by when and how they were measured
    for part, what in WHAT.items():
        for row in result.get(part, {}).get("rows", []):
            if part == "batches" and row["batch_size"] == 8 and "train" in result:
                continue  # the same case again
            best, low, middle, high = peers.ratio(row)
            rate = {name: row["batch_size"] / statistics.median(seconds) for name, seconds in row["seconds"].items()}
            lines.append(f"| {row['name']} | {row['batch_size']} | {what} | {rate['norma']:.2f} | {rate[best]:.2f} | "
                         f"{middle:.2f} | {low:.2f} to {high:.2f} |")
    if "memory" in result:
        lines += peers.memory_table([(row["name"], row) for row in result["memory"]["rows"]])
    if "norms" in result:
        lines += peers.norms_table(result["norms"]["rows"])
    for part, title in peers.TITLES.items():
        if part in result:
            made.setdefault(made_by(result[part]), []).append(title.split(";")[0])
    return "\n".join(lines + [""] + [f"- {how}: {'; '.join(titles)}." for how, titles in made.items()]) + "\n"


def pages(root):
    """Path and text of each page."""
    results = [json.loads(path.read_text()) for path in sorted((root / "benchmarks/results").glob("*/peers.json"))]
    made = {root / "docs/peers" / (result["processor"]["folder"] + ".md"): page(result) for result in results}
    main = root / "docs/benchmarks.md"
    text = main.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        sys.exit(f"figures: {main}: expected one line '{BEGIN}' and one '{END}' behind it")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    made[main] = before + "\n".join([BEGIN, "", *(overview(results) if results else ["Nothing was measured yet."]), "", END]) + after
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page differs")
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent, help="of the project")
    options = parser.parse_args()
    made = pages(options.root)
    extra = set((options.root / "docs/peers").glob("*.md")) - set(made)
    wrong = [path for path, text in made.items() if not path.exists() or path.read_text() != text] + sorted(extra)
    if options.check:
        for path in wrong:
            print(f"figures: {path.relative_to(options.root)} is not what the results give", file=sys.stderr)
        sys.exit(1 if wrong else 0)
    for path in wrong:
        if path in extra:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
        print(f"written: {path.relative_to(options.root)}")


if __name__ == "__main__":
    main()
