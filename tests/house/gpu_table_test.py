#!/usr/bin/env python3
"""benchmarks/gpu_table.py joins Norma's rows with PyTorch's of the same batch size; made-up figures, no GPU."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ours(batch, rate):
    return {"model": "resnet50", "norm": "batch", "format": "channels_last", "precision": "amp_bfloat16",
            "train_samples_per_sec": rate, "train_batch_size": batch, "train_peak_allocated": 5000}


def theirs(batch, rate, model="resnet50"):
    return {"model": model, "norm": "batch", "format": "channels_last", "precision": "amp_bfloat16", "mode": "train",
            "batch": batch, "img_per_s": rate, "peak_memory_mib": 1000}


class Table(unittest.TestCase):
    def test_rows_are_joined_by_batch_size(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("norma_resnet50_amp_bfloat16_b256.json", [ours(256, 300)]),
                                  ("steps/resnet50.json", [ours(128, 200)]), ("steps/others.json", ours(32, 50)),
                                  ("nets_resnet50_bf16_b256.json", {"rows": [theirs(256, 150), {"model": "failed"}]}),
                                  ("compile_resnet50.json", {"rows": [theirs(128, 250), theirs(64, 90, "vit_small")]})):
                file = pathlib.Path(folder) / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(json.dumps(content))
            made = subprocess.run([sys.executable, "-B", ROOT / "benchmarks/gpu_table.py", folder], check=True,
                                  capture_output=True, text=True).stdout
        network = ["channels_last", "amp_bfloat16", "train"]
        self.assertEqual([line.split() for line in made.splitlines()[1:5]], [
            ["resnet50", "batch", *network, "32", "50", "-", "-", "-", "-", "5000", "-"],
            ["resnet50", "batch", *network, "128", "200", "-", "250", "-", "0.80", "5000", "-"],
            ["resnet50", "batch", *network, "256", "300", "150", "-", "2.00", "-", "5000", "1049"],
            ["vit_small", "batch", *network, "64", "-", "-", "90", "-", "-", "-", "-"]])
        self.assertEqual(made.splitlines()[5:], [
            "Norma alone: resnet50 batch channels_last amp_bfloat16 train, batch 32; PyTorch has only batch 128, 256",
            "PyTorch alone: vit_small batch channels_last amp_bfloat16 train, batch 64; Norma has none"])


if __name__ == "__main__":
    unittest.main()
