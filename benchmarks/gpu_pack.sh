#!/usr/bin/env bash
# Builds Norma and its tests for one kind of GPU and packs them with the libraries that Debian has and other systems may
# not, so that a machine whose time is dear need not build: there `benchmarks/gpu.sh --build build/gpu --pack FILE tests …`
#   CUDAARCHS=90 benchmarks/gpu_pack.sh [FILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
to=${1:-build/gpu.tar.xz} build=build/gpu-packed
cmake --preset cuda-release -B "$build" -DCMAKE_CUDA_ARCHITECTURES="${CUDAARCHS:-90}" -DNORMA_ARCHITECTURE=x86-64-v3 \
  -DNORMA_BUILD_TESTS=ON -DNORMA_BUILD_BENCHMARKS=OFF -DNORMA_BUILD_EXAMPLES=OFF -DNORMA_BUILD_LESSONS=OFF \
  -DNORMA_ONEDNN=OFF -DNORMA_JPEG_TURBO=OFF -DNORMA_MPI=OFF -DNORMA_ONNX=OFF
programs=(cli/norma tests/test_{core,ops,nn,models,train})
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target "${programs[@]##*/}"

pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
mkdir -p "$pack"/{cli,tests,lib}
for program in "${programs[@]}"; do strip -o "$pack/$program" "$build/$program"; done
cp "$build/CTestTestfile.cmake" "$pack"
cp "$build"/tests/*.cmake "$pack/tests"
echo "$PWD/$build" >"$pack/packed_at"  # which ctest's files name
libraries=$(for program in "${programs[@]}"; do ldd "$build/$program"; done)
[[ $libraries != *'not found'* ]] || { echo "$libraries" | grep 'not found' >&2; exit 1; }
echo "$libraries" | awk '$3 ~ /^\/(usr\/)?lib/ && $1 !~ /^lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so/ { print $3 }' | sort -u |
  xargs -I{} cp -L {} "$pack/lib"
tar -C "$pack" -c . | xz -T0 -1 --lzma2=preset=1,dict=192MiB >"$to"  # the programs have most of their bytes in common
echo "$to: $(du -m "$to" | cut -f 1) MiB"
