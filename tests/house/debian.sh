#!/usr/bin/env bash
# debian.sh SUITE [COMMAND…]: runs COMMAND with the committed tree in a fresh Debian (trixie, bookworm); by default what a
# newcomer begins with, ./run compare --quick. Its root, build/debian-SUITE, is kept: another run compiles what changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

quit() {
  echo "debian.sh: $*" >&2
  exit 1
}
[[ ${1-} =~ ^[a-z]+$ ]] || quit 'usage: tests/house/debian.sh SUITE [COMMAND…]'
suite=$1
shift
[ $# -gt 0 ] || set -- ./run compare --quick
[ "$(id -u)" -eq 0 ] || quit 'making a root of Debian needs root'
unshare --mount true 2>/dev/null || quit 'mounting needs a namespace of its own, which this system does not give'
command -v debootstrap >/dev/null || { apt-get update && apt-get install --yes debootstrap; } >/dev/null 2>&1 ||
  quit 'debootstrap is missing, and apt-get could not install it'

root=$PWD/build/debian-$suite
if [ ! -e "$root/made" ]; then
  # The mirror that this system has its own packages from.
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 2>/dev/null | sed -n '/security/!s/^Debian //p' | head -n 1)
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=ca-certificates,git "$suite" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 ||
    quit "debootstrap could not make a root of $suite: $(tail -n 1 "$root.log")"
  apt-config dump | grep -iE '^Acquire::https?::Proxy' >"$root/etc/apt/apt.conf.d/50proxy" || true
  touch "$root/made"
fi
if [ ! -e "$root/norma" ]; then
  git clone --quiet --no-hardlinks "$PWD" "$root/norma"
else  # only files that differ become younger
  git -C "$root/norma" fetch --quiet "$PWD" HEAD
  git -C "$root/norma" checkout --quiet --force --detach FETCH_HEAD
  git -C "$root/norma" clean --quiet -ffd  # a file that is gone from the tree; builds are ignored, and stay
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
[ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/"
# This system's certificates are also those that a proxy signs with.
[ ! -e /etc/ssl/certs/ca-certificates.crt ] ||
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
echo "debian.sh: $suite: $*"
# What is mounted here goes with the process. /dev/shm carries the messages of MPI, /dev/pts the terminals of tests.
# shellcheck disable=SC2016
exec unshare --mount --propagation private bash -c '
  root=$1
  shift
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || true  # MPI reads the processors there
  mount -t tmpfs shm "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
  ln -sf pts/ptmx "$root/dev/ptmx"
  exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "cd /norma && exec \"\$@\"" - "$@"
' - "$root" "$@"
