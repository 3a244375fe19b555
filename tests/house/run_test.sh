#!/usr/bin/env bash
# run_test.sh ROOT WORK: the script `run` with commands that are not the real ones: what it installs, configures and
# starts, and what it says where it cannot.
set -uo pipefail
root=$1 work=$2
faults=0

fresh() {  # fresh TOOL…: a tree with `run` and a PATH of these commands, which write what they were asked to `calls`
  local tool
  rm -rf "$work"
  mkdir -p "$work/tree/cmake" "$work/bin" "$work/fake"
  cp "$root/cmake/build.sh" "$work/tree/cmake"
  # The compiler knows the headers, and the images are there.
  sed "s|/usr/\(local/\)\?include|$work/include|g; s|/usr/share/datasets|$work/datasets|g" "$root/run" >"$work/tree/run"
  mkdir -p "$work/datasets/fashion-mnist"
  touch "$work/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
  chmod +x "$work/tree/run"
  for tool in bash cat chmod cp dirname env grep mkdir mktemp nproc rm sleep tail; do
    ln -s "$(command -v "$tool")" "$work/bin/$tool"
  done
  fake c++ 'program=$(cat); [ -z "${FAKE_MISSING:-}" ] || ! [[ $program =~ $FAKE_MISSING ]]'
  fake ninja ''
  fake id 'echo "${FAKE_USER:-0}"'
  fake cmake '
    case $1 in
      --preset)
        mkdir -p build/"$2" && touch build/"$2"/build.ninja build/"$2"/CMakeCache.txt
        [ -z "${FAKE_CACHE:-}" ] || echo "$FAKE_CACHE" >build/"$2"/CMakeCache.txt
        [ -z "${FAKE_SAYS:-}" ] || echo "-- $FAKE_SAYS" ;;
      --build)
        [ -z "${FAKE_BROKEN:-}" ] || { printf "%s\n" "$FAKE_BROKEN"; exit 1; }
        [ -z "${FAKE_SLOW:-}" ] || { echo "[1/4] Building a"; sleep 3; }
        [ -z "${FAKE_WARNS:-}" ] || { echo "[3/4] Building b"; echo "b.cpp:1:2: warning: strange"; }
        mkdir -p "$2/cli"
        printf "%s\n" "#!$BASH" "echo norma \"\$@\", started as \$NORMA_STARTED_AS" >"$2/cli/norma"
        chmod +x "$2/cli/norma" ;;
    esac'
  fake apt-get '
    [ "$1" = update ] && exit 0
    [ -z "${FAKE_BROKEN:-}" ] || { echo "E: no space left"; exit 100; }
    for package; do [ "$package" != ninja-build ] || cp "$FAKES/ninja" "$FAKES/../bin/ninja"; done
    for package; do [ "$package" != cmake ] || cp "$FAKES/cmake" "$FAKES/../bin/cmake"; done'
  fake sudo '"$@"'
  fake nvidia-smi '
    case $* in
      *compute_cap*) printf "%s\n" "${FAKE_GPUS:-9.0, NVIDIA H200}" ;;
      *) echo "GPU 0: NVIDIA H200 (UUID: GPU-0)" ;;
    esac'
  fake nvcc ''
  fake ctest ''
  fake python3 'echo "python3 $*"'
  fake mpirun '' && cp "$work/fake/mpirun" "$work/bin/mpirun"
  ln -s "$(command -v touch)" "$work/bin/touch"
  for tool; do cp "$work/fake/$tool" "$work/bin/$tool"; done
}

fake() {  # fake NAME BODY
  printf '#!%s\necho "%s $*" >>"$CALLS"\n%s\n' "$(command -v bash)" "$1" "$2" >"$work/fake/$1"
  chmod +x "$work/fake/$1"
}

