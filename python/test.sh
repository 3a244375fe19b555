#!/usr/bin/env bash
# python/test.sh [--preset NAME] [pytest options]: builds the module of the Python package in the tree, and runs its tests
# and what mypy says of the package, its stubs and the examples (with the sanitizers: the tests alone). `./run python`
# calls it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=cpu-release
[ "${1:-}" != --preset ] || { preset=$2; shift 2; }
tools=$("$root/python/tools.sh")
build=$root/build/$preset
cd "$root"
grep -qs "^Python_EXECUTABLE:.*=$tools/bin/python$" "$build/CMakeCache.txt" &&
  grep -qs '^NORMA_BUILD_PYTHON:BOOL=ON' "$build/CMakeCache.txt" ||
  cmake --preset "$preset" -DNORMA_BUILD_PYTHON=ON -DPython_EXECUTABLE="$tools/bin/python"
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1
test=("$tools/bin/python" -m pytest -p no:cacheprovider -q tests/python "$@")
if grep -qs '^NORMA_SANITIZE:STRING=.*address' "$build/CMakeCache.txt"; then
  # The runtime of the sanitizer must come before Python's libraries. Python does not free all its memory before it ends,
  # so nobody looks for leaks.
  cmake/build.sh "$build" --target _norma -j "$(nproc)"
  LD_PRELOAD="$(c++ -print-file-name=libasan.so):$(c++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
    exec "${test[@]}"
fi
cmake/build.sh "$build" --target _norma _norma_stub -j "$(nproc)"
MYPYPATH=$build/python "$tools/bin/mypy" --cache-dir "$build/mypy" -p norma
MYPYPATH=$build/python "$tools/bin/mypy" --cache-dir "$build/mypy" tests/python
exec "${test[@]}"
