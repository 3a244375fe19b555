#!/usr/bin/env bash
# What a machine with a GPU is asked in one go. Each part can be chosen, and keeps what it has when time runs out. The parts
# here need PyTorch and torchvision and no Norma: what the GPU reaches through the libraries of others.
#   benchmarks/gpu.sh [--out DIR] [PART…]     parts: ceilings norms nets-256 nets-64 compile
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
out=build/gpu
[ "${1-}" != --out ] || { out=$2 && shift 2; }
mkdir -p "$out"
parts=("$@")
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

for part in "${parts[@]}"; do
  start=$SECONDS
  echo "=== $part"
  case $part in
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
