#!/usr/bin/env python3
"""tests/sim/coverage: which logs and rules it passes, and what it says of those that it fails."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = ["sim_test", "sp_sim_test", "small_pools_test", "long_sim_test", "plants_test", "failed_seeds_test"]
STATISTICS = ("1 worlds: %d virtual seconds with a request in flight, 2 requests, 1 finished, 1 of 1 faults met a running "
              "request, 30 events, 10 a second\n")
# Two states; Tick is of no request, Never comes nowhere, and Done never in "queued" and "none".
FIRST = "events core: Tick Come Done Never\nreached core queued: Come=3\nreached core none:\nreached core not-of-one: Tick=9\n"
SECOND = ("events core: Tick Come Done Never\nreached core queued:\nreached core running: Come=1 Done=2\nreached core none: "
          "Come=2\nreached core not-of-one:\n")
RULES = "# a comment\ncore any Never nobody sends it\ncore queued,none Do* it has not begun\n"


def call(rules, seconds=12000, logs=(FIRST, SECOND), tests=TESTS):
    """Exit status, output, and what was added to the summary."""
    with tempfile.TemporaryDirectory() as folder:
        for number, test in enumerate(tests):
            shard = os.path.join(folder, "logs", test, "shard_1_of_1")
            os.makedirs(shard)
            with open(os.path.join(shard, "test.log"), "w", encoding="utf-8") as log:
                log.write(STATISTICS % seconds + logs[number] if number < len(logs) else "")
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


expect(call(RULES), 0, "passed", "24000 virtual seconds", "3 of 7 (state, event) pairs were never reached",
       "reached 1 times: core running Come")
expect(call(RULES.replace("queued,none", "queued")), 1, "failed", "no rule of tests/sim/unreached.txt says why: core none Done")
expect(call(RULES.replace("core any", "core queued")), 1, "failed", "says why: core any Never")
expect(call(RULES.replace("queued,none Do*", "* Do*")), 1, "failed",
       "reached 2 times, so the rule is wrong: core running Done: it has not begun")
expect(call(RULES.replace("queued,none Do* ", "* Do* rare: ")), 0, "passed")
expect(call(RULES + "core running Gone nobody needs it\n"), 1, "failed", "a rule that nothing needs: core running Gone")
expect(call(RULES, seconds=9999), 1, "failed", "19998 virtual seconds with a request in flight; there must be 20000")
expect(call(RULES, tests=TESTS[:-1]), 0, "skipped", "no log of failed_seeds_test")
