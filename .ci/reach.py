#!/usr/bin/env python3
"""What a change can reach: which parts of CI read a file that differs from the tree in which they passed last.

.ci/passed.txt notes, for each part, the tree (git rev-parse HEAD^{tree}) with which it passed. A tree outlives an amended
message. A part whose tree is not known to this clone is reached.

  reach.py             every part: reached and by which file, or left out
  reach.py --tidy      the files that clang-tidy has to read: what changed and what includes it
  reach.py --note [PART…]
                       notes the tree of HEAD for these parts, or for all: they have passed with it

NORMA_CI_ALL=1 reaches everything.
"""
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTED = ROOT / '.ci/passed.txt'
SOURCE = re.compile(r'\.(h|cpp|cu)$')
# What every program is built by, and what every program of tests is made of.
BUILD = ['CMakeLists.txt', 'CMakePresets.json', 'cmake/']
TESTS = BUILD + ['tests/CMakeLists.txt', r'tests/[^/]+\.(h|cpp)$']
TESTED = ['base', 'core', 'races', 'ops', 'nn', 'models', 'export', 'data', 'parallel', 'train', 'session', 'lab', 'cli', 'parity']
JPEG = r'data/(stb|jpeg_).*cpp$'  # readers of images without their libraries

LOWEST = ['base', 'core', 'ops', 'nn', 'models']


