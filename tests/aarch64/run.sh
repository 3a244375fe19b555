#!/usr/bin/env bash
# Builds Norma for ARM processors and runs the tests of some rooms under qemu. For releases: it takes about an hour on two
# cores. Debian only; the ARM packages are unpacked below build/ and change nothing else.
#   tests/aarch64/run.sh [ROOM…] [-- options of the test programs]     rooms: core ops nn … [core ops]
#   tests/aarch64/run.sh ops -- -tc='*norm*'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$PWD/build/aarch64
root=$build/root
rooms=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do rooms+=("$1") && shift; done
[ $# -eq 0 ] || shift
[ ${#rooms[@]} -gt 0 ] || rooms=(core ops)

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
command -v aarch64-linux-gnu-g++ qemu-aarch64 cmake ninja >/dev/null ||
  "${as_root[@]}" apt-get install --yes --no-install-recommends g++-aarch64-linux-gnu qemu-user cmake ninja-build

packages=(libfmt-dev libfmt9 zlib1g-dev zlib1g libssl-dev libssl3 libpng-dev libpng16-16 libjpeg62-turbo-dev libjpeg62-turbo libhwy-dev libhwy1 libeigen3-dev nlohmann-json3-dev doctest-dev libcli11-dev
  libtomlplusplus-dev libboost1.74-dev)
if [ ! -e "$root/done" ]; then
  rm -rf "$root" "$build/packages"
  mkdir -p "$root" "$build/packages/lists/partial"
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$build/packages/lists" -q)
  apt-get "${options[@]}" update
  (cd "$build/packages" && apt-get "${options[@]}" download "${packages[@]}")
  for package in "$build"/packages/*.deb; do dpkg -x "$package" "$root"; done
  touch "$root/done"
fi

cmake -S . -B "$build/tree" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/aarch64/toolchain.cmake" -DNORMA_SYSROOT="$root" \
  -DCMAKE_BUILD_TYPE=Release -DNORMA_NATIVE=OFF -DNORMA_ONEDNN=OFF -DNORMA_PCH=OFF
cmake --build "$build/tree" --target "${rooms[@]/#/test_}"
failed=0
for room in "${rooms[@]}"; do
  echo "=== $room, aarch64 under qemu"
  OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive qemu-aarch64 -L /usr/aarch64-linux-gnu \
    -E "LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib" "$build/tree/tests/test_$room" "$@" || failed=1
done
exit $failed
