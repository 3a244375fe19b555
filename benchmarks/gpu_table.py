#!/usr/bin/env python3
"""Norma beside PyTorch, from the files that benchmarks/gpu.sh has left in a folder: gpu_table.py FOLDER

A line per network, norm, format, precision, direction and batch size: images per second, and MB that tensors held at most.
Below, what only one of the two has, with the batch sizes that the other has."""
import json
import pathlib
import sys


def norma_rows(folder):
    for file in sorted([*folder.glob("norma_*_b*.json"), *folder.glob("steps/*.json")]):
        rows = json.loads(file.read_text())
        for row in rows if isinstance(rows, list) else [rows]:
            for mode in ("train", "infer"):
                if f"{mode}_samples_per_sec" in row:
                    key = (row["model"], row["norm"], row["format"], row["precision"], mode, row[f"{mode}_batch_size"])
                    yield key, (row[f"{mode}_samples_per_sec"], row.get(f"{mode}_peak_allocated"))


def pytorch_rows(folder, compiled):
    for file in sorted(folder.glob("compile_*.json" if compiled else "nets_*.json")):
        for row in json.loads(file.read_text())["rows"]:
            if "img_per_s" in row:
                layout = {"nchw": "contiguous"}.get(row["format"], row["format"])
                key = (row["model"], row["norm"], layout, row["precision"], row["mode"], row["batch"])
                mebibytes = row.get("peak_memory_mib")
                yield key, (row["img_per_s"], mebibytes and mebibytes * 2**20 / 1e6)


def cell(value):
    return "-" if value is None else f"{value:.0f}"


def without_partner(name, rows, other_name, others):
    """A line for each row whose key the others lack."""
    for key in sorted(rows - others):
        batches = sorted(other[-1] for other in others if other[:-1] == key[:-1])
        has = f"only batch {', '.join(map(str, batches))}" if batches else "none"
        yield f"{name} alone: {' '.join(map(str, key[:-1]))}, batch {key[-1]}; {other_name} has {has}"


def main():
    folder = pathlib.Path(sys.argv[1])
    norma = dict(norma_rows(folder))
    pytorch = dict(pytorch_rows(folder, compiled=False))
    compiled = dict(pytorch_rows(folder, compiled=True))
    table = [["model", "norm", "format", "precision", "pass", "batch", "Norma", "PyTorch", "compiled", "Norma/PyTorch",
              "Norma/compiled", "MB", "PyTorch MB"]]
    for key in sorted(norma.keys() | pytorch.keys() | compiled.keys()):
        ours, theirs, best = (rows.get(key, (None, None)) for rows in (norma, pytorch, compiled))
        ratios = [f"{ours[0] / other[0]:.2f}" if ours[0] and other[0] else "-" for other in (theirs, best)]
        table.append([*map(str, key), cell(ours[0]), cell(theirs[0]), cell(best[0]), *ratios, cell(ours[1]),
                      cell(theirs[1])])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(text.ljust(w) if i < 5 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths))).rstrip())
    peers = pytorch.keys() | compiled.keys()
    for line in (*without_partner("Norma", norma.keys(), "PyTorch", peers),
                 *without_partner("PyTorch", peers, "Norma", norma.keys())):
        print(line)


main()
