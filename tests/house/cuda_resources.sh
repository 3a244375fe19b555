#!/usr/bin/env bash
# cuda_resources.sh BUILD EXPECTED [--write]: registers, stack and spilled bytes of every kernel of a build with CUDA for
# sm_90, as ptxas counted them when it was compiled (cmake/nvcc_report.sh). Fails where a kernel takes more than EXPECTED
# says, is not in it, or is no more: a kernel that spills its registers is slow, and nothing else would tell. --write makes
# EXPECTED (cuda_resources.txt) anew.
set -euo pipefail
build=$1 expected=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
now=$(mktemp)
trap 'rm -f "$now"' EXIT

reports() {  # those of files that are still there: a folder that is built again and again keeps the others
  local file source
  find "$build" -name '*.cu.o.ptxas' | while read -r file; do
    source=${file##*.dir/}
    [ ! -e "$root/${source%.o.ptxas}" ] || cat "$file"
  done
}

# "rows<float, 4> registers 40 stack 0 spills 0", sorted. What ptxas says of a kernel stands between two of its names.
reports | awk '
  /Compiling entry function/ { split($0, part, "\047"); name = part[4] == "sm_90" ? part[2] : ""; stack = spills = 0 }
  /bytes stack frame/ { if (name != "") { stack = $1; spills = $5 } }
  /Used [0-9]+ registers/ { if (name != "") print name, "registers", $5, "stack", stack, "spills", spills }' |
  c++filt |
  sed -E 's/^void //; s/norma::kernels::cuda:://g; s/norma:://g; s/\(([0-9a-z]+)\)/\1/g; s/>\(.*\) registers/> registers/; s/\([^<]*\) registers/ registers/' |
  LC_ALL=C sort -u >"$now"
if [ ! -s "$now" ]; then
  echo "cuda_resources: found no kernel under $build" >&2
  exit 1
fi
if [ "${3-}" = --write ]; then
  cp "$now" "$expected"
  exit 0
fi
# Kernels of one name, for operands whose types are left out here, count in the order of their lines.
awk -v expected="$expected" '
  { key = $0; sub(/ registers [0-9]+ stack [0-9]+ spills [0-9]+$/, "", key)
    if (++same[FILENAME, key] > 1) key = key " (" same[FILENAME, key] ")"
    r = $(NF - 4) + 0; s = $(NF - 2) + 0; p = $NF + 0 }
  FILENAME == expected { registers[key] = r; stack[key] = s; spills[key] = p; next }
  { seen[key] = 1 }
  !(key in registers) { print "new: " $0; bad = 1; next }
  r > registers[key] || s > stack[key] || p > spills[key] {
    print key ": expected registers " registers[key] " stack " stack[key] " spills " spills[key] ", got registers " r " stack " s " spills " p
    bad = 1 }
  END { for (key in registers) if (!(key in seen)) { print "gone: " key; bad = 1 } exit bad }' "$expected" "$now"
echo "cuda_resources: $(wc -l <"$now") kernels"
