#!/usr/bin/env bash
# What a machine with a GPU is asked in one go. Each part can be chosen, and keeps what it has when time runs out. build,
# tests and bench-norms are Norma's: they need the CUDA Toolkit, CMake, Ninja, and Debian's headers, installed or carried in
# .gpu (benchmarks/gpu_headers.sh). The others need PyTorch and torchvision and no Norma: what the GPU reaches through the
# libraries of others.
#   benchmarks/gpu.sh [--out DIR] [--dry-run] [PART…]
#   parts: build tests bench-norms ceilings norms nets-256 nets-64 compile; without any, all but the first three
# --dry-run builds what the parts of Norma need and lists their tests, for a machine without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
out=build/gpu dry_run=
while :; do
  case ${1-} in
    --out) out=$2; shift 2 ;;
    --dry-run) dry_run=yes; shift ;;
    *) break ;;
  esac
done
mkdir -p "$out"
parts=("$@")
build=build/cuda-release
[ $# -gt 0 ] || parts=(ceilings norms nets-256 nets-64 compile)
peer=benchmarks/pytorch_gpu.py
resnet=(--models resnet50 --norms batch,group:32,layer2d)
convnext=(--models convnext_tiny,convnext_base)

nets() {  # nets BATCH: most wanted first
  python3 "$peer" nets "${resnet[@]}" --precisions amp_bfloat16 -b "$1" --json "$out/nets_resnet50_bf16_b$1.json"
  python3 "$peer" nets "${convnext[@]}" --precisions amp_bfloat16 -b "$1" --json "$out/nets_convnext_bf16_b$1.json"
  python3 "$peer" nets "${resnet[@]}" --precisions tf32,float32,amp_float16 -b "$1" --steps 4 --json "$out/nets_resnet50_b$1.json"
  python3 "$peer" nets "${convnext[@]}" --precisions tf32,float32,amp_float16 -b "$1" --steps 3 --json "$out/nets_convnext_b$1.json"
}

build() {
  local carried=() multiarch=$PWD/.gpu/usr/lib/x86_64-linux-gnu
  [ ! -d .gpu ] || carried=(-DCMAKE_PREFIX_PATH="$PWD/.gpu/usr" -Dfmt_DIR="$multiarch/cmake/fmt"
    -DZLIB_LIBRARY="$multiarch/libz.a" -DZLIB_INCLUDE_DIR="$PWD/.gpu/usr/include")
  cmake --preset cuda-release -DNORMA_BUILD_TESTS=ON -DNORMA_BUILD_BENCHMARKS=ON -DNORMA_BUILD_EXAMPLES=OFF \
    -DNORMA_ONEDNN=OFF "${carried[@]}" >"$out/configure.txt" 2>&1 || { tail -n 20 "$out/configure.txt"; return 1; }
  cmake --build "$build" -j "$(nproc)" --target test_core test_ops norm_cuda norma >"$out/build.txt" 2>&1 ||
    { grep -v '^\[' "$out/build.txt" | tail -n 40; return 1; }
  "$build/cli/norma" info | tee "$out/info.txt"
}

code=0
for part in "${parts[@]}"; do
  start=$SECONDS
  echo "=== $part"
  case $part in
    build) build || code=1 ;;
    tests)
      if [ -n "$dry_run" ]; then ctest --test-dir "$build" -L gpu -N; else
        ctest --test-dir "$build" -L gpu --output-on-failure 2>&1 | tee "$out/tests.txt"
        [ "${PIPESTATUS[0]}" -eq 0 ] || code=1
      fi ;;
    bench-norms)
      if [ -n "$dry_run" ]; then ls -l "$build/benchmarks/norm_cuda"; else
        "$build/benchmarks/norm_cuda" | tee "$out/norma_norms.csv"
        [ "${PIPESTATUS[0]}" -eq 0 ] || code=1
      fi ;;
    ceilings) python3 benchmarks/pytorch_gpu_ceilings.py --json "$out/ceilings.json" ;;
    norms) python3 "$peer" norms --shapes 64x256x56,64x512x28,64x2048x7,64x96x56,64x192x28,64x384x14,64x768x7,256x64x112 \
      --norms batch,group:32,layer2d,instance --dtypes float32,bfloat16 --json "$out/norms.json" ;;
    nets-256) nets 256 ;;
    nets-64) nets 64 ;;
    compile)
      python3 "$peer" nets "${resnet[@]}" --formats channels_last --precisions amp_bfloat16 -b 256 --compile --json "$out/compile_resnet50.json"
      python3 "$peer" nets --models convnext_tiny --formats channels_last --precisions amp_bfloat16 -b 256 --compile --json "$out/compile_convnext.json"
      ;;
    *) echo "gpu.sh: unknown part $part" >&2 && exit 2 ;;
  esac
  echo "=== $part: $((SECONDS - start)) s"
done
exit "$code"
