#!/usr/bin/env python3
"""tests/sim/coverage: which logs and rules it passes, and what it says of those that it fails."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LOADER = importlib.machinery.SourceFileLoader("coverage", os.path.join(HERE, "coverage"))
COVERAGE = importlib.util.module_from_spec(importlib.util.spec_from_loader("coverage", LOADER))
sys.dont_write_bytecode = True
LOADER.exec_module(COVERAGE)
TESTS = COVERAGE.tests()
STATISTICS = ("1 worlds: %d virtual seconds with a request in flight, 2 requests, 1 finished, 1 of 1 faults met a running "
              "request, 30 events, 10 a second\n")
# Two states; Tick is of no request, Never comes nowhere, and Done never in "queued" and "none".
FIRST = ("events core: Tick Come Done Never\nentered core: running=1\nreached core queued: Come=3\nreached core none:\n"
         "reached core not-of-one: Tick=9\n")
SECOND = ("events core: Tick Come Done Never\nreached core queued:\nreached core running: Come=1 Done=2\nreached core none: "
          "Come=2\nreached core not-of-one:\n")
RULES = "# a comment\ncore any Never nobody sends it\ncore queued,none Do* it has not begun\n"


def write_log(folder, test, shard, text, when_s):
    path = os.path.join(folder, "logs", test, shard, "test.log")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as log:
        log.write(text)
    os.utime(path, (when_s, when_s))


def call(rules, seconds=12000, logs=(FIRST, SECOND), tests=TESTS, old=()):
    """Exit status, output, and what was added to the summary. `old`: folders with a log of an earlier run of the first test."""
    with tempfile.TemporaryDirectory() as folder:
        for number, test in enumerate(tests):
            text = STATISTICS % seconds + logs[number] if number < len(logs) else ""
            write_log(folder, test, "shard_1_of_2", text, 2000)
            write_log(folder, test, "shard_2_of_2", "", 1000)  # a cached one may be older
        for shard in old:
            write_log(folder, tests[0], shard, STATISTICS % seconds + SECOND, 1500)
        with open(os.path.join(folder, "rules"), "w", encoding="utf-8") as file:
            file.write(rules)
        summary = os.path.join(folder, "summary")
        done = subprocess.run([os.path.join(HERE, "coverage"), "--logs", os.path.join(folder, "logs"), "--rules",
                               os.path.join(folder, "rules"), "--summary", summary, "--rare", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        with open(summary, encoding="utf-8") as added:
            return done.returncode, done.stdout, added.read().split()[-1]


def expect(result, status, word, *parts):
    returncode, output, added = result
    if returncode != status or added != word or not all(part in output for part in parts):
        sys.exit("not %d, %s and %r:\n%d, %s\n%s" % (status, word, parts, returncode, added, output))


if len(TESTS) < 6 or "plants_test" not in TESTS or "search_test" in TESTS:
    sys.exit("the simulator's tests are not %s" % TESTS)
expect(call(RULES), 0, "passed", "24000 virtual seconds", "3 of 7 (state, event) pairs were never reached",
       "reached 1 times: core running Come")
# Logs of earlier runs with other shards, repeated, or with none.
expect(call(RULES, old=("", "shard_1_of_3", "run_1_of_2", "shard_1_of_2_run_1_of_2")), 0, "passed", "2 worlds: 24000 virtual")
expect(call(RULES.replace("queued,none", "queued")), 1, "failed", "no rule of tests/sim/unreached.txt says why: core none Done")
expect(call(RULES.replace("core any", "core queued")), 1, "failed", "says why: core any Never")
expect(call(RULES.replace("queued,none Do*", "* Do*")), 1, "failed",
       "reached 2 times, so the rule is wrong: core running Done: it has not begun")
expect(call(RULES.replace("queued,none Do* ", "* Do* rare: ")), 0, "passed")
# A state that no request is ever in: a rule for each of its events is not enough.
DEAD = FIRST.replace("reached core none:", "reached core stuck:\nreached core none:")
expect(call(RULES + "core stuck * rare: it is short\n", logs=(DEAD, SECOND)), 1, "failed",
       "no rule of tests/sim/unreached.txt says why: core stuck entry")
expect(call(RULES + "core stuck * rare: it is short\ncore stuck entry it is for later\n", logs=(DEAD, SECOND)), 0, "passed")
expect(call(RULES + "core queued entry it is for later\n"), 1, "failed", "so the rule is wrong: core queued entry")
expect(call(RULES + "core stuck * rare: it is short\n", logs=(DEAD.replace("running=1", "running=1 stuck=2"), SECOND)), 0, "passed")
expect(call(RULES + "core running Come it is needed by nobody\n"), 1, "failed", "the rule is wrong: core running Come",
       "a rule that nothing needs: core running Come")
expect(call(RULES + "core running Come rare: it may be late\n"), 0, "passed")
for renamed in ("core running Gone it has", "core running Gone rare: it has", "core walking Come rare: it has"):
    expect(call(RULES + renamed + " another name now\n"), 1, "failed", "a rule about nothing that there is: " + renamed)
expect(call(RULES + "core running Come\n"), 1, "failed", "a rule without a reason: core running Come")
expect(call(RULES, seconds=9999), 1, "failed", "19998 virtual seconds with a request in flight; there must be 20000")
expect(call(RULES, tests=TESTS[:-1]), 0, "skipped", "no log of " + TESTS[-1])
