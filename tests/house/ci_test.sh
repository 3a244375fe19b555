#!/usr/bin/env bash
# ci_test.sh ROOT WORK: .ci/run with commands that are not the real ones: a fault of each step makes it fail, and it says
# which steps did not run.
set -uo pipefail
root=$1 work=$2
faults=0

rm -rf "$work"
mkdir -p "$work/bin" "$work/tree/.ci" "$work/tree/python" "$work/tree/tests/house" "$work/tree/build/python-tools/bin" "$work/home"
cp "$root/.ci/run" "$work/tree/.ci/run"
for tool in awk bash cut dirname grep head mktemp paste rm sed sort tail tee; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done

fake() {  # fake FILE BODY: a command that fails where FAKE_FAULT is a part of its command line
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
  chmod +x "$1"
}
wrong='says() { [ -z "${FAKE_FAULT:-}" ] || [[ " ${0##*/} $* " != *" $FAKE_FAULT "* ]]; }'
# shellcheck disable=SC2016
tests='case " $* " in
  *" --test-dir "*) exit 0 ;;
esac
[ "${FAKE_FAULT:-}" != "none of $*" ] || { echo "No tests were found!!!"; exit 8; }
says "$@" || { printf "97%% tests passed, 1 tests failed out of 40\n\nThe following tests FAILED:\n\t  7 - core: a sum (Failed)\n"; exit 8; }
echo "100% tests passed, 0 tests failed out of 40"'
fake "$work/bin/ctest" "$wrong; $tests"
fake "$work/tree/run" "$wrong; if [ \"\$1\" = test ]; then shift; $tests; else says \"\$@\"; fi"
fake "$work/bin/git" 'echo "${FAKE_COMMIT:-0000000000000000000000000000000000000000}"'
fake "$work/tree/python/tools.sh" "$wrong; says"
fake "$work/tree/build/python-tools/bin/pip" '[ -z "${FAKE_OFFLINE:-}" ]'
fake "$work/tree/tests/house/portable.sh" '[ -z "${FAKE_CHANGED:-}" ]'

ci() {  # ci [NAME=VALUE…]: what it printed is in `printed`, its exit code in `code`
  printed=$(cd "$work" && env -i PATH="$work/bin" HOME="$work/home" TMPDIR="$work" "$@" bash tree/.ci/run 2>&1)
  code=$?
}
expect() {  # expect WHAT CODE TEXT…
  local text
  for text in "${@:3}"; do
    if [ "$code" -ne "$2" ] || [[ $printed != *"$text"* ]]; then
      printf '%s: expected exit code %d and "%s", got %d and\n%s\n\n' "$1" "$2" "$text" "$code" "$printed"
      faults=$((faults + 1))
    fi
  done
}

ci
expect 'no fault' 0 '123 passed, 0 failed' 'cuda-release             NOT RUN'
for fault in lint 'configure --preset cpu-release' 'build --preset cpu-release' '--preset cpu-release -LE' \
             'ctest --preset cpu-release -L' 'lessons --site' python 'configure --preset cpu-asan' \
             '--preset cpu-asan --rooms' 'none of --preset cpu-release -LE ^cuda-emulated$'; do
  ci FAKE_FAULT="$fault"
  expect "a fault of $fault" 1 ' failed in '
done
ci FAKE_FAULT='--preset cpu-release -LE'
expect 'a test that fails' 1 '122 passed, 1 failed' 'cpu-release: tests       FAILED' '=== cpu-release: what failed, again'
ci FAKE_FAULT=wheel FAKE_COMMIT=0000000000000000000000000000000000000010
expect 'a wheel that fails' 1 'wheel                    FAILED'
ci FAKE_FAULT=tools.sh
expect 'tools for Python that PyPI lacks' 0 'python package           passed'
ci FAKE_FAULT=tools.sh FAKE_OFFLINE=1
expect 'no PyPI' 0 'python package: NOT tested, as PyPI cannot be reached' 'python package           NOT RUN'
ci FAKE_CHANGED=1
expect 'changed kernels' 0 'cpu-portable: tests      passed'
ci FAKE_CHANGED=1 FAKE_FAULT='-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG'
expect 'changed kernels that -O1 does not configure' 1 'cpu-portable: with -O1   FAILED'
[ "$faults" -eq 0 ]
