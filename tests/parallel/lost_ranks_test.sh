#!/usr/bin/env bash
# lost_ranks_test.sh LIBRARY PROGRAM MPIRUN TEST_PARALLEL WORK: what the ranks of an NCCL group say when one of them is lost,
# or NCCL fails, on virtual GPUs with such faults (tests/virtual_gpu/communicator_nccl.h). They end within seconds, and each
# ends its communicator once: else the virtual GPU has a line "virtual GPU: fault".
set -uo pipefail
library=$1 program=$2 mpirun=$3 test_parallel=$4 work=$5
faults=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 NORMA_VIRTUAL_GPU_COUNT=3
rm -rf "$work"
mkdir -p "$work"
export TMPDIR=$work  # those that are killed leave folders

ended() {  # ended WHAT CODE OUTPUT LINE…: in time; the output has each of these lines, as patterns, and no other fault
  local line missing=()
  for line in "${@:4}"; do
    grep -qE "^$line\$" "$3" || missing+=("$line")
  done
  if [ "$2" -eq 124 ] || [ ${#missing[@]} -gt 0 ] || grep -q 'virtual GPU: fault' "$3"; then
    printf '%s: exit code %s; expected the lines\n%s\ngot\n%s\n\n' "$1" "$2" "${missing[*]}" "$(cat "$3")"
    faults=$((faults + 1))
  fi
}
lose() {  # lose WHAT RANKS FAULTS LINE…: sums in some ranks; on GPU 0 alone with ONE_GPU=1
  local device='cuda:$OMPI_COMM_WORLD_LOCAL_RANK' output
  output=$(mktemp)
  [ -z "${ONE_GPU:-}" ] || device=cuda
  NORMA_VIRTUAL_NCCL_FAULT=$3 timeout 30 "$mpirun" -n "$2" --oversubscribe --bind-to none -x LD_PRELOAD="$library" \
    bash -c "NORMA_DEVICE=$device exec \"\$@\"" - "$test_parallel" --no-skip '--test-case=lost ranks: sums*' \
    >"$output" 2>&1
  ended "$1" $? "$output" "${@:4}"
}

gone='rank 1 \(process [0-9]+ on .*\) has ended without a word'
stopped='rank 1 \(process [0-9]+ on .*\) has said nothing for 2 s \(--timeout\): it is stopped'
system='unhandled system error.*: the call failed, as was asked for'
remote='remote process exited or there was a network error: the connection was closed, as was asked for'

# Most of the time passes in waiting, so two rows of them run at once.
(
  export LOST_RANKS_TIMEOUT=2
  lose 'a rank is stopped' 2 1:4:stop "rank 0: $stopped"
  lose 'a rank is stopped at the end' 2 1:41:stop '.*test cases: +1 \|.* 1 passed.*'  # rank 0 has all its sums
  unset LOST_RANKS_TIMEOUT
  lose 'a rank is killed' 3 1:4:kill "rank 0: $gone"
  lose 'a rank is killed as it begins' 2 1:0:kill "rank 0: $gone"
  exit "$faults"
) &
lose 'a call fails' 2 1:4:call "rank 1: nccl: ncclSend and ncclRecv: $system" "rank 0: rank 1: nccl: ncclSend and ncclRecv: $system"
lose 'work of the GPU fails' 2 1:4:work "rank 1: nccl: work of the GPU: $remote" "rank 0: rank 1: nccl: work of the GPU: $remote"
lose 'NCCL sees a lost rank first' 3 0:4:work,1:4:kill "rank 0: $gone"
ONE_GPU=1 lose 'two ranks with one GPU' 2 '' \
  'rank [01]: nccl: ncclCommInitRank: invalid usage.*: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0'

# The command trains with NCCL where tensors are on GPUs. The first of its messages are those of batch norm's buffers.
(cd "$work" && NORMA_VIRTUAL_NCCL_FAULT=1:1:call LD_PRELOAD=$library timeout 30 "$program" train --procs 2 --device cuda \
  --model resnet18 --norm batch --dataset shapes --img-size 8 --batch-size 2 --images 2 --test-images 2 --threads 1 \
  --workers 0 --output run) >"$work/output" 2>&1
ended 'norma train' $? "$work/output" "norma: rank 1: nccl: ncclSend and ncclRecv: $system" \
  "norma: rank 0: rank 1: nccl: ncclSend and ncclRecv: $system"
wait $! && [ "$faults" -eq 0 ]
