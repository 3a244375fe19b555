#!/usr/bin/env bash
# preload_test.sh LIBRARY OWN_TESTS TEST_CORE WORK: what a program sees that starts with the virtual GPU in LD_PRELOAD, and
# what is left when it has ended.
set -uo pipefail
library=$1 own_tests=$2 test_core=$3 work=$4
rm -rf "$work"
mkdir -p "$work"
faults=0

expect() {  # expect WHAT EXPECTED GOT
  if [ "$2" != "$3" ]; then
    printf '%s: expected\n%s\ngot\n%s\n\n' "$1" "$2" "$3"
    faults=$((faults + 1))
  fi
}
on_gpu() {  # on_gpu VARIABLE=VALUE… TEST_CASE: runs it from test_core; leaves its exit code and output
  env "${@:1:$#-1}" LD_PRELOAD="$library" NORMA_DEVICE=cuda "$test_core" "--test-case=${*: -1}" >"$work/output" 2>&1
  code=$?
}

# The copy's kernel is the GPU's, so that the run leaves counts.
case='copy: any strides to any strides'
on_gpu NORMA_VIRTUAL_GPU_COUNTS="$work/counts.json" "$case"
expect 'a test of copies: exit code' 0 "$code"
expect 'the counts: the GPU' 1 "$(grep -c '"gpu": "NVIDIA H200"' "$work/counts.json")"
expect 'the counts: kernels that were launched, with instructions' yes \
  "$(grep -qE '"launches": [1-9]' "$work/counts.json" && grep -qE '"warp_instructions": [1-9]' "$work/counts.json" && echo yes)"

on_gpu NORMA_VIRTUAL_GPU=h300 "$case"
expect 'an unknown GPU' "2 virtual GPU: NORMA_VIRTUAL_GPU: expected one of emulated, h100, h200, l4, large, rtx4090, got 'h300'" \
  "$code $(cat "$work/output")"
on_gpu NORMA_VIRTUAL_GPU_SEED=one "$case"
expect 'a seed that is no number' "2 virtual GPU: NORMA_VIRTUAL_GPU_SEED: expected a number, got 'one'" \
  "$code $(cat "$work/output")"
on_gpu NORMA_VIRTUAL_GPU_MEMORY=0.0001 "$case"
expect 'a GPU without memory: the test fails' yes "$(grep -q 'cuda: out of memory\|device has 0.0 GiB' "$work/output" && echo yes)"

"$own_tests" --no-skip '--test-case=runtime: a fault in work that nobody waits for' >"$work/output" 2>&1
expect 'a fault that the program does not look for: exit code' 86 $?
expect 'a fault that the program does not look for: text' 1 "$(grep -c '^virtual GPU: fault: cudaMemcpyAsync of 16 bytes' "$work/output")"
[ "$faults" -eq 0 ]