def git(*arguments):
    return subprocess.run(['git', '-C', str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


@cache
def files():
    return git('ls-files').splitlines()


@cache
def text(name):
    try:
        return (ROOT / name).read_text(errors='replace')
    except (FileNotFoundError, IsADirectoryError):
        return ''


@cache
def rooms():
    """Of each room, the rooms that it may include, itself among them."""
    lines = re.findall(r'set\(may_include_(\w+) ([a-z ]+)\)', text('tests/house/include_direction.cmake'))
    return {name: may.split() for name, may in lines if not name.startswith('family_')}


def room(name):
    return [f'{other}/' for other in rooms()[name]]


@cache
def shared_by(name):
    """The headers of rooms' tests that a test includes, directly or not."""
    found = set()
    for included in re.findall(r'#include "(\w+/[^"]+)"', text(name)):
        if text(f'tests/{included}'):
            found |= {f'tests/{included}', *shared_by(f'tests/{included}')}
    return found


@cache
def tests_of(name):
    """What the tests of a room read: rooms by their includes, files of the tree by their names."""
    folder = f'tests/{name}/'
    reads = {*TESTS, folder}
    for file in files():
        if not file.startswith(folder) or not SOURCE.search(file):
            continue
        reads |= shared_by(file)
        for included in re.findall(r'#include [<"](?:norma/)?(\w+)[/.]', text(file)):
            if included in rooms() and included != 'tests':
                reads |= set(room(included))
            elif included == 'norma':
                reads |= {'norma.h', *room('lab'), *room('export')}
        if 'norma_program()' in text(file):
            reads |= {*room('cli'), 'examples/my_norm/'}
        for path in re.findall(r'source_folder\(\) / ("[^"]+"(?: / "[^"]+")*)', text(file)):
            reads.add(path.replace('" / "', '/').strip('"'))
    return sorted(reads)


def sanitized(name):
    """What the tests of a room read with the sanitizers. These run the sources of the lowest rooms in their own tests and
    in those of nn and models; of them, the rooms above read the headers."""
    if name in LOWEST:
        return tests_of(name)
    return [f'{read}(.*/)?[^/]+\\.h$' if read[:-1] in LOWEST else read for read in tests_of(name)]


def portable(name):
    """Of what the tests of a room read: what differs from processor to processor, and what stands in for libraries that
    are not there."""
    may = '|'.join(sorted({'core', 'data', 'ops'} & set(rooms().get(name, ['core', 'data', 'ops']))))
    kernels = rf'({may})/(.*/)?((cpu|simd|half)/|[^/]*(_(stub|eigen)\.cpp|_kernels\.h|(half|uniform)\.h)$)'
    vectors = [file for file in files() if re.match(f'({may})/', file) and '#include "core/simd/' in text(file)]
    return [*TESTS, kernels, *vectors, *([JPEG] if 'data' in may else [])]


def parts():
    """Of each part, what it reads: names of files, folders that end in a slash, or regular expressions."""
    found = {'tidy': [*BUILD, '.clang-tidy', r'(?!tests/|lessons/|examples/|benchmarks/|python/).*' + SOURCE.pattern]}
    found |= {f'release:{name}': tests_of(name) for name in TESTED}
    everything = [*TESTS, 'norma.h', *room('cli')]
    # The installed Norma builds README's example, the lessons and a plug-in; planted faults name test cases.
    found['release:house'] = [*everything, 'tests/house/', 'tests/virtual_gpu/', r'tests/(core|ops|train)/.*_test\.cpp$',
                              'README.md', 'docs/walkthrough.md', 'docs/cluster.md', 'run', '.ci/run', '.ci/reach.py',
                              'benchmarks/', 'examples/', 'lessons/', 'python/', 'recipes/']
    found['release:examples'] = [*everything, 'examples/']
    found['release:recipes'] = [*everything, 'recipes/']
    found['release:lessons'] = [*everything, 'lessons/']
    found |= {f'emulated:{name}': tests_of(name) for name in ['core', 'ops', 'nn', 'models']}
    found |= {f'asan:{name}': sanitized(name) for name in TESTED if name not in ('races', 'export')}
    found['site'] = ['lessons/']
    found['python'] = [*everything, 'python/', 'tests/python/', 'pyproject.toml']
    # Its code is that of python and portable; what it has of its own is how it is packed.
    found['wheel'] = [*BUILD, JPEG, 'python/', 'tests/python/', 'pyproject.toml', 'cli/CMakeLists.txt']
    tested = [f'tests/{name}/' for name in ('core', 'ops', 'nn', 'models', 'parallel', 'train', 'session', 'lab', 'virtual_gpu')]
    found['cuda'] = [*TESTS, *room('session'), 'lab/bench/', *tested]
    found |= {f'portable:{name}': portable(name) for name in ['core', 'ops', 'data', 'parity']}
    found['debian'] = [*BUILD, r'(.*/)?CMakeLists\.txt$', 'run', 'tests/house/debian.sh', 'python/tools.sh', 'pyproject.toml']
    return found


def read_by(reads, name):
    return any(name == read or (read.endswith('/') and name.startswith(read)) or
               (read[-1] in '$)' and re.match(read, name)) for read in reads)


def passed_trees():
    return dict(line.split() for line in text('.ci/passed.txt').splitlines() if line and line[0] != '#')


@cache
def changed(tree):
    """The files that differ between a tree and HEAD; None where this clone does not know the tree."""
    try:
        return git('diff', '--name-only', '--no-renames', tree, 'HEAD').splitlines()
    except subprocess.CalledProcessError:
        return None


@cache
def library_includes(tree):
    return set(git('grep', '-hE', r'^ *#include <[^>]+\.(h|hpp|hxx)>', tree, '--', '*.h', '*.cpp', '*.cu').splitlines())


def reason(part, reads):
    """Why a part is reached; empty where it is not."""
    if os.environ.get('NORMA_CI_ALL') == '1':
        return 'all parts are asked for'
    tree = passed_trees().get(part)
    names = changed(tree) if tree else None
    if names is None:
        return 'no tree is known in which it passed'
    hits = [name for name in names if read_by(reads, name)]
    if hits:
        return hits[0] + (f' and {len(hits) - 1} more' if hits[1:] else '')
    if part == 'debian' and library_includes(tree) != library_includes('HEAD'):
        return 'includes of libraries'
    return ''


def tidy():
    """Sources that changed, and those that include a header that did, directly or not."""
    sources = [name for name in files() if SOURCE.search(name) and not name.startswith(('tests/', 'lessons/'))]
    tree = passed_trees().get('tidy')
    names = changed(tree) if tree and os.environ.get('NORMA_CI_ALL') != '1' else None
    if names is None or any(read_by([*BUILD, '.clang-tidy'], name) for name in names):
        return sources
    included = {name: set(re.findall(r'#include [<"](?:norma/)?([^>"]+)[>"]', text(name))) for name in sources}
    reached = {name for name in names if name in included}
    while True:
        more = {name for name in sources if included[name] & reached} - reached
        if not more:
            return sorted(reached)
        reached |= more


def note(chosen):
    if git('status', '--porcelain', '--untracked-files=no').strip():
        sys.exit('reach.py: --note: the working copy differs from HEAD, and so nobody knows which tree passed')
    unknown = [part for part in chosen if part not in parts()]
    if unknown:
        sys.exit(f'reach.py: unknown part {unknown[0]}; there are {", ".join(parts())}')
    tree = git('rev-parse', 'HEAD^{tree}').strip()
    trees = passed_trees() | {part: tree for part in chosen or parts()}
    NOTED.write_text('# Of each part of CI, the tree in which it passed last (.ci/reach.py --note).\n' +
                     ''.join(f'{part} {trees[part]}\n' for part in parts() if part in trees))


def main(arguments):
    if arguments[:1] == ['--note']:
        return note(arguments[1:])
    if arguments == ['--tidy']:
        return print('\n'.join(tidy()))
    if arguments:
        sys.exit(f'reach.py: unknown argument {arguments[0]}; there are --tidy and --note')
    for part, reads in parts().items():
        why = reason(part, reads)
        print(f'{part:18} ' + (f'reached: {why}' if why else 'left out: it reads nothing that has changed since it passed'))


main(sys.argv[1:])
