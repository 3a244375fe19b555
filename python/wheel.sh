#!/usr/bin/env bash
# python/wheel.sh: builds build/wheels/norma-….whl, for every x86-64 processor and any Linux with this glibc or a later
# one, with the libraries that it needs inside, and tests it in an environment that has nothing else.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$("$root/python/tools.sh")
wheels=$root/build/wheels
cd "$root"
rm -rf "$wheels"
mkdir -p "$wheels/raw"
"$tools/bin/python" -m build --wheel --no-isolation --outdir "$wheels/raw"
PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --strip --wheel-dir "$wheels" "$wheels"/raw/*.whl
rm -rf "$wheels/raw"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
python3 -m venv "$fresh/venv"
"$fresh/venv/bin/pip" --quiet --disable-pip-version-check install "$wheels"/*.whl numpy pytest
cd "$fresh"
"$fresh/venv/bin/norma" info
SECONDS=0
"$fresh/venv/bin/norma" compare --quick --dataset shapes
echo "wheel: a first report after $SECONDS s"
if "$fresh/venv/bin/pip" --quiet --disable-pip-version-check install nbconvert ipykernel; then
  "$fresh/venv/bin/jupyter" nbconvert --execute --to html --output-dir . "$root/examples/own_norm.ipynb"
  grep -q iframe own_norm.html
  python3 -B "$root/lessons/lessons.py" lessons --notebooks notebooks --solved
  "$fresh/venv/bin/jupyter" nbconvert --execute --to html --output-dir . notebooks/*.ipynb
fi
"$fresh/venv/bin/python" -m pytest -p no:cacheprovider -q "$root/tests/python"
ls -l "$wheels"
