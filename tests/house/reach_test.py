#!/usr/bin/env python3
"""reach_test.py ROOT: .ci/reach.py in a clone: which parts a change of a file reaches."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
IDENTITY = ['-c', 'user.name=Norma', '-c', 'user.email=norma@localhost', '-c', 'commit.gpgsign=false']


class Reach(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tree = Path(cls.folder.name) / 'tree'
        cls.git(None, 'clone', '--quiet', '--shared', str(ROOT), str(cls.tree))
        (cls.tree / '.ci/reach.py').write_text((ROOT / '.ci/reach.py').read_text())
        cls.commit('as it is')
        cls.reach('--note')
        cls.commit('note')
        cls.noted = cls.git(cls.tree, 'rev-parse', 'HEAD').strip()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.git(self.tree, 'reset', '--quiet', '--hard', self.noted)

    @staticmethod
    def git(tree, *arguments):
        where = ['-C', str(tree)] if tree else []
        return subprocess.run(['git', *IDENTITY, *where, *arguments], check=True, capture_output=True, text=True).stdout

    @classmethod
    def commit(cls, message):
        cls.git(cls.tree, 'add', '--all')
        cls.git(cls.tree, 'commit', '--quiet', '--allow-empty', '-m', message)

    @classmethod
    def reach(cls, *arguments, **environment):
        run = subprocess.run([sys.executable, '-B', str(cls.tree / '.ci/reach.py'), *arguments], check=True, text=True,
                             capture_output=True, env={**os.environ, 'NORMA_CI_ALL': '', **environment})
        return run.stdout.strip()

    def change(self, *names, text='\n'):
        for name in names:
            with open(self.tree / name, 'a', encoding='utf-8') as file:
                file.write(text)
        self.commit('change')

    def reached(self):
        return {line.split()[0] for line in self.reach().splitlines() if ' reached: ' in line}

    def test_nothing_has_changed(self):
        self.assertEqual(self.reached(), set())

    def test_docs_reach_nothing_but_tests_that_read_them(self):
        self.change('docs/bench.md', 'CHANGELOG.md')
        self.assertEqual(self.reached(), set())
        self.change('docs/command.md')
        self.assertEqual(self.reached(), {'release:cli', 'asan:cli'})

    def test_what_the_rules_of_the_house_read_reaches_them(self):
        for name in ('README.md', 'docs/cluster.md', 'tests/virtual_gpu/README.md', 'lessons/01_strides/lesson.cpp',
                     'examples/my_norm/by_ops.cpp', 'python/bindings/module.cpp', 'tests/ops/pool_test.cpp'):
            with self.subTest(name):
                self.assertTrue((self.tree / name).is_file())
                self.change(name)
                self.assertIn('release:house', self.reached())
                self.git(self.tree, 'reset', '--quiet', '--hard', self.noted)

    def test_lab_reaches_what_is_above_it(self):
        self.change('lab/report/chart.cpp')
        reached = self.reached()
        self.assertLessEqual({'tidy', 'release:lab', 'release:cli', 'asan:lab', 'python'}, reached)
        self.assertFalse({'release:train', 'emulated:ops', 'cuda', 'portable:ops', 'wheel', 'debian', 'asan:nn'} & reached)
        self.assertNotIn('asan:train', reached)

    def test_a_test_reaches_its_room(self):
        self.change('tests/ops/pool_test.cpp')
        self.assertEqual(self.reached(), {'release:ops', 'release:house', 'emulated:ops', 'asan:ops', 'cuda'})

    def test_a_header_of_tests_reaches_the_rooms_whose_tests_include_it(self):
        self.change('tests/train/two_classes.h')
        self.assertEqual(self.reached(), {'release:train', 'release:session', 'asan:train', 'asan:session', 'cuda'})
        self.git(self.tree, 'reset', '--quiet', '--hard', self.noted)
        self.change('tests/ops/formula_values.h')  # by way of ops/norm_reference.h
        self.assertLessEqual({'release:ops', 'release:nn', 'emulated:nn'}, self.reached())

    def test_a_kernel_reaches_the_portable_build(self):
        self.change('ops/norm/cpu/rows.cpp')
        reached = self.reached()
        self.assertLessEqual({'portable:ops', 'portable:parity', 'asan:ops', 'emulated:nn', 'cuda', 'release:lab'}, reached)
        self.assertFalse({'portable:core', 'wheel'} & reached)

    def test_sanitizers_of_the_upper_rooms_read_the_headers_of_the_lowest(self):
        self.change('ops/pool/pool.cpp')
        sanitized = {part for part in self.reached() if part.startswith('asan:')}
        self.assertEqual(sanitized, {'asan:ops', 'asan:nn', 'asan:models'})
        self.change('ops/pool/pool.h')
        self.assertLessEqual({'asan:train', 'asan:lab', 'asan:cli'}, self.reached())

    def test_a_tensor_reaches_everything_that_is_compiled(self):
        self.change('core/tensor.h')
        self.assertLessEqual({f'release:{room}' for room in ('core', 'ops', 'cli', 'lab', 'parity', 'examples', 'lessons')} |
                             {'cuda', 'python', 'emulated:core', 'asan:cli'}, self.reached())

    def test_build_files_and_libraries_reach_debian(self):
        self.change('run')
        self.assertIn('debian', self.reached())
        self.git(self.tree, 'reset', '--quiet', '--hard', self.noted)
        self.change('nn/module.cpp', text='#include <zlib-ng.h>\n')
        self.assertIn('debian', self.reached())

    def test_a_removed_file_counts(self):
        self.git(self.tree, 'rm', '--quiet', 'tests/nn/norm_torch_test.cpp')
        self.commit('remove')
        self.assertIn('release:nn', self.reached())

    def test_an_amended_message_changes_nothing(self):
        self.git(self.tree, 'commit', '--quiet', '--amend', '-m', 'another message')
        self.assertEqual(self.reached(), set())

    def test_an_unknown_tree_reaches_its_part(self):
        file = self.tree / '.ci/passed.txt'
        lines = file.read_text().splitlines()
        file.write_text('\n'.join(f'cuda {"0" * 40}' if line.startswith('cuda ') else line for line in lines))
        self.assertEqual(self.reached(), {'cuda'})

    def test_all(self):
        self.assertIn('left out', self.reach())
        self.assertNotIn('left out', self.reach(NORMA_CI_ALL='1'))

    def test_clang_tidy_reads_what_includes_a_header(self):
        self.change('ops/pool/kernels.h')
        files = self.reach('--tidy').splitlines()
        self.assertIn('ops/pool/pool.cpp', files)
        self.assertNotIn('nn/module.cpp', files)

    def test_note_refuses_a_working_copy_that_differs(self):
        (self.tree / 'run').write_text('')
        with self.assertRaises(subprocess.CalledProcessError):
            self.reach('--note')

    def test_every_label_of_a_room_is_a_part(self):
        parts = [line.split()[0] for line in self.reach(NORMA_CI_ALL='1').splitlines()]
        self.assertEqual([part.removeprefix('release:') for part in parts if part.startswith('release:')],
                         ['base', 'core', 'races', 'ops', 'nn', 'models', 'export', 'data', 'parallel', 'train', 'session', 'lab', 'cli',
                          'parity', 'house', 'examples', 'recipes', 'lessons'])


unittest.main()
