#!/usr/bin/env bash
# cluster_test.sh ROOT NORMA WORK: runs the lines of docs/cluster.md for Slurm and GNU parallel, with processes of this
# machine in the place of machines, and compares what they make with one run of all.
set -uo pipefail
root=$1 norma=$2 work=$3
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
tiny="--models convnext_atto --norms batch,layer2d --seeds 0,1 --dataset shapes --patch-size 4 --batch-size 4"
tiny+=" --images 120 --test-images 8 --timing-rounds 0 --log-interval 1 --checkpoint-interval 0.02s"

fail() {
  echo "cluster_test: $*" >&2
  exit 1
}

block() {  # block HEADING NUMBER: that block of code below the heading, its grid replaced by a tiny one
  local lines
  lines=$(awk -v heading="## $1" -v wanted="$2" '
    /^## / { inside = ($0 == heading) }
    inside && /^```/ { if (open) { open = 0 } else { open = 1; ++number }; next }
    open && number == wanted' "$root/docs/cluster.md")
  [ -n "$lines" ] || fail "docs/cluster.md: expected a block $2 below '## $1'"
  if [ "$2" = 1 ]; then
    [ "$(grep -c '^grid="' <<<"$lines")" = 1 ] || fail "docs/cluster.md: expected one line 'grid=…' below '## $1'"
    lines=$(sed "s|^grid=.*|grid=\"$tiny\"|" <<<"$lines")
  fi
  echo "$lines"
}

figures() {  # figures FOLDER: the lines of its results without times and memory
  awk -F, 'NR == 1 {
      for (i = 1; i <= NF; ++i) if ($i !~ /^(images_per_second|tax|tax_low|tax_high|peak_.*_bytes|seconds)$/) keep[++n] = i
    }
    { for (i = 1; i <= n; ++i) printf "%s%s", $keep[i], i < n ? "," : "\n" }' "$1/results.csv"
}

rm -rf "$work"
mkdir -p "$work/bin" "$work/whole" "$work/slurm" "$work/parallel"
ln -s "$norma" "$work/bin/norma"
export PATH="$work/bin:$PATH"
cd "$work/whole" || exit 1
# shellcheck disable=SC2086  # the options are words
norma compare $tiny --quiet --output runs/norms >/dev/null || fail "the comparison in one piece failed"
[ "$(figures runs/norms | wc -l)" = 5 ] || fail "expected four runs"

cd "$work/slurm" || exit 1
block "Slurm: a job array" 1 >norms.sh
[[ $(sed -n 's/^#SBATCH --array=//p' norms.sh) == 1-4 ]] || fail "norms.sh: expected an array of four jobs"
# The first job is killed as soon as it has a checkpoint, and started again, as after a node has died.
SLURM_ARRAY_TASK_ID=1 SLURM_CPUS_PER_TASK=1 bash norms.sh >first.txt 2>&1 &
job=$!
until compgen -G 'runs/norms-1/run-*.safetensors' >/dev/null || ! kill -0 $job 2>/dev/null; do sleep 0.01; done
kill -KILL $job || fail "the first job ended before it could be killed: $(cat first.txt)"
wait $job 2>/dev/null
jobs=()
for id in 1 2 3 4; do
  SLURM_ARRAY_TASK_ID=$id SLURM_CPUS_PER_TASK=1 bash norms.sh >"job-$id.txt" 2>&1 &
  jobs+=($!)
  if [ ${#jobs[@]} = 2 ]; then
    for job in "${jobs[@]}"; do wait "$job" || fail "a job of the array failed: $(cat job-*.txt)"; done
    jobs=()
  fi
done
grep -q '  goes on after step ' job-1.txt || fail "the first job began anew: $(cat job-1.txt)"
SLURM_ARRAY_TASK_ID=1 SLURM_CPUS_PER_TASK=1 bash norms.sh >again.txt 2>&1 || fail "a job that is done failed"
! grep -q '^\[' again.txt || fail "a job that is done did something again"
bash -e <(block "Slurm: a job array" 2) >report.txt 2>&1 || fail "$(cat report.txt)"
diff <(figures "$work/whole/runs/norms") <(figures runs/norms) || fail "the array of jobs has other figures"
echo "Slurm: an array of four jobs, one of them killed, has the figures of one comparison"

cd "$work/parallel" || exit 1
if command -v parallel >/dev/null && parallel --version 2>/dev/null | grep -q '^GNU parallel'; then
  echo "GNU parallel: $(command -v parallel)"
else
  echo "GNU parallel is not here: xargs stands in for it, and its own options are NOT tested"
  cat >"$work/bin/parallel" <<'STAND_IN'
#!/usr/bin/env bash
while [ $# -gt 0 ] && [ "$1" != norma ]; do shift; done
words=()
while [ $# -gt 0 ] && [ "$1" != ::: ]; do words+=("$1"); shift; done
shift
printf '%s\n' "$@" | xargs -P 1 -I '{}' "${words[@]}"
STAND_IN
  chmod +x "$work/bin/parallel"
fi
echo : >machines
block "GNU parallel over ssh" 1 >lines.sh
bash -e lines.sh >parallel.txt 2>&1 </dev/null || fail "$(cat parallel.txt)"
diff <(figures "$work/whole/runs/norms") <(figures runs/norms) || fail "the parts by parallel have other figures"
echo "parallel: four parts have the figures of one comparison"
