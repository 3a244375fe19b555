#!/usr/bin/env bash
# Builds ResNet-50 and ConvNeXt-T with every norm spec and trains each for two steps on small generated images: losses
# must be finite. The numbers of parameters are tested by tests/models/norm_catalogue_test.cpp.
#
#   ./run build && tests/parity/catalogue.sh [PROGRAM]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
norma=${1:-$root/build/cpu-release/cli/norma}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
norms=(batch frozen_batch ghost_batch batch_renorm layer2d group instance rms2d simple2d local_response evonorm_b0
  evonorm_s0 frn grn dyt none)
for model in resnet50 convnext_tiny; do
  for norm in "${norms[@]}"; do
    metrics=$folder/$model-$norm/metrics.csv
    if "$norma" train --model "$model" --norm "$norm" --dataset shapes --images 8 --test-images 4 --batch-size 4 \
      --img-size 64 --epochs 1 --output "${metrics%/*}" > "$folder/log" 2>&1 && ! grep -qiE 'nan|inf' "$metrics"; then
      echo "$model $norm: ok"
    else
      echo "$model $norm: FAILED"
      tail -n 3 "$folder/log"
      failed=1
    fi
  done
done
exit "$failed"
