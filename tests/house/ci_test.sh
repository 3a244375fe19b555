#!/usr/bin/env bash
# ci_test.sh ROOT WORK: .ci/run with commands that are not the real ones: a fault of each step makes it fail, it runs the
# parts that a change reaches, and it says which parts did not run.
set -uo pipefail
root=$1 work=$2
faults=0

rm -rf "$work"
mkdir -p "$work/bin" "$work/tree/.ci" "$work/tree/python" "$work/tree/tests/house" "$work/tree/build/python-tools/bin" "$work/tree/build/cpu-release" "$work/home"
cp "$root/.ci/run" "$work/tree/.ci/run"
for tool in awk bash dirname grep head mktemp paste rm sed sort tail tee wc; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done

fake() {  # fake FILE BODY: a command that fails where FAKE_FAULT is a part of its command line
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
  chmod +x "$1"
}
wrong='says() { [ -z "${FAKE_FAULT:-}" ] || [[ " ${0##*/} $* " != *" $FAKE_FAULT "* ]]; }'
# shellcheck disable=SC2016
tests='case " $* " in
  *" -N -L slow "*) echo "  Test #12: ops: a long one"; exit 0 ;;
  *" --test-dir "*) exit 0 ;;
esac
[ "${FAKE_FAULT:-}" != "none of $*" ] || { echo "No tests were found!!!"; exit 8; }
says "$@" || { printf "97%% tests passed, 1 tests failed out of 40\n\nThe following tests FAILED:\n\t  7 - core: a sum (Failed)\n"; exit 8; }
echo "100% tests passed, 0 tests failed out of 40"'
fake "$work/bin/ctest" "$wrong; $tests"
fake "$work/tree/run" "$wrong; if [ \"\$1\" = test ]; then shift; $tests; else says \"\$@\"; fi"
# shellcheck disable=SC2016
fake "$work/tree/.ci/reach.py" 'if [ "${1:-}" = --tidy ]; then
  for ((i = 0; i < ${FAKE_FILES:-3}; ++i)); do echo x.cpp; done
  exit
fi
[ -z "${FAKE_LOST:-}" ] || [ "${NORMA_CI_ALL:-}" = 1 ] || exit 1
for part in tidy release:core release:ops emulated:core emulated:ops asan:core asan:ops site python wheel cuda portable:ops debian; do
  if [[ " ${FAKE_LEFT_OUT:-} " == *" ${part%:*} "* ]] && [ -z "${NORMA_CI_ALL:-}" ]; then
    echo "$part   left out: nothing"
  else
    echo "$part   reached: x.h"
  fi
done'
fake "$work/tree/tests/house/debian.sh" "$wrong; says \"\$@\""
fake "$work/tree/python/tools.sh" "$wrong; says"
fake "$work/tree/build/python-tools/bin/pip" '[ -z "${FAKE_OFFLINE:-}" ]'

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
expect 'no fault' 0 '0 failed' 'cuda-release               NOT RUN' 'ops: a long one as it is slow: ./run test --all'
ci FAKE_FILES=2000
expect 'a part that would not end in time' 0 'clang-tidy                 NOT RUN' 'it would take 83 min' 'wheel                      passed'
for fault in 'lint --tidy' 'configure --preset cpu-release' 'build --preset cpu-release' '--preset cpu-release -L ^(core|ops)$' \
             '--preset cpu-release -L ^cuda-emulated$' 'lessons --site' python wheel 'configure --preset cpu-asan' \
             'build --preset cpu-asan' '--preset cpu-asan -L' '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG' '--preset cpu-portable -L' \
             'debian.sh trixie' 'none of --preset cpu-release -L ^(core|ops)$ -LE slow|cuda-emulated'; do
  ci FAKE_FAULT="$fault"
  expect "a fault of $fault" 1 ' failed in '
done
ci FAKE_FAULT='lint --quick'
expect 'a fault of the quick checks, which ends the run' 1 '0 passed, 1 failed'
[[ $printed != *cpu-release* ]] || { echo 'the quick checks did not end the run'; faults=$((faults + 1)); }
ci FAKE_FAULT='--preset cpu-asan -L'
expect 'a test that fails' 1 '1 failed in' 'cpu-asan: tests            FAILED' '=== cpu-asan: what failed, again'
ci FAKE_LEFT_OUT='release emulated asan cuda portable debian wheel python tidy site'
expect 'a change that reaches nothing' 0 '1 passed, 0 failed' 'wheel   as nothing that it reads has changed'
ci FAKE_LOST=1
expect 'reach.py with a fault runs everything' 0 'cpu-asan: tests            passed' 'wheel                      passed'
ci FAKE_FAULT=tools.sh
expect 'tools for Python that PyPI lacks' 0 'python package             passed'
ci FAKE_FAULT=tools.sh FAKE_OFFLINE=1
expect 'no PyPI' 0 'python package: NOT tested, as PyPI cannot be reached' 'python package             NOT RUN'
[ "$faults" -eq 0 ]
