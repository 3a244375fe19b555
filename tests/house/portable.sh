#!/usr/bin/env bash
# What differs from processor to processor, and what stands in for libraries that are not there, is tested by the preset
# cpu-portable, which takes ten minutes of two processors. CI runs it when one of the files below has changed since its
# tests passed: kernels, stand-ins, and the flags. What is compiled alike for every processor is cpu-release's to test.
#   tests/house/portable.sh          exit code 0: no file has changed
#   tests/house/portable.sh --write  configures, builds and tests; notes the files where all passed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
noted=tests/house/portable.txt

files() {  # kernels, stand-ins, 16-bit numbers, what uses core/simd, and the flags
  git ls-files core data ops cmake/room.cmake CMakePresets.json |
    grep -E '(^|/)(cpu|simd|half)/|_(stub|eigen)\.cpp$|_kernels\.h$|/(half|uniform)\.h$|^data/(stb|jpeg_).*cpp$|^cmake/|^CMakePresets'
  git grep -l '#include "core/simd/' -- core data ops
}
digest() {
  files | sort -u | xargs sha256sum | sha256sum | cut -d ' ' -f 1
}

case ${1-} in
  '') [ "$(digest)" = "$(<"$noted")" ] ;;
  --write)
    before=$(digest)
    # Each kernel is compiled for three kinds of processors, in half the time without the dearest optimisations.
    ./run configure --preset cpu-portable '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG'
    ./run build --preset cpu-portable --rooms core,ops,data,parity
    ./run test --preset cpu-portable --rooms core,ops,data,parity
    echo "$before" >"$noted"
    ;;
  *) echo "usage: tests/house/portable.sh [--write]" >&2; exit 2 ;;
esac
