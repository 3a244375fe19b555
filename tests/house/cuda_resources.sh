#!/usr/bin/env bash
# cuda_resources.sh BUILD EXPECTED [--write]: registers, stack and spilled bytes of every kernel of a build with CUDA, as ptxas
# counts them. Fails where a kernel takes more than EXPECTED says, is not in it, or is no more: a kernel that spills its
# registers is slow, and nothing else would tell. --write makes EXPECTED anew.
set -euo pipefail
build=$1 expected=$2
work=$(mktemp -d)
touch "$work/report"
trap 'rm -rf "$work"' EXIT

# Every .cu file once more, as the build compiles it, with ptxas's report.
while read -r command; do
  (cd "$build" && bash -c "$command -Xptxas -v -o '$work/object'") >>"$work/report" 2>&1
done < <(sed -nE 's/^ *"command": "(.*\.cu) -o .*/\1/p' "$build/compile_commands.json" |
         sed -E 's/\\"/"/g; s/^[^ ]*ccache //')

# "rows<float, 4> registers 40 stack 0 spills 0", sorted.
awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
     /bytes stack frame/ { for (i = 1; i <= NF; ++i) if ($i == "bytes" && $(i + 1) == "stack") stack = $(i - 1)
                           for (i = 1; i <= NF; ++i) if ($i == "spill" && $(i + 1) ~ /^stores/) spills = $(i - 2) }
     /Used [0-9]+ registers/ { for (i = 1; i <= NF; ++i) if ($i == "Used") print name, "registers", $(i + 1), "stack", stack, "spills", spills }' \
  "$work/report" | c++filt |
  sed -E 's/^void //; s/norma::kernels::cuda:://g; s/norma:://g; s/\(([0-9a-z]+)\)/\1/g; s/>\(.*\) registers/> registers/; s/\([^<]*\) registers/ registers/' |
  LC_ALL=C sort -u >"$work/now"
if [ ! -s "$work/now" ]; then
  echo "cuda_resources: found no kernel under $build" >&2
  tail -n 5 "$work/report" >&2
  exit 1
fi
if [ "${3-}" = --write ]; then
  cp "$work/now" "$expected"
  exit 0
fi
awk -v expected="$expected" '
  { key = $0; sub(/ registers [0-9]+ stack [0-9]+ spills [0-9]+$/, "", key); r = $(NF - 4) + 0; s = $(NF - 2) + 0; p = $NF + 0 }
  FILENAME == expected { registers[key] = r; stack[key] = s; spills[key] = p; next }
  { seen[key] = 1 }
  !(key in registers) { print "new: " $0; bad = 1; next }
  r > registers[key] || s > stack[key] || p > spills[key] {
    print key ": expected registers " registers[key] " stack " stack[key] " spills " spills[key] ", got registers " r " stack " s " spills " p
    bad = 1 }
  END { for (key in registers) if (!(key in seen)) { print "gone: " key; bad = 1 } exit bad }' "$expected" "$work/now"
echo "cuda_resources: $(wc -l <"$work/now") kernels"
