#!/usr/bin/env bash
# nvcc_report.sh COMPILER ARGUMENT…: compiles, and keeps what ptxas says of each kernel's registers beside the object
# (OBJECT.ptxas), where tests/house/cuda_resources.sh reads it.
set -uo pipefail
object=
for ((i = 1; i < $#; ++i)); do
  [ "${!i}" != -o ] || { j=$((i + 1)) && object=${!j}; }
done
[[ $object == *.o ]] || exec "$@"
"$@" -Xptxas=-v 2>"$object.ptxas"
code=$?
grep -vE "^ptxas info|^ +[0-9]+ bytes stack frame" "$object.ptxas" >&2
exit "$code"