run() {  # run [FAKE_…=VALUE NORMA_…=VALUE] ARGUMENTS: what it printed is in `printed`, its exit code in `code`
  local settings=()
  while [[ ${1:-} == @(FAKE|NORMA)_* ]]; do settings+=("$1"); shift; done
  : >"$work/calls"
  printed=$(cd "$work/tree" && env -i PATH="$work/bin" CALLS="$work/calls" FAKES="$work/fake" TMPDIR="$work" CUDA_PATH="$work/cuda" \
    "${settings[@]}" ./run "$@" 2>&1)
  code=$?
}

expect() {  # expect WHAT CODE TEXT
  if [ "$code" != "$2" ] || [ "$printed" != "$3" ]; then
    printf '%s: expected exit code %s and\n%s\ngot %s and\n%s\n\n' "$1" "$2" "$3" "$code" "$printed"
    faults=$((faults + 1))
  fi
}

expect_calls() {  # expect_calls WHAT CALLS [PROGRAMS]: of apt-get and sudo, or of others
  local calls
  calls=$(grep -E "^(${3:-apt-get|sudo}) " "$work/calls")
  if [ "$calls" != "$2" ]; then
    printf '%s: expected the calls\n%s\ngot\n%s\n\n' "$1" "$2" "$calls"
    faults=$((faults + 1))
  fi
}

what='nothing is missing'
fresh c++ ninja cmake id apt-get sudo
run info --here
expect "$what" 0 'run: configuring cpu-release
norma info --here, started as ./run'
expect_calls "$what" ''
run info
expect 'the second time' 0 'norma info, started as ./run'

what='no apt-get'
fresh c++ id
run info
expect "$what" 1 "run: missing on this system (names of Debian's packages): cmake ninja-build
run: there is no apt-get here; install them in this system's own way, then start again"

what='no root, no sudo'
fresh c++ cmake id apt-get
run FAKE_USER=1000 info
expect "$what" 1 'run: missing packages: ninja-build
run: installing them needs root, and there is no sudo; as root: apt-get install ninja-build'
expect_calls "$what" ''

