#!/usr/bin/env bash
# text_rules_test.sh WORK: text_rules.sh accepts a good tree and names each planted fault, also in a tree whose names fill
# more than one command line.
set -uo pipefail
script=$(cd "$(dirname "$0")" && pwd)/text_rules.sh work=$1
faults=0

fresh() {
  rm -rf "$work"
  mkdir -p "$work/build"
  echo 'int a;  // see /usr/share' >"$work/a.cpp"
  printf 'a line \n' >"$work/build/a.cpp"
  printf 'a line \n' >"$work/a.svg"
}
expect() {  # expect WHAT CODE TEXT
  local said code
  said=$(bash "$script" "$work" 2>&1)
  code=$?
  if [ "$code" -ne "$2" ] || [[ $said != *"$3"* ]]; then
    printf '%s: expected exit code %d and "%s", got %d and "%s"\n' "$1" "$2" "$3" "$code" "$said"
    faults=$((faults + 1))
  fi
}

fresh
expect 'a good tree' 0 ''
home=/hom; home+=e/me/x  # this file is looked at, too
reminder=TO; reminder+=DO
for line in "$home" "a // $reminder" 'a ' $'a\t'; do
  fresh
  printf 'a\n%s\n' "$line" >"$work/b.py"
  expect "the line '$line'" 1 "./b.py:2:$line"
done
fresh
rm "$work/a.cpp"
expect 'an empty tree' 1 'nothing was checked'

# 3000 names of 100 bytes and more: grep is started several times, and finds the fault once.
fresh
name=$(printf 'n%.0s' {1..100})
(cd "$work" && for i in {1..3000}; do : >"$name-$i.cpp"; done)
expect 'a large tree' 0 ''
printf 'a \n' >"$work/b.py"
expect 'a large tree with a fault' 1 './b.py:1:a '
[ "$faults" -eq 0 ]
