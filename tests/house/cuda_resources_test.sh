#!/usr/bin/env bash
# cuda_resources_test.sh WORK: cuda_resources.sh accepts what it expects and less, and names each planted fault.
set -uo pipefail
script=$(cd "$(dirname "$0")" && pwd)/cuda_resources.sh work=$1
rm -rf "$work"
object=$work/build/CMakeFiles/norma_ops.dir/ops/norm/cuda  # of a file that is there, and of one that is no more
mkdir -p "$object"
faults=0

kernel() {  # kernel NAME GPU REGISTERS STACK SPILLS: as ptxas -v says it
  printf "ptxas info    : Compiling entry function '%s' for '%s'\n" "$1" "$2"
  printf 'ptxas info    : Function properties for %s\n' "$1"
  printf '    %d bytes stack frame, %d bytes spill stores, %d bytes spill loads\n' "$4" "$5" "$5"
  printf 'ptxas info    : Used %d registers, used 1 barriers, %d bytes cumulative stack size\n' "$3" "$4"
}
compiled() { cat >"$object/runs.cu.o.ptxas"; }
expect() {  # expect CODE TEXT: what the check ends with and says
  local said code
  said=$(bash "$script" "$work/build" "$work/expected.txt" 2>&1)
  code=$?
  if [ "$code" -ne "$1" ] || [[ $said != *"$2"* ]]; then
    printf 'expected exit code %d and "%s", got %d and "%s"\n' "$1" "$2" "$code" "$said"
    faults=$((faults + 1))
  fi
}

rows=_ZN5norma7kernels4cuda4rowsIfLi4EEEvPT_ copy=_ZN5norma7kernels4cuda4copyIdEEvPT_
{ kernel $rows sm_80 99 8 8; kernel $rows sm_90 40 0 0; kernel $copy sm_90 20 16 0; } | compiled
bash "$script" "$work/build" "$work/expected.txt" --write
printf 'copy<double> registers 20 stack 16 spills 0\nrows<float, 4> registers 40 stack 0 spills 0\n' |
  cmp - "$work/expected.txt" || faults=$((faults + 1))
kernel $rows sm_90 99 8 8 >"$object/gone.cu.o.ptxas"
expect 0 'cuda_resources: 2 kernels'
{ kernel $rows sm_90 38 0 0; kernel $copy sm_90 20 0 0; } | compiled
expect 0 'cuda_resources: 2 kernels'
{ kernel $rows sm_90 41 0 0; kernel $copy sm_90 20 16 0; } | compiled
expect 1 'rows<float, 4>: expected registers 40 stack 0 spills 0, got registers 41 stack 0 spills 0'
{ kernel $rows sm_90 40 0 0; kernel $copy sm_90 20 24 0; } | compiled
expect 1 'copy<double>: expected registers 20 stack 16 spills 0, got registers 20 stack 24 spills 0'
{ kernel $rows sm_90 40 0 4; kernel $copy sm_90 20 16 0; } | compiled
expect 1 'rows<float, 4>: expected registers 40 stack 0 spills 0, got registers 40 stack 0 spills 4'
kernel $rows sm_90 40 0 0 | compiled
expect 1 'gone: copy<double>'
{ kernel $rows sm_90 40 0 0; kernel $copy sm_90 20 16 0; kernel _ZN5norma7kernels4cuda4copyIfEEvPT_ sm_90 8 0 0; } | compiled
expect 1 'new: copy<float> registers 8 stack 0 spills 0'
: | compiled
expect 1 'found no kernel'
[ "$faults" -eq 0 ]
