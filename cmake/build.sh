#!/usr/bin/env bash
# build.sh [--caller-says-why] FOLDER [options of cmake --build]: builds, and says on the standard error how far it is and
# how long it will take: on a terminal in a line that changes, elsewhere in a line every 20 s. Where there is nothing to
# do it says nothing. FOLDER/build.log has all that the compilers say; if the build fails, the first error is printed
# (unless the caller does that).
set -uo pipefail
quiet=
[ "$1" != --caller-says-why ] || { quiet=1 && shift; }
log=$1/build.log
every=${NORMA_BUILD_SAYS:-20} rewrite=  # the other number of seconds is for tests
[ ! -t 2 ] || { every=1 rewrite=$'\r\033[K'; }
shown=$SECONDS rest='' error=() complete='' warnings=0

left() {  # left DONE ALL: the time that the rest takes if it goes on like this
  [ "$1" -gt 0 ] || return 0
  local seconds=$((SECONDS * ($2 - $1) / $1))
  if [ "$seconds" -lt 100 ]; then
    echo ", about $((seconds / 10 * 10 + 10)) s left"
  else
    echo ", about $(((seconds + 59) / 60)) min left"
  fi
}

take() {  # take LINE: one that the build prints
  printf '%s\n' "$1" >&4
  if [[ $1 =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
    count=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]}
    [ ${#error[@]} -eq 0 ] || complete=1
  elif [[ $1 == *': warning: '* ]]; then
    warnings=$((warnings + 1))
  elif [ -z "$complete" ] && [ ${#error[@]} -lt 6 ]; then  # an error and five lines behind it
    [ ${#error[@]} -eq 0 ] && ! [[ $1 =~ (^|[ :])error:\ |undefined\ reference|multiple\ definition|^CMake\ Error ]] ||
      error+=("$1")
  fi
}

count=0 of=0
exec 3< <(exec cmake --build "$@" 2>&1)
builder=$!
exec 4>"$log"
while true; do
  if IFS= read -r -t 1 -u 3 line; then
    take "$rest$line"
    rest=
  elif [ $? -gt 128 ]; then  # nothing more within a second
    rest+=$line
  else
    break
  fi
  if [ $((SECONDS - shown)) -ge "$every" ] && [ "$of" -gt 1 ]; then
    shown=$SECONDS
    printf '%s' "${rewrite}run: building, $count of $of$(left "$count" "$of")${rewrite:+ }" >&2
    [ -n "$rewrite" ] || echo >&2
  fi
done
wait "$builder"
code=$?
printf '%s' "$rewrite" >&2
if [ "$code" -ne 0 ] && [ "$code" -lt 128 ] && [ -z "$quiet" ]; then
  [ ${#error[@]} -gt 0 ] || mapfile -t error < <(tail -n 6 "$log")
  printf '%s\n' "${error[@]}" "run: the build failed; all that the compilers say: $log" >&2
elif [ "$warnings" -gt 0 ]; then
  echo "run: warnings of the compilers: $warnings; see $log" >&2
fi
exit "$code"
