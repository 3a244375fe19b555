#!/usr/bin/env bash
# Gathers in .gpu the headers and package files that Norma's build wants from Debian, and the images that it trains on, for a
# machine that has none of them and nothing to download from. benchmarks/gpu.sh finds them there.
#   benchmarks/gpu_headers.sh [FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
to=${1:-.gpu}
rm -rf "$to"
mkdir -p "$to/usr"
for package in libeigen3-dev doctest-dev libcli11-dev nlohmann-json3-dev libfmt-dev libhwy-dev libtomlplusplus-dev zlib1g-dev libssl-dev libpng-dev \
  dataset-fashion-mnist; do
  dpkg -L "$package" | while read -r path; do
    case $path in
      */libz.a | */libpng16.a | /usr/share/datasets/* | /usr/include/* | /usr/share/cmake/* | /usr/share/eigen3/* | /usr/lib/*/cmake/* | /usr/lib/cmake/*) ;;
      *) continue ;;
    esac
    [ -d "$path" ] && continue
    mkdir -p "$to$(dirname "$path")"
    cp -L "$path" "$to$path"
  done
done
# Of Boost what its distributions include, and the files by which CMake finds it: all would be 150 MiB.
{
  c++ -std=c++20 -I. -M lab/statistics/scatter.cpp | tr -s ' \\\n' '\n' | grep '^/usr/include/boost/'
  find /usr/lib/*/cmake/{Boost-*,BoostDetectToolset-*,boost_headers-*} -type f
} | while read -r path; do
  mkdir -p "$to$(dirname "$path")"
  cp -L "$path" "$to$path"
done
# The libraries that these packages refer to lie in packages of their own, under several names.
for library in /usr/lib/*/libfmt.so* /usr/lib/*/libhwy{,_contrib,_test}.so* /usr/lib/*/libcrypto.so*; do
  mkdir -p "$to$(dirname "$library")"
  cp -L "$library" "$to$(dirname "$library")/"
done
size=$(du -sm "$to" | cut -f 1)
echo "$to: $size MiB"
[ "$size" -le 60 ]