what='no root, with sudo'
fresh c++ cmake id apt-get sudo
run FAKE_USER=1000 info
expect "$what" 0 'run: installing ninja-build
run: configuring cpu-release
norma info, started as ./run'
install='DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ninja-build'
expect_calls "$what" "sudo apt-get update
apt-get update
sudo env $install
${install#* }"

what='root needs no sudo'
fresh c++ id apt-get
run info
expect "$what" 0 'run: installing cmake ninja-build
run: configuring cpu-release
norma info, started as ./run'
expect_calls "$what" 'apt-get update
apt-get install --yes --no-install-recommends cmake ninja-build'

what='apt-get fails'
fresh c++ cmake id apt-get
run FAKE_BROKEN=1 info
expect "$what" 1 'run: installing ninja-build
E: no space left
run: apt-get could not install: ninja-build'

what='the compiler fails'
fresh c++ ninja cmake id python3
says="run: the build failed; all that the compilers say: $work/tree/build/cpu-release/build.log"
run 'FAKE_BROKEN=[1/3] Building a
[2/3] Building x
FAILED: x.o
c++ -Werror -c x.cpp
In file included from y.cpp:1:
x.cpp:1: warning: strange
x.cpp:1: error: no such thing
   12 |   thing();
[3/3] Building z
FAILED: z.o
z.cpp:1: error: a second one
ninja: build stopped: subcommand failed.' info
expect "$what" 1 "run: configuring cpu-release
x.cpp:1: error: no such thing
   12 |   thing();
$says"
for error in '/usr/bin/ld: main.o: undefined reference to `thing()'"'"'' 'CMake Error at CMakeLists.txt:3 (find):' \
    'ninja: error: unknown target' 'c++: fatal error: Killed signal terminated program cc1plus'; do
  run "FAKE_BROKEN=[1/2] Building
$error" info
  expect "$what: $error" 1 "$error
$says"
done
run 'FAKE_BROKEN=[1/2] Building
a program broke down' build
expect "$what, and says so in words of its own" 1 "run: configuring cpu-release
[1/2] Building
a program broke down
$says"
run FAKE_WARNS=1 build
expect 'the compiler warns' 0 "run: configuring cpu-release
run: warnings of the compilers: 1; see $work/tree/build/cpu-release/build.log"

what='a build that takes long'
run FAKE_SLOW=1 NORMA_BUILD_SAYS=1 info
[ "$code" = 0 ] && [[ $printed == 'run: building, 1 of 4, about 10 s left'$'\n'* && $printed == *$'\n''norma info'* ]] ||
  expect "$what" 0 'run: building, 1 of 4, about 10 s left, some times'
run FAKE_SLOW=1 info
expect "$what, but less than 20 s" 0 'norma info, started as ./run'

without_cuda='cmake --preset cpu-release -DNORMA_BUILD_TESTS=OFF -DNORMA_BUILD_EXAMPLES=OFF -DNORMA_BUILD_BENCHMARKS=OFF'
without_cuda+=' -DNORMA_EMULATED=OFF -DNORMA_ONNX=OFF -DNORMA_UNITY=ON'
with_cuda="${without_cuda/cpu/cuda}"
what='a GPU and nvcc'
fresh c++ ninja cmake id nvidia-smi nvcc python3
run info
expect "$what" 0 'run: configuring cuda-release
norma info, started as ./run'
expect_calls "$what" "$with_cuda -DCMAKE_CUDA_ARCHITECTURES=native
cmake --build $work/tree/build/cuda-release --target norma -j $(nproc)" cmake
run NORMA_CUDA=OFF info
expect "$what that is not wanted" 0 'run: configuring cpu-release
norma info, started as ./run'
run build --preset cuda-debug
expect_calls 'a preset with CUDA' "cmake --preset cuda-debug -DNORMA_BUILD_TESTS=ON -DNORMA_BUILD_EXAMPLES=ON \
-DNORMA_BUILD_BENCHMARKS=ON -DNORMA_BUILD_LESSONS=ON -DNORMA_ONNX=AUTO -DCMAKE_CUDA_ARCHITECTURES=native
cmake --build $work/tree/build/cuda-debug -j $(nproc)" cmake

what='a GPU that is too old'
fresh c++ ninja cmake id nvidia-smi nvcc python3
run 'FAKE_GPUS=7.5, Tesla T4' info
expect "$what" 0 'run: the GPU Tesla T4 has compute capability 7.5, and Norma needs 8.0 or above: using the CPU
run: configuring cpu-release
norma info, started as ./run'
expect_calls "$what" "$without_cuda
cmake --build $work/tree/build/cpu-release --target norma -j $(nproc)" cmake
run 'FAKE_GPUS=7.5, Tesla T4' build --preset cuda-debug
expect_calls "$what, and a preset with CUDA" "cmake --preset cuda-debug -DNORMA_BUILD_TESTS=ON \
-DNORMA_BUILD_EXAMPLES=ON -DNORMA_BUILD_BENCHMARKS=ON -DNORMA_BUILD_LESSONS=ON -DNORMA_ONNX=AUTO
cmake --build $work/tree/build/cuda-debug -j $(nproc)" cmake
run 'FAKE_GPUS=7.5, Tesla T4
8.0, NVIDIA A100' info
expect 'a second GPU that is not too old' 0 'run: configuring cuda-release
norma info, started as ./run'
run 'FAKE_GPUS=Field "compute_cap" is not a valid field to query.' info
expect 'a driver that does not know' 0 'norma info, started as ./run'

what='nvcc outside of PATH'
fresh c++ ninja cmake id nvidia-smi
mkdir -p "$work/cuda/bin" && cp "$work/fake/nvcc" "$work/cuda/bin"
run info
expect "$what" 0 'run: configuring cuda-release
norma info, started as ./run'
rm -r "$work/cuda"

what='a GPU without nvcc'
run info
expect "$what" 0 'run: to use the NVIDIA GPU, install the CUDA Toolkit (nvcc) and cuDNN 9.8 or later; without them: the CPU
run: configuring cpu-release
norma info, started as ./run'
expect_calls "$what" "$without_cuda
cmake --build $work/tree/build/cpu-release --target norma -j $(nproc)" cmake

what='nvcc without a GPU'
fresh c++ ninja cmake id nvcc
run info
expect "$what" 0 'run: configuring cpu-release
norma info, started as ./run'

what='a driver without a GPU'
fresh c++ ninja id nvcc cmake
printf '#!%s\nexit 9\n' "$(command -v bash)" >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
run info
expect "$what" 0 'run: configuring cpu-release
norma info, started as ./run'

what='several processes'
fresh c++ ninja cmake id apt-get
rm "$work/bin/mpirun"
run FAKE_MISSING=mpi.h train --procs 2 --dataset shapes
expect "$what" 0 'run: installing openmpi-bin libopenmpi-dev
run: configuring cpu-release
norma train --procs 2 --dataset shapes, started as ./run'
echo 'NORMA_HAS_MPI:INTERNAL=OFF' >"$work/tree/build/cpu-release/CMakeCache.txt"
run train --procs 2 --dataset shapes
expect_calls "$what, and a build from before" 'cmake --preset cpu-release -DNORMA_MPI=AUTO
cmake --build '"$work/tree/build/cpu-release --target norma -j $(nproc)" cmake

what='several processes on GPUs, without NCCL'
fresh c++ ninja cmake id nvidia-smi nvcc
run info
without_nccl='NCCL was not found (PyPI: nvidia-nccl-cu13): gradients travel through the memory of the host'
echo 'NORMA_HAS_NCCL:INTERNAL=OFF' >"$work/tree/build/cuda-release/CMakeCache.txt"
run "FAKE_SAYS=$without_nccl" FAKE_CACHE=NORMA_HAS_NCCL:INTERNAL=OFF train --procs 2 --dataset shapes
expect "$what" 0 "run: $without_nccl
norma train --procs 2 --dataset shapes, started as ./run"
run "FAKE_SAYS=$without_nccl" train --dataset shapes
expect "one process on a GPU, without NCCL" 0 'norma train --dataset shapes, started as ./run'
run FAKE_SAYS=something FAKE_CACHE=NORMA_HAS_NCCL:INTERNAL=ON train --procs 2 --dataset shapes
expect "$what, and then with it" 0 'norma train --procs 2 --dataset shapes, started as ./run'

what='a library that a command needs'
fresh c++ ninja cmake id apt-get
run FAKE_MISSING='onnx|protobuf' export --checkpoint runs/mine --output mine.onnx
expect "$what" 0 'run: installing libonnx-dev libprotobuf-dev
run: configuring cpu-release
norma export --checkpoint runs/mine --output mine.onnx, started as ./run'
echo 'NORMA_HAS_ONNX:INTERNAL=OFF' >"$work/tree/build/cpu-release/CMakeCache.txt"
run export --checkpoint runs/mine --output mine.onnx
expect_calls "$what, and a build from before" 'cmake --preset cpu-release -DNORMA_ONNX=AUTO
cmake --build '"$work/tree/build/cpu-release --target norma -j $(nproc)" cmake
run FAKE_MISSING='onnx|protobuf' info
expect 'a library that another command needs' 0 'norma info, started as ./run'

run FAKE_MISSING='onnx|protobuf' export -h
expect 'a library for help alone' 0 'norma export -h, started as ./run'

what='images'
fresh c++ ninja cmake id apt-get python3
run info
rm -r "$work/datasets"
for command in compare train eval data; do
  run "$command"
  expect "$what for $command" 0 "run: installing dataset-fashion-mnist
norma $command, started as ./run"
  for words in '--dataset shapes' '--dataset=shapes --seed 1' '--data-dir photos' --help -h; do
    run "$command" $words  # words
    expect "no $what for $command $words" 0 "norma $command $words, started as ./run"
  done
done
for words in 'memory_formats --check' m2; do
  run lesson $words
  [[ $printed != *'run: installing dataset-fashion-mnist'* ]] || expect "no $what for lesson $words" 0 'no images'
done
for words in 'm1 --check' '--check m1' own_tape m3_beat_group_norm; do
  run lesson $words
  [[ $printed == *'run: installing dataset-fashion-mnist'* ]] || expect "$what for lesson $words" 0 'the images are installed'
done

what='the device cuda-emulated, which the first build leaves out'
fresh c++ ninja cmake id apt-get
run info
echo 'NORMA_HAS_EMULATED:INTERNAL=OFF' >"$work/tree/build/cpu-release/CMakeCache.txt"
run train --device cuda-emulated --dataset shapes
expect_calls "$what" 'cmake --preset cpu-release -DNORMA_EMULATED=ON
cmake --build '"$work/tree/build/cpu-release --target norma -j $(nproc)" cmake

what='a lesson'
fresh c++ ninja cmake id apt-get python3
run lesson 1 --check
expect "$what" 0 "run: installing pandoc
run: configuring cpu-release
python3 -B $work/tree/lessons/lessons.py --build $work/tree/build/cpu-release lesson 1 --check"
expect_calls "$what" "$without_cuda -DNORMA_BUILD_LESSONS=ON" cmake
echo NORMA_BUILD_LESSONS:BOOL=ON >"$work/tree/build/cpu-release/CMakeCache.txt"
run lesson 2
expect_calls "$what, the second time" '' cmake

what='notebooks of lessons, for which nothing is built'
fresh python3
run lessons --notebooks books
expect "$what" 0 "python3 -B $work/tree/lessons/lessons.py lessons --notebooks books"
run lessons --notebooks=books --solved
expect "$what, and solved" 0 "python3 -B $work/tree/lessons/lessons.py lessons --notebooks=books --solved"

what='the tests of some rooms'
fresh c++ ninja cmake id ctest python3
run test --preset cuda-release --rooms ops,virtual_gpu -j1
expect_calls "$what" "cmake --build $work/tree/build/cuda-release -j $(nproc) --target test_ops test_virtual_gpu
ctest --preset cuda-release -L ^(ops|virtual-gpu)\$ -LE ^slow\$ -j1
ctest --test-dir $work/tree/build/cuda-release -N -L ^slow\$" 'cmake --build|ctest'

what='an unknown preset'
run build --preset cpu-fast
expect "$what" 1 \
  'run: --preset: expected cpu-release, cpu-debug, cpu-asan, cpu-portable, cpu-avx2, cuda-release or cuda-debug, got cpu-fast'
run build core
expect 'a word that build does not know' 1 'run: build: expected --preset and --rooms, got core'
run build --slow
expect 'an option of test alone' 1 'run: build: expected --preset and --rooms, got --slow'
run test --rooms
expect 'rooms without names' 1 'run: --rooms: expected names like core,ops'

what='help of its own commands, which start nothing'
fresh c++ ninja cmake id apt-get python3
for command in configure build test fuzz lesson lessons break python wheel lint; do
  for word in -h --help; do
    run "$command" "$word"
    [ "$code" = 0 ] && [[ $printed == "usage: ./run $command"*$'\n'* ]] ||
      expect "$what: $command $word" 0 "usage: ./run $command and more"
    expect_calls "$what: $command $word" '' 'apt-get|cmake|ninja|python3'
  done
done
run lint --help
expect "$what" 0 "usage: ./run lint [--quick | --tidy | --all]
  formatting, rules for texts and includes, the docs' figures, and clang-tidy for what changed;
  --quick: without clang-tidy, --tidy: it alone, --all: it for every file"
run test --preset cpu-asan --help
expect "$what" 0 'usage: ./run test [--preset NAME] [--rooms core,ops,…] [--slow] [ctest options]
  build and run the tests of all rooms, or of some (presets: cpu-release, cpu-debug, cpu-asan,
  cpu-portable, cpu-avx2, cuda-release, cuda-debug); with --slow also those that take long
  or compare once more, the lessons'"'"' and the examples'"'"'
usage: ./run test --all
  whatever there is: every test, with the sanitizers, for any processor, for GPUs, the Python
  package, its wheel, and on Debian 13; two hours on two cores'

[ "$faults" -eq 0 ]
