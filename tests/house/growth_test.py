#!/usr/bin/env python3
"""Tests of benchmarks/growth.py on made-up figures; no measurement, no Norma."""
import argparse
import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.dont_write_bytecode = True
import growth  # noqa: E402

XS = (1, 2, 4, 8, 16, 32)


def on_line(xs=XS, start=10.0, slope=3.0):
    return [(x, start + slope * x) for x in xs]


def moved(points, number, factor):
    return [(x, y * (factor if i == number else 1)) for i, (x, y) in enumerate(points)]


class Bends(unittest.TestCase):
    def test_line(self):
        start, slope = growth.line_through(on_line())
        self.assertAlmostEqual(start, 10)
        self.assertAlmostEqual(slope, 3)

    def test_straight(self):
        bend, (start, slope), off = growth.find_bend(on_line())
        self.assertIsNone(bend)
        self.assertAlmostEqual(start, 10)
        self.assertAlmostEqual(slope, 3)
        self.assertAlmostEqual(off, 0)

    def test_first_point_off_the_line(self):
        for number in range(growth.LEAST, len(XS)):
            for factor in (0.84, 1.16):
                bend, (start, slope), off = growth.find_bend(moved(on_line(), number, factor))
                self.assertEqual(bend, number)
                self.assertAlmostEqual(start, 10)
                self.assertAlmostEqual(slope, 3)
                self.assertAlmostEqual(off, factor - 1)
            for factor in (0.86, 1.14):
                self.assertNotEqual(growth.find_bend(moved(on_line(), number, factor))[0], number)

    def test_a_new_slope(self):
        points = [(x, 10 + 3 * x if x <= 8 else 34 + 6 * (x - 8)) for x in XS]
        bend, _, off = growth.find_bend(points)
        self.assertEqual(XS[bend], 16)
        self.assertAlmostEqual(off, 82 / 58 - 1)

    def test_what_is_no_number_is_off(self):
        for wrong in (math.nan, math.inf):
            points = on_line()
            points[4] = (points[4][0], wrong)
            self.assertEqual(growth.find_bend(points)[0], 4)
        # A line that falls below 0 says nothing of the next point.
        self.assertEqual(growth.find_bend([(1, 9), (2, 5), (3, 1), (9, 1)])[0], 3)


class Sentences(unittest.TestCase):
    def say(self, points):
        return growth.sentence("Norma", "the time of a step", "ms", points, [f"batch {x}" for x, _ in points], "image")

    def test_straight(self):
        self.assertEqual(self.say(moved(on_line(), 3, 1.05)),
                         "Norma: the time of a step is a straight line from batch 1 to batch 32 (9.99 ms, and 3.04 ms more for each "
                         "image); no point is more than 4 % off it.")

    def test_bend(self):
        self.assertEqual(self.say(moved(on_line(), 4, 1.25)),
                         "Norma: the time of a step is a straight line up to batch 8 (10 ms, and 3 ms more for each image) and bends at "
                         "batch 16, which is 25 % above it.")
        self.assertTrue(self.say(moved(on_line(), 5, 0.7)).endswith("bends at batch 32, which is 30 % below it."))

    def test_no_line(self):
        points = [(1, 10), (2, 16), (3, 35), (5, 42), (8, 66)]
        self.assertIsNone(growth.find_bend(points)[0])
        self.assertEqual(self.say(points), "Norma: the time of a step is no straight line from batch 1 to batch 8: batch 3 is 32 % "
                                           "above the best one (1.44 ms, and 8.33 ms more for each image).")

    def test_few(self):
        self.assertEqual(self.say(on_line()[:3]), "Norma: the time of a step has too few points to look for a bend.")


