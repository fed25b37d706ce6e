#!/bin/bash
# What the search answers to its flags: 0 when no seed fails, 2 when it would search nothing.
search=$1
failed=0
expect() {
  local wanted=$1 status=0
  shift
  "$search" "$@" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" || status=$?
  if [ $status -ne "$wanted" ]; then
    echo "search $*: exit status $status, not $wanted: $(cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err")"
    failed=1
  fi
}

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
exit $failed
