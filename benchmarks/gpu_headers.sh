#!/usr/bin/env bash
# Gathers in .gpu the headers and package files that Norma's build wants from Debian, for a machine that has none of them and
# nothing to download from. benchmarks/gpu.sh build finds them there.
#   benchmarks/gpu_headers.sh [FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
to=${1:-.gpu}
rm -rf "$to"
mkdir -p "$to/usr"
for package in libeigen3-dev doctest-dev libcli11-dev nlohmann-json3-dev libfmt-dev libtomlplusplus-dev zlib1g-dev; do
  dpkg -L "$package" | while read -r path; do
    case $path in
      */libz.a | */libfmt.so* | /usr/include/* | /usr/share/cmake/* | /usr/share/eigen3/* | /usr/lib/*/cmake/* | /usr/lib/cmake/*) ;;
      *) continue ;;
    esac
    [ -d "$path" ] && continue
    mkdir -p "$to$(dirname "$path")"
    cp -L "$path" "$to$path"
  done
done
# The library that libfmt.so stands for lies in a package of its own.
library=$(readlink -f /usr/lib/*/libfmt.so)
for name in "$library" "${library%.*.*}"; do cp -L "$name" "$to$(dirname "$name")/"; done
size=$(du -sm "$to" | cut -f 1)
echo "$to: $size MiB"
[ "$size" -le 40 ]
