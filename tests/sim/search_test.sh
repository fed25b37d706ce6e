#!/bin/bash
# What the search answers to its flags: 0 when no seed fails, 2 when it would search nothing. The same of a test over seeds.
search=$1 test=$2
failed=0
run() {
  local wanted=$1 status=0
  shift
  "$@" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" || status=$?
  if [ $status -ne "$wanted" ]; then
    echo "$*: exit status $status, not $wanted: $(cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err")"
    failed=1
  fi
}
expect() { run "$1" "$search" "${@:2}"; }

expect 0 --kind=alone --seeds=1
grep -q '^1 worlds' "$TEST_TMPDIR/out" || { echo "--seeds=1 searched: $(cat "$TEST_TMPDIR/out")"; failed=1; }
expect 2 --kind=typo --seeds=1
grep -q 'kind=typo' "$TEST_TMPDIR/err" || { echo "--kind=typo is not told: $(cat "$TEST_TMPDIR/err")"; failed=1; }
expect 2 --kind=alone --seeds=abc
expect 2 --kind=alone --seeds=1x
expect 2 --kind=alone --seeds=
expect 2 --kind=alone --seeds=0
expect 2 --kind=alone --seeds=1 --first_seed=-1
expect 2 --kind= --seeds=1
expect 2 --seed=1

run 0 "$test" --seed=1
grep -q '^seed 1: ok' "$TEST_TMPDIR/out" || { echo "--seed=1 ran: $(cat "$TEST_TMPDIR/out")"; failed=1; }
run 2 "$test" --sed=1
grep -q 'sed=1: no such flag' "$TEST_TMPDIR/err" || { echo "--sed=1 is not told: $(cat "$TEST_TMPDIR/err")"; failed=1; }
run 2 "$test" --seed=
run 2 "$test" --first_seed=1x
run 2 "$test" --plans=abc
exit $failed
