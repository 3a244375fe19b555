#!/usr/bin/env bash
# text_rules.sh DIR: what no file of DIR may have. Prints each line with a fault; exit 1 if there is one.
set -euo pipefail
cd "$1"
faults=0

files() {  # each name ends with a zero byte
  find . \( -path ./build -o -path ./.gpu -o -path ./.git -o -path ./runs -o -path ./.cache \) -prune -o -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cmake' -o -name '*.txt' -o -name '*.py' \
       -o -name '*.sh' -o -name '*.md' -o -name '*.json' -o -name run \) -print0
}

# xargs may start grep several times, and says only that one of them found nothing. So what was printed decides. Exit
# codes above 1 of grep are errors: a file that cannot be read, a pattern that is none.
no_line() {  # no_line WHAT PATTERN
  local found
  found=$(files | xargs -0 sh -c 'grep -nHE --binary-files=without-match -e "$@" || [ $? -eq 1 ]' sh "$2" --) || {
    echo "text rules: could not look for $1"
    faults=$((faults + 1))
  }
  [ -z "$found" ] || {
    printf '%s\ntext rules: found %s\n' "$found" "$1"
    faults=$((faults + 1))
  }
}

if [ -z "$(files | tr -d '\0')" ]; then
  echo "text rules: found no file in $1: nothing was checked"
  exit 1
fi
# The patterns are written so that they do not find themselves.
no_line 'paths of one machine' '(^|[^[:alnum:]_.$}])/(hom[e]|roo[t]|wor[k]|User[s]|mn[t])/'
no_line 'reminders to finish something' '\b(TOD[O]|FIXM[E]|XX[X])\b'
no_line 'tabs or blanks at the end of a line' '[[:blank:]]$'
[ "$faults" -eq 0 ]
