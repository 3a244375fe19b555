#!/usr/bin/env bash
# plans_test.sh LIBRARY TEST_OPS WORK: plans of convolutions are timed at their first use and kept in the user's cache
# folder, and the next process takes them from there.
set -uo pipefail
library=$1 test_ops=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
faults=0
plans=$work/cache/norma/cudnn_plans.txt

expect() {  # expect WHAT EXPECTED GOT
  if [ "$2" != "$3" ]; then
    printf '%s: expected\n%s\ngot\n%s\n\n' "$1" "$2" "$3"
    faults=$((faults + 1))
  fi
}
convolve() {  # convolve VARIABLE=VALUE…: convolutions whose values and gradients a test knows; leaves its exit code
  env "$@" LD_PRELOAD="$library" NORMA_DEVICE=cuda XDG_CACHE_HOME="$work/cache" "$test_ops" \
    '--test-case=conv2d: values and gradients as PyTorch* 2 groups' >"$work/output" 2>&1
  code=$?
}

convolve NORMA_CUDNN_PLANS=heuristic
expect 'without timing: exit code' 0 "$code"
expect 'without timing: no file' no "$([ -e "$plans" ] && echo yes || echo no)"

convolve NORMA_CUDNN_PLANS=timed
expect 'timed: exit code' 0 "$code"
form='^NVIDIA H200 \(virtual\), cuDNN [0-9]+, tf32 [01], workspace [0-9]+, (forward|input gradient|weight gradient) float.* groups 2.*\t[0-9]+[ 0-9=]*\tend$'
expect 'timed: lines of another form' 0 "$(grep -v '^$' "$plans" | grep -vcP "$form")"
for pass in forward 'input gradient' 'weight gradient'; do
  expect "timed: a plan for the $pass" yes "$(grep -q ", $pass " "$plans" && echo yes)"
done
before=$(cat "$plans")
convolve NORMA_CUDNN_PLANS=timed
expect 'again: exit code' 0 "$code"
expect 'again: the same file' "$before" "$(cat "$plans")"

# A way that does not exist is chosen anew.
sed -i -E 's/\t[0-9]+[ 0-9=]*\tend$/\t987654\tend/' "$plans"
convolve NORMA_CUDNN_PLANS=timed
expect 'an unknown way: exit code' 0 "$code"
expect 'an unknown way: as many lines more' "$((2 * $(grep -c 987654 "$plans")))" "$(grep -c 'end$' "$plans")"

convolve NORMA_CUDNN_PLANS=fast
expect 'another value: text' yes \
  "$(grep -q "NORMA_CUDNN_PLANS: expected timed or heuristic, got 'fast'" "$work/output" && echo yes)"
[ "$faults" -eq 0 ]
