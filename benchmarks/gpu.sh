#!/usr/bin/env bash
# What a machine with a GPU is asked in one go. Each part can be chosen, and keeps what it has when time runs out.
#   benchmarks/gpu.sh [--out DIR] [--build DIR] [--pack FILE] [--dry-run] [PART…]
# --dry-run builds what the parts of Norma need and prints what each part would run, for a machine without a GPU.
# --build DIR builds there, and leaves build/cuda-release to those who work in it.
# --pack FILE puts there what benchmarks/gpu_pack.sh has built on another machine; the part build is not for it.
# Norma's parts need the CUDA Toolkit, CMake, Ninja, and Debian's headers, installed or carried in .gpu
# (benchmarks/gpu_headers.sh); those of PyTorch need torch and torchvision.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  cat <<'TEXT'
parts, in the order in which they run without any:
  build        configures and builds Norma with CUDA; what the GPU and its libraries are
  steps        steps of ResNet-50 with each norm, what takes batch norm's time, ConvNeXt-T, ViT-S, at batch size 128: Norma
  compile      the same with torch.compile, which launches CUDA graphs: PyTorch
  bench-norms  each norm beside a copy: Norma
  large        norms and other kernels on tensors of more than 2^32 elements
  gradients    numeric gradients, which take a GPU minutes, and the tests of attention and of ViT
  sanitizer    compute-sanitizer over the tests of the kernels, with memory of its own for each tensor, and over those of
               graphs, which need larger blocks: racecheck, synccheck, memcheck, initcheck
  tests        all tests on the GPU (ctest -L '^gpu$')
  graphs       ResNet-50 with and without a CUDA graph for each step, at batch sizes 32 and 128: Norma
  copies       images that travel as bytes, as float32, and not at all (norma bench): Norma
  plans        plans of convolutions that are timed, and those that cuDNN's heuristics choose: Norma
  train        ResNet-50 and ConvNeXt-T with batch, layer2d and group norm on Fashion-MNIST
  norms        each norm beside a copy: PyTorch
  ceilings     copies, matrix products and convolutions: PyTorch
  bench-256    training and inference of whole networks, and their memory, at batch size 256: Norma
  nets-256     the same: PyTorch
  bench-64     at batch size 64: Norma
  nets-64      the same: PyTorch
  table        Norma beside PyTorch, of the results that are there
TEXT
}

out=build/gpu build=build/cuda-release dry_run='' pack=''
while :; do
  case ${1-} in
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --pack) pack=${2:?--pack needs a file}; shift 2 ;;
    --dry-run) dry_run=yes; shift ;;
    -h | --help) usage; exit ;;
    *) break ;;
  esac
