#!/usr/bin/env python3
"""Each fault of tests/virtual_gpu/planted_faults.toml can still be planted; mutations.py plants them, which needs nvcc."""
import csv
import fnmatch
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/virtual_gpu"))
sys.dont_write_bytecode = True
import mutations  # noqa: E402
from mutations import FAULTS  # noqa: E402


def cases_of(program):
    """The names of a program's test cases."""
    texts = (path.read_text() for path in (ROOT / "tests" / program).rglob("*_test.cpp"))
    return [name for text in texts for name in re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', text)]


class PlantedFaults(unittest.TestCase):
    maxDiff = None  # differences are printed whole

    def test_the_text_that_is_replaced_occurs_once(self):
        for fault in FAULTS:
            with self.subTest(fault.what):
                self.assertEqual((ROOT / fault.file).read_text().count(fault.old), 1, f"{fault.file}: {fault.old}")
                self.assertNotEqual(fault.old, fault.new)

    def test_the_sources_that_are_compiled_exist(self):
        for fault in FAULTS:
            with self.subTest(fault.what):
                self.assertTrue(fault.units)
                for unit in fault.units:
                    self.assertTrue((ROOT / unit).is_file(), unit)

    def test_each_filter_names_test_cases(self):
        for program, filters in {(fault.program, fault.cases) for fault in FAULTS}:
            names = cases_of(program)
            for one in filters.split(","):
                with self.subTest(one, program=program):
                    self.assertTrue(fnmatch.filter(names, one))

    def test_the_table_has_a_row_for_each(self):
        with mutations.TABLE.open(newline="") as file:
            table = list(csv.DictReader(file))
        rows = sorted((row["fault"], row["file"]) for row in table)
        faults = sorted((fault.what, fault.file) for fault in FAULTS)
        differences = sorted(set(rows) ^ set(faults))
        self.assertEqual(differences, [], f"{mutations.TABLE.name} is not what tests/virtual_gpu/mutations.py would write")
        self.assertEqual(rows, faults)
        results = [{way: row[way.name] for way in mutations.WAYS} for row in table]
        said = mutations.PAGE.read_text().split(mutations.BEGIN)[1].split(mutations.END)[0].strip()
        self.assertEqual(said, mutations.summary(results))


if __name__ == "__main__":
    unittest.main(verbosity=0)
