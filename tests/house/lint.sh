#!/usr/bin/env bash
# lint.sh [--quick | --tidy | --all] [BUILD_DIR]: formatting, rules for texts, includes and figures, clang-tidy. Prints each
# fault; exit code 1 if there is one. clang-tidy reads what changed since it passed last (.ci/reach.py), and what includes
# that; with --all it reads every file. --quick leaves clang-tidy out, and --tidy all else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
part=changed
case ${1-} in
  --quick | --tidy | --all) part=${1#--}; shift ;;
esac
build=${1-}
faults=0

files() {  # files PATTERN…: of the project, by name
  local pattern names=()
  for pattern in "$@"; do names+=(-o -name "$pattern"); done
  find . \( -path ./build -o -path ./.gpu -o -path ./.git -o -path ./runs -o -path ./.cache \) -prune -o -type f \( "${names[@]:1}" \) -print0
}

check() {  # check NAME COMMAND…
  local start=$SECONDS name=$1
  shift
  if "$@"; then
    echo "lint: $name: ok ($((SECONDS - start)) s)"
  else
    echo "lint: $name: FAILED"
    faults=$((faults + 1))
  fi
}

formatting() {
  files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -n 100 -P "$(nproc)" clang-format --dry-run -Werror
}

# PyPI has a newer clang-tidy than Debian 12. It reads a file in about half the time. Where it cannot be had, Debian's
# 14 will do: both accept what lies here. What it lacks of its own headers, omp.h say, GCC has.
tidy_version=23.1.4
find_tidy() {
  local folder=$PWD/build/clang-tidy-$tidy_version
  if [ ! -x "$folder/bin/clang-tidy" ]; then
    { python3 -m venv "$folder" && "$folder/bin/pip" install "clang-tidy==$tidy_version"; } >/dev/null 2>&1 ||
      rm -rf "$folder"
  fi
  if [ -x "$folder/bin/clang-tidy" ]; then echo "$folder/bin/clang-tidy"; else echo clang-tidy; fi
}

# The tests are left out: they are half the files, and what matters there, they check themselves.
tidy() {
  mkdir -p "$build/lint"
  local commands=$build changed
  changed=$(python3 -B .ci/reach.py --tidy) || return 1
  cmake "$build" >/dev/null || return 1  # the commands of today's CMakeLists.txt
  if grep -qs '^NORMA_UNITY:BOOL=ON' "$build/CMakeCache.txt"; then  # there a command compiles many files
    commands=$build/lint/single
    cmake --preset cpu-release -B "$commands" -DNORMA_UNITY=OFF -DNORMA_BUILD_LESSONS=ON >/dev/null || return 1
  fi
  # Without what is GCC's own. Without precompiled headers a file that leans on them is found.
  sed -E 's/ -m(move|store)-max=[0-9]+//g; s/ -Winvalid-pch//g; s/ -include [^ ]*cmake_pch\.hxx//g' \
    "$commands/compile_commands.json" >"$build/lint/compile_commands.json"
  local left_out='_stub\.cpp$'  # and what needs CUDA's headers, where there are none
  printf '#include <%s>\n' cudnn.h nccl.h | c++ -E -x c++ - >/dev/null 2>&1 ||
    left_out='_(stub|cudart|cudnn|cublaslt|nccl)\.cpp$'
  # Kernels for CUDA are read as the host compiles them.
  { files '*.cpp' | grep -zE '^\./(core|ops|nn|models|export|data|parallel|train|session|lab|cli)/' | grep -zvE "$left_out" &&
    find "$commands/emulated" -name '*.cu.cpp' -print0; } | to_read |
    xargs -0 -r -n 1 -P "$(nproc)" "$(find_tidy)" --quiet -p "$build/lint" \
      --extra-arg="-idirafter$(c++ -print-file-name=include)" 2> >(grep -vE 'warnings? (generated|treated)' >&2)
}

to_read() {  # of files on the standard input, separated by NULs: those that changed, unless all are asked for
  if [ "$part" = all ]; then
    cat
  else
    # emulated/ops/x.cu.cpp stands for ops/x.cu.
    python3 -B -c '
import sys
changed = set(sys.argv[1].split())
root = sys.argv[2].removeprefix("./") + "/emulated/"
for name in filter(None, sys.stdin.read().split("\0")):
    of = name.removeprefix("./")
    if (of.removeprefix(root).removesuffix(".cpp") if of.startswith(root) else of) in changed:
        print(name, end="\0")' "$changed" "${commands#"$PWD"/}"
  fi
}

if [ "$part" != tidy ]; then
  check formatting formatting
  check 'text rules' tests/house/text_rules.sh .
  check 'include direction' cmake -DROOT="$PWD" -P tests/house/include_direction.cmake
  check 'seam' cmake -DROOT="$PWD" -P tests/house/seam.cmake
  check 'figures' python3 -B benchmarks/figures.py --check
  check 'growth' python3 -B benchmarks/growth.py --check
  check 'figures, planted faults are found' python3 -B tests/house/figures_test.py
  check 'links of the documentation' python3 -B tests/house/links_test.py
  check 'growth, planted faults are found' python3 -B tests/house/growth_test.py
  check 'the table of a GPU beside PyTorch' python3 -B tests/house/gpu_table_test.py
fi
[ "$part" = quick ] || check clang-tidy tidy
[ "$faults" -eq 0 ]