def row(x, seconds, gigabytes):
    programs = (growth.NORMA, growth.CHECKPOINTS, growth.PYTORCH)
    return {"name": f"batch {x}", "x": x, "batch_size": x, "seconds": dict(zip(programs, ([s, 2 * s, 1.5 * s] for s in seconds))),
            "peak_rss": dict(zip(programs, (1e9 * g for g in gigabytes)))}


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        path = self.root / "benchmarks/results/zen/growth.json"
        path.parent.mkdir(parents=True)
        rows = [row(x, (0.1 * x, 0.13 * x, 0.2 * x), (0.5 + 0.1 * x, 0.5 + 0.05 * x, 1 + 0.2 * x)) for x in XS]
        threads = [row(8, (0.8, 1.0, 1.6), (1, 1, 2)) | {"name": "1 thread"}, row(8, (0.5, 0.6, 0.8), (1, 1, 2)) | {"name": "2 threads"}]
        path.write_text(json.dumps({
            "processor": {"name": "Zen", "folder": "zen"}, "date": "2026-01-02", "threads": 2, "rounds": 3,
            "versions": {"pytorch": "PyTorch 2"}, "setting": {"model": "resnet50", "pixels": 224, "images": 8},
            "axes": {"batch": rows, "threads": threads}}))

    def tearDown(self):
        self.folder.cleanup()

    def run_growth(self, *arguments):
        return subprocess.run([sys.executable, "-B", ROOT / "benchmarks/growth.py", "--root", self.root, *arguments],
                              capture_output=True, text=True)

    def test_page(self):
        self.assertEqual(self.run_growth("--check").returncode, 1)
        made = self.run_growth("--page")
        self.assertEqual(made.returncode, 0, made.stderr)
        text = (self.root / "docs/growth/zen.md").read_text()
        # The fastest of the rounds, which is the first, over the images.
        self.assertIn("| batch 4 | 100.0 | 130.0 | 200.0 | 2.00 | 900 | 700 | 1800 | 0.50 |\n", text)
        self.assertIn("- Norma: the peak of memory is a straight line from batch 1 to batch 32 (500 MB, and 100 MB more for each image)",
                      text)
        self.assertIn("- At batch 32 Norma's peak of memory is 0.50 of PyTorch's, with --grad-checkpointing 0.28.\n", text)
        self.assertIn("- Norma: 2 threads are 1.60 times as fast as 1 thread.\n", text)
        self.assertIn("2026-01-02, 2 threads, 3 rounds, PyTorch 2.\n", text)
        self.assertEqual(self.run_growth("--check").returncode, 0)

    def test_planted_faults_are_found(self):
        self.run_growth("--page")
        path = self.root / "docs/growth/zen.md"
        path.write_text(path.read_text().replace("0.50 |", "0.40 |"))
        self.assertEqual(self.run_growth("--check").returncode, 1)
        self.run_growth("--page")
        (self.root / "docs/growth/lake.md").write_text("of a processor without figures\n")
        found = self.run_growth("--check")
        self.assertEqual(found.returncode, 1)
        self.assertIn("docs/growth/lake.md", found.stderr)


class Memory(unittest.TestCase):
    def test_a_page_of_threads_alone_knows_the_versions(self):
        def measured(programs, *_):
            programs.versions["pytorch"] = f"PyTorch by {programs.options.threads}"
            return {"batch_size": 8, "seconds": {}, "peak_rss": {}}

        options = argparse.Namespace(threads=2, python="none", isa=None)
        programs = growth.peers.Programs(options)
        with unittest.mock.patch.object(growth, "measure", measured), contextlib.redirect_stdout(io.StringIO()):
            rows = growth.measure_axis("threads", options, programs, {"model": "m", "images": 8, "pixels": 32, "rounds": 1})
        self.assertEqual([row["name"] for row in rows], ["1 thread", "2 threads"])
        self.assertEqual(programs.versions, {"pytorch": "PyTorch by 2"})

    def test_what_the_next_point_will_take(self):
        rows = [row(x, (1, 1, 1), (0.5 + 0.1 * x, 0.5 + 0.05 * x, 1 + 0.2 * x)) for x in (1, 2, 4)]
        self.assertAlmostEqual(growth.expected_bytes(rows, 32) / 1e9, 2 + 0.35 * 32)
        self.assertEqual(growth.expected_bytes(rows[:1], 32), 0)


if __name__ == "__main__":
    unittest.main()
