#!/usr/bin/env bash
# run.sh [PROGRAM]: lets TensorBoard's own loader read the event files of `norma train --tensorboard`, of a run that is
# killed and goes on, and compares what it has read with metrics.csv (check_events.py). Installs tensorboard from PyPI
# into build/tensorboard. Not part of CI. Exit 1: a check failed, or TensorBoard cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=$(realpath "${1:-build/cpu-release/cli/norma}")
folder=build/tensorboard
[ -x "$program" ] || { echo "tensorboard: NOT TESTED: there is no $program: build it first"; exit 1; }

mkdir -p "$folder"
[ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -c 'import tensorboard' 2>/dev/null || "$folder/venv/bin/pip" install --quiet tensorboard || {
  echo "tensorboard: NOT TESTED: it cannot be installed here"
  exit 1
}

rm -rf "$folder/runs"
common=(--log-interval 2 --quiet --tensorboard)
"$program" train --model resnet18 --small-stem --norm group:8 --dataset shapes --img-size 16 --images 400 -b 4 \
  --test-images 16 --output "$folder/runs/one" "${common[@]}" &
run=$!
rows() { cat "$folder/runs/one/metrics.csv" 2>/dev/null | wc -l; }
for ((i = 0; i < 600 && $(rows) < 8; i++)); do sleep 0.1; done
kill -TERM "$run"
wait "$run" || true
"$program" train --resume "$folder/runs/one" "${common[@]}"
"$folder/venv/bin/python" tests/tensorboard/check_events.py "$folder/runs/one"
