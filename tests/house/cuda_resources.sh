#!/usr/bin/env bash
# cuda_resources.sh BUILD EXPECTED [--write]: registers and stack of every kernel in the libraries of a build with CUDA, as
# cuobjdump reads them. Fails where a kernel takes more than EXPECTED says, is not in it, or is no more: a kernel that spills
# its registers to the stack is slow, and nothing else would tell. --write makes EXPECTED anew.
set -euo pipefail
build=$1 expected=$2
now=$(mktemp)
trap 'rm -f "$now"' EXIT

# "kernel<float, 4> registers 40 stack 0", sorted.
cuobjdump -res-usage "$build"/libnorma_core.a "$build"/libnorma_ops.a 2>/dev/null |
  awk '/^ *Function/ { sub(/:$/, "", $2); name = $2 }
       /REG:/ { match($0, /REG:[0-9]+/); r = substr($0, RSTART + 4, RLENGTH - 4)
                match($0, /STACK:[0-9]+/); s = substr($0, RSTART + 6, RLENGTH - 6)
                print name, "registers", r, "stack", s }' | c++filt |
  sed -E 's/^void //; s/norma::kernels::cuda:://g; s/norma:://g; s/>\(.*\) registers/> registers/; s/\([^<]*\) registers/ registers/' |
  LC_ALL=C sort -u >"$now"
if [ ! -s "$now" ]; then
  echo "cuda_resources: found no kernel under $build" >&2
  exit 1
fi
if [ "${3-}" = --write ]; then
  cp "$now" "$expected"
  exit 0
fi
awk -v expected="$expected" '
  { key = $0; sub(/ registers [0-9]+ stack [0-9]+$/, "", key); r = $(NF - 2); s = $NF }
  FILENAME == expected { registers[key] = r; stack[key] = s; next }
  { seen[key] = 1 }
  !(key in registers) { print "new: " $0; bad = 1; next }
  r > registers[key] || s > stack[key] {
    print key ": expected registers " registers[key] " stack " stack[key] ", got registers " r " stack " s; bad = 1 }
  END { for (key in registers) if (!(key in seen)) { print "gone: " key; bad = 1 } exit bad }' "$expected" "$now"
echo "cuda_resources: $(wc -l <"$now") kernels"
