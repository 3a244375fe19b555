#!/usr/bin/env python3
"""Tests of benchmarks/figures.py, processor.py and peers.py; no measurement, no Norma."""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.dont_write_bytecode = True
import figures  # noqa: E402
import peers  # noqa: E402
import processor  # noqa: E402


def result(name, ours, theirs):
    row = {"name": "resnet50", "batch_size": 8, "seconds": {"norma": ours, "pytorch contiguous": theirs},
           "peak_rss": {"norma": 3e9, "pytorch contiguous": 4e9}}
    made = {"date": "2026-01-02", "threads": 2, "rounds": len(ours), "versions": {"pytorch": "PyTorch 2"}}
    return {"processor": {"name": name, "folder": name.lower()}, "train": made | {"rows": [row]}, "memory": made | {"rows": [row]}}


class Figures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / "docs").mkdir()
        (self.root / "docs/benchmarks.md").write_text(f"before\n{figures.BEGIN}\nold\n{figures.END}\nbehind\n")
        self.add(result("Zen", [1.0, 1.0, 1.0], [1.5, 1.25, 2.0]))

    def tearDown(self):
        self.folder.cleanup()

    def add(self, one):
        path = self.root / "benchmarks/results" / one["processor"]["folder"] / "peers.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(one))

    def run_figures(self, *arguments):
        return subprocess.run([sys.executable, "-B", ROOT / "benchmarks/figures.py", "--root", self.root, *arguments],
                              capture_output=True, text=True)

    def test_pages(self):
        self.assertEqual(self.run_figures().returncode, 0)
        text = (self.root / "docs/benchmarks.md").read_text()
        self.assertIn("| network | batch | | Zen |\n", text)
        self.assertIn("| resnet50 | 8 | training, float32 | **1.50** |\n", text)
        self.assertIn("| **0.75** |\n", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("\nbehind\n"))
        self.assertNotIn("old", text)
        page = (self.root / "docs/peers/zen.md").read_text()
        self.assertIn("- 2026-01-02, 2 threads, 3 rounds, PyTorch 2: training, float32; peak resident memory of training.\n", page)
        self.assertIn("| 1.50 | 1.38 to 1.75 |\n", page)

    def test_another_processor_adds_a_column(self):
        self.add(result("Lake", [1.0], [3.0]))
        self.run_figures()
        text = (self.root / "docs/benchmarks.md").read_text()
        self.assertIn("| Lake | Zen |\n", text)
        self.assertIn("| **3.00** | **1.50** |\n", text)

    def test_check_finds_what_differs(self):
        self.assertEqual(self.run_figures("--check").returncode, 1)
        self.run_figures()
        self.assertEqual(self.run_figures("--check").returncode, 0)
        page = self.root / "docs/peers/zen.md"
        page.write_text(page.read_text().replace("1.50", "1.60"))
        checked = self.run_figures("--check")
        self.assertEqual(checked.returncode, 1)
        self.assertEqual(checked.stderr, "figures: docs/peers/zen.md is not what the results give\n")
        self.run_figures()
        (self.root / "docs/peers/gone.md").write_text("figures without results")
        self.assertEqual(self.run_figures("--check").returncode, 1)
        self.run_figures()
        self.assertFalse((self.root / "docs/peers/gone.md").exists())

    def test_a_page_without_its_marks(self):
        (self.root / "docs/benchmarks.md").write_text("nothing\n")
        self.assertIn("expected one line", self.run_figures().stderr)


class Processor(unittest.TestCase):
    CPUINFO = "processor : 0\ncpu family : 25\nmodel : 1\nmodel name : AMD EPYC 7763 64-Core Processor\nflags : sse2 avx2\n\nprocessor : 1\n"

    def test_names(self):
        self.assertEqual(processor.describe(text=self.CPUINFO),
                         {"name": "AMD EPYC 7763 (25-1), AVX2", "folder": "amd-epyc-7763-25-1-avx2"})
        wide = self.CPUINFO.replace("avx2", "avx2 avx512f")
        self.assertEqual(processor.describe("avx2", wide)["name"], "AMD EPYC 7763 (25-1), held to AVX2")
        hidden = wide.replace("AMD EPYC 7763 64-Core Processor", "Intel(R) Xeon(R) Processor @ 2.50GHz")
        self.assertEqual(processor.describe(text=hidden)["folder"], "intel-xeon-25-1-avx-512")


class Peers(unittest.TestCase):
    """What peers.py says of programs that cannot do what is asked; scripts stand for them."""

    def run_peers(self, folder, turns, *arguments):
        for name, text in (("norma", ""), ("turns", turns)):
            path = pathlib.Path(folder) / name
            path.write_text("#!/bin/sh\n" + text)
            path.chmod(0o755)
        return subprocess.run([sys.executable, ROOT / "benchmarks/peers.py", "--python", "false", "--norma",
                               f"{folder}/norma", "--turns", f"{folder}/turns", *arguments], capture_output=True, text=True)

    def test_a_build_that_cannot_be_held_to_less_says_which_preset_can(self):
        with tempfile.TemporaryDirectory() as folder:
            native = "read -r step || exit 0; echo \"turns: NORMA_SIMD: expected one of avx512, got '$NORMA_SIMD'\" >&2; exit 1\n"
            done = self.run_peers(folder, native, "--isa", "avx2", "--only", "train")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f"peers: {folder}/turns does not run held to AVX2 (turns: NORMA_SIMD: expected "
                             "one of avx512, got 'avx2'); build one that does: cmake --preset cpu-avx2 && cmake --build "
                             "--preset cpu-avx2 --target norma turns, and leave out --norma and --turns\n")

    def test_a_program_that_is_not_there(self):
        done = subprocess.run([sys.executable, ROOT / "benchmarks/peers.py", "--norma", "nowhere"], capture_output=True,
                              text=True)
        self.assertEqual(done.stderr, "peers: nowhere does not exist; build it first: cmake --preset cpu-release && cmake "
                         "--build --preset cpu-release --target norma turns\n")

    def test_a_program_that_ends_on_the_way_is_no_traceback(self):
        contender = peers.Contender(["false"], {})
        contender.process.wait()
        with self.assertRaises(SystemExit) as ended:
            contender.step()
        self.assertEqual(ended.exception.code, "peers: false: ended early")
        contender.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            contender.process.stdin.close()


if __name__ == "__main__":
    unittest.main(verbosity=0)