done
mkdir -p "$out"
parts=("$@")
[ $# -gt 0 ] || mapfile -t parts < <(usage | sed -n 's/^  \([a-z0-9-][a-z0-9-]*\) .*/\1/p' | grep -vx "${pack:+build}")
norma=$build/cli/norma
peer=benchmarks/pytorch_gpu.py
resnet=(--models resnet50 --norms batch,group:32,layer2d)
convnext=(--models convnext_tiny,convnext_base)
compiled=(--formats channels_last --precisions amp_bfloat16 --modes train -b 128 --compile reduce-overhead)
code=0

do_or_print() {  # do_or_print [NAME=VALUE…] COMMAND…: without a GPU, Norma's commands must come as far as to miss it
  local said word
  for word; do [[ $word == *=* ]] || break; done
  [[ $1 != *=* ]] || set -- env "$@"
  if [ -z "$dry_run" ]; then
    "$@" || code=1
    return
  fi
  echo "$*"
  if [ "$word" = "$norma" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    said=$("$@" 2>&1)
    [[ $said == *'expected a GPU, got none'* ]] || { echo "$said"; code=1; }
  fi
}

needs() {  # needs PROGRAM…: of Norma, which `build` has made
  local program
  for program; do
    [ -x "$program" ] || { echo "gpu.sh: $program is not there: run the part build first" >&2; code=1; return 1; }
  done
}

unpack() {  # libraries that the system has stay its own; those of NVIDIA may lie in Python's packages
  local file nvidia known
  known=$(ldconfig -p)
  mkdir -p "$build" && tar -xJf "$pack" -C "$build" || return 1
  sed -i "s|$(<"$build/packed_at")|$PWD/$build|g" "$build"/*.cmake "$build"/tests/*.cmake
  for file in "$build"/lib/*; do
    ! grep -qF "$(basename "$file") " <<<"$known" || rm "$file"
  done
  nvidia=$(python3 -c 'import nvidia; print(*(f"{path}/{part}/lib" for path in nvidia.__path__ for part in ("cudnn", "cu13", "nccl")), sep=":")' 2>/dev/null)
  export LD_LIBRARY_PATH=$PWD/$build/lib:$nvidia:${LD_LIBRARY_PATH-}
}

build() {
  local carried=() multiarch=$PWD/.gpu/usr/lib/x86_64-linux-gnu
  [ ! -d .gpu ] || carried=(-DCMAKE_PREFIX_PATH="$PWD/.gpu/usr" -Dfmt_DIR="$multiarch/cmake/fmt"
    -Dhwy_DIR="$multiarch/cmake/hwy" -DBoost_DIR="$(echo "$multiarch"/cmake/Boost-*)" -DZLIB_LIBRARY="$multiarch/libz.a" -DZLIB_INCLUDE_DIR="$PWD/.gpu/usr/include"
    -DPNG_LIBRARY="$multiarch/libpng16.a" -DPNG_PNG_INCLUDE_DIR="$PWD/.gpu/usr/include/libpng16")
  cmake --preset cuda-release -B "$build" -DCMAKE_CUDA_ARCHITECTURES="${CUDAARCHS:-90}" -DNORMA_BUILD_TESTS=ON \
    -DNORMA_BUILD_BENCHMARKS=OFF -DNORMA_BUILD_EXAMPLES=OFF -DNORMA_ONEDNN=OFF "${carried[@]}" >"$out/configure.txt" 2>&1 ||
    { tail -n 20 "$out/configure.txt"; return 1; }
  cmake --build "$build" -j "${JOBS:-$(nproc)}" --target norma test_core test_ops test_nn test_models test_train \
    >"$out/build.txt" 2>&1 || { grep -v '^\[' "$out/build.txt" | tail -n 40; return 1; }
  "$norma" info | tee "$out/info.txt"
}

tests() {
  if [ -n "$dry_run" ]; then
    ctest --test-dir "$build" -L '^gpu$' -N | tail -n 1
  else  # each test case is a process, which waits for the driver more than it computes
    ctest --test-dir "$build" -L '^gpu$' --no-tests=error -j "$(nproc)" --output-on-failure >"$out/tests.txt" 2>&1 || code=1
    tail -n 40 "$out/tests.txt"
    ! grep -q '(Skipped)' "$out/tests.txt" || code=1  # for want of a GPU
  fi
}

sanitizer() {
  local tool program
  for tool in racecheck synccheck memcheck initcheck; do
    for program in core ops; do
      sanitize "$tool" "$program" 0 '--test-case=cuda *' '--test-case-exclude=cuda graph: *'
    done
    for program in core train; do
      sanitize "$tool" "$program" 1 '--test-case=cuda graph: *'
    done
  done
}

sanitize() {  # sanitize TOOL PROGRAM CACHING OPTION…
  local tool=$1 program=$2 caching=$3 log
  shift 3
  log=$out/sanitizer_${tool}_${program}_caching_$caching.txt
  do_or_print sanitized "$log" timeout "${SANITIZER_SECONDS:-120}" env NORMA_TEST_GPU=1 "NORMA_CUDA_CACHING=$caching" \
    compute-sanitizer --tool "$tool" --error-exitcode 9 --log-file "$log" "$build/tests/test_$program" "$@"
}

sanitized() {  # sanitized LOG COMMAND…: when time is over before the tests are, what counts is what was found until then
  local log=$1 result=0
  shift
  "$@" || result=$?
  [ "$result" -eq 124 ] || return "$result"
  echo "sanitizer: time was over; $log has what was found until then"
  ! grep -qE '^=+ +(Invalid|Error|Race|Uninitialized|Barrier|Program hit)' "$log"
}

train() {
  local images=()
  [ ! -d .gpu/usr/share/datasets/fashion-mnist ] || images=(--data-dir .gpu/usr/share/datasets/fashion-mnist)
  do_or_print "$norma" compare --device cuda --models resnet50,convnext_tiny --norms batch,layer2d,group:32 --epochs 1 \
    "${images[@]}" --workers 8 --output "$out/compare"
}

training() {  # training FOLDER OPTION…: a run of ResNet-50 on generated images, for its images per second
  local folder=$out/$1
  shift
  [ -n "$dry_run" ] || rm -rf "$folder"
  do_or_print "$norma" train --device cuda --model resnet50 --norm batch --dataset shapes --img-size 224 --test-images 64 \
    --precision amp_bfloat16 --opt sgd --workers 12 --log-interval 20 --quiet --output "$folder" "$@"
}

benched() {  # benched FILE [NAME=VALUE…] -- OPTION…: the steps of networks alone
  local file=$out/$1 environment=()
  shift
  while [ "$1" != -- ]; do environment+=("$1"); shift; done
  shift
  mkdir -p "$(dirname "$file")"
  do_or_print "${environment[@]}" "$norma" bench --device cuda --bench train --channels-last --opt sgd --precision amp_bfloat16 \
    --num-warm-iter 5 --num-bench-iter 40 --quiet --results-file "$file" "$@"
}

steps() {
  benched steps/resnet50.json -- --model resnet50 --norm batch,layer2d,group:32 -b 128
  do_or_print "$norma" bench --device cuda --bench train --channels-last --opt sgd --precision amp_bfloat16 --model resnet50 \
    --norm batch -b 128 --detail --quiet
  benched steps/others.json -- --model convnext_tiny,vit_small -b 128
  do_or_print python3 benchmarks/gpu_runs.py "$out/steps"
}

large() {
  do_or_print NORMA_DEVICE=cuda timeout 120 "$build/tests/test_ops" "--test-case=large: the last*"
}

gradients() {
  local chosen=(--test-dir "$build" -L '^gpu$' -R 'gradients|finite differences|[Aa]ttention|[Vv]i[tT]')
  if [ -n "$dry_run" ]; then
    ctest "${chosen[@]}" -N | tail -n 1
  else
    ctest "${chosen[@]}" --no-tests=error -j "$(nproc)" --timeout "${GRADIENT_SECONDS:-240}" >"$out/gradients.txt" 2>&1 || code=1
    tail -n 40 "$out/gradients.txt"
  fi
}

graphs() {
  local batch graph
  for batch in 32 128; do
    for graph in off on; do
      training "graphs/b${batch}_graph_$graph" -b "$batch" --images $((batch * 160)) --cuda-graph "$graph"
    done
    benched "graphs/b$batch.json" -- --model resnet50 --norm batch -b "$batch"
  done
  do_or_print python3 benchmarks/gpu_runs.py "$out/graphs"
}

copies() {  # the smallest chance of erasing has images of float32 travel, and changes none of them
  training copies/float32 -b 128 --images $((128 * 160)) --cuda-graph off --reprob 1e-9
  training copies/bytes -b 128 --images $((128 * 160)) --cuda-graph off
  benched copies/none.json -- --model resnet50 --norm batch -b 128
  do_or_print python3 benchmarks/gpu_runs.py "$out/copies"
}

plans() {  # the first timed run makes the file of choices, the second one finds it
  local name start
  [ -n "$dry_run" ] || rm -rf "$out/plans"
  for name in heuristic timed timed_again; do
    start=$SECONDS
    benched "plans/$name.json" "NORMA_CUDNN_PLANS=${name%_again}" "XDG_CACHE_HOME=$out/plans/cache" -- \
      --model resnet50,convnext_tiny -b 256
    [ -n "$dry_run" ] || echo "$name: $((SECONDS - start)) s for the whole program"
  done
  do_or_print python3 benchmarks/gpu_runs.py "$out/plans"
}

bench_norms() {
  do_or_print "$norma" bench-norms --device cuda --shapes images --norms batch,layer2d,group:32,instance \
    --dtypes float32,bfloat16,float16 --batch-sizes 64 --channels 64,96,192,256,384,512,768,2048 --img-sizes 7,14,28,56,112 \
    --max-mb 1024 --quiet --output "$out/bench_norms"
}

bench() {  # bench BATCH: Norma's networks, most wanted first
  local precision steps=(--num-warm-iter 3 --num-bench-iter 10)
  for precision in amp_bfloat16 tf32 float32; do
    do_or_print "$norma" bench --device cuda --model resnet50 --norm batch,group:32,layer2d --bench both --both-formats --opt sgd "${steps[@]}" \
      -b "$1" --precision "$precision" --results-file "$out/norma_resnet50_${precision}_b$1.json" --quiet
    do_or_print "$norma" bench --device cuda --model convnext_tiny,convnext_base --bench both --both-formats --opt sgd "${steps[@]}" \
      -b "$1" --precision "$precision" --results-file "$out/norma_convnext_${precision}_b$1.json" --quiet
  done
}

nets() {  # nets BATCH: PyTorch's, most wanted first
  do_or_print python3 "$peer" nets "${resnet[@]}" --precisions amp_bfloat16 -b "$1" --json "$out/nets_resnet50_bf16_b$1.json"
  do_or_print python3 "$peer" nets "${convnext[@]}" --precisions amp_bfloat16 -b "$1" --json "$out/nets_convnext_bf16_b$1.json"
  do_or_print python3 "$peer" nets "${resnet[@]}" --precisions tf32,float32,amp_float16 -b "$1" --steps 4 --json "$out/nets_resnet50_b$1.json"
  do_or_print python3 "$peer" nets "${convnext[@]}" --precisions tf32,float32,amp_float16 -b "$1" --steps 3 --json "$out/nets_convnext_b$1.json"
}

[ -z "$pack" ] || unpack || exit 1
for part in "${parts[@]}"; do
  start=$SECONDS
  echo "=== $part"
  case $part in
    build) build || code=1 ;;
    tests) needs "$build"/tests/test_{core,ops,nn,models,train} && tests ;;
    large) needs "$build/tests/test_ops" && large ;;
    gradients) needs "$build"/tests/test_{core,ops,nn,models} && gradients ;;
    sanitizer) needs "$build"/tests/test_{core,ops,train} && sanitizer ;;
    steps | graphs | copies | plans) needs "$norma" && "$part" ;;
    train) needs "$norma" && train ;;
    bench-norms) needs "$norma" && bench_norms ;;
    bench-256 | bench-64) needs "$norma" && bench "${part#bench-}" ;;
    ceilings) do_or_print python3 benchmarks/pytorch_gpu_ceilings.py --json "$out/ceilings.json" ;;
    norms) do_or_print python3 "$peer" norms --norms batch,group:32,layer2d,instance --dtypes float32,bfloat16 \
      --shapes 64x256x56,64x512x28,64x2048x7,64x96x56,64x192x28,64x384x14,64x768x7,256x64x112 --json "$out/norms.json" ;;
    nets-256 | nets-64) nets "${part#nets-}" ;;
    compile)
      do_or_print python3 "$peer" nets "${resnet[@]}" "${compiled[@]}" --json "$out/compile_resnet50.json"
      do_or_print python3 "$peer" nets --models convnext_tiny,vit_small "${compiled[@]}" --json "$out/compile_others.json" ;;
    table) do_or_print python3 benchmarks/gpu_table.py "$out" ;;
    *) echo "gpu.sh: unknown part $part" >&2; usage >&2; exit 2 ;;
  esac
  echo "=== $part: $((SECONDS - start)) s"
done
exit "$code"
