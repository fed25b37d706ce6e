#!/usr/bin/env python3
"""tests/sim/totals: a search goes on where the log ends, its counts are added up, and what failed is told."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Prints as tests/sim:search does: two worlds a seed; seed 7 fails; from 30 on it crashes.
SEARCH = """#!/usr/bin/env python3
import sys
flags = dict(arg[2:].split("=") for arg in sys.argv[1:])
first, seeds = int(flags["first_seed"]), int(flags["seeds"])
if first >= 30:
    sys.exit(139)
failed = first <= 7 < first + seeds
if failed:
    print("alone 7  # request 3: wrong token 4 at 2")
print("%d worlds: 10 virtual seconds with a request in flight, 20 requests, 19 finished, 3 of 4 faults met a running request, "
      "500 events, 250 a second" % (2 * seeds))
sys.exit(1 if failed else 0)
"""


def expect(folder, status, arguments, *parts):
    done = subprocess.run([os.path.join(HERE, "totals"), "--log", os.path.join(folder, "sub", "log"), "--search",
                           os.path.join(folder, "search")] + arguments,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != status or not all(part in done.stdout for part in parts):
        sys.exit("%s: not %d and %r:\n%d\n%s" % (arguments, status, parts, done.returncode, done.stdout))


def log_of(folder):
    with open(os.path.join(folder, "sub", "log"), encoding="utf-8") as log:
        return log.read()


with tempfile.TemporaryDirectory() as work:
    with open(os.path.join(work, "search"), "w", encoding="utf-8") as file:
        file.write(SEARCH)
    os.chmod(os.path.join(work, "search"), 0o755)
    expect(work, 0, [], "0 worlds: 0 virtual seconds", "0 slices of 0 commits; 0 worlds failed")
    # It ends at the slice that crashes, which is not in the log.
    expect(work, 1, ["--minutes", "9", "--first-seed", "1", "--seeds", "10"], "alone 7  # request 3: wrong token 4 at 2",
           "first_seed=31", "exit status 139",
           "60 worlds: 30 virtual seconds with a request in flight, 60 requests, 57 finished, 9 of 12 faults met",
           "3 slices of 1 commits; 1 worlds failed")
    whole = log_of(work)
    seeds = [json.loads(line)["first_seed"] for line in whole.splitlines()]
    if seeds != [1, 11, 21]:
        sys.exit("the slices began at %s" % seeds)
    # The slice whose line was cut off is run again; what failed before is no failure of this search.
    with open(os.path.join(work, "sub", "log"), "w", encoding="utf-8") as file:
        file.write(whole[:-9])
    expect(work, 0, [], "40 worlds", "2 slices")
    expect(work, 1, ["--minutes", "9", "--seeds", "5", "--jobs", "2"], "first_seed=31", "60 worlds", "4 slices")
    if [json.loads(line)["first_seed"] for line in log_of(work).splitlines()] != [1, 11, 21, 26]:
        sys.exit("the log is %s" % log_of(work))
    # Another kind of world begins anew.
    expect(work, 1, ["--minutes", "9", "--kind", "long", "--first-seed", "25", "--seeds", "5"], "70 worlds", "5 slices")
    expect(work, 2, ["--seeds", "0"], "at least 1")
