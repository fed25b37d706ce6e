#!/usr/bin/env python3
"""`skeinctl chaos` finds bugs that are planted into real processes (scheduler/base/plant.h): it calls them by their kind, and fails.

Only builds that are not optimised can have planted bugs.
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import binaries_from_argv, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from emulated import emulated_model  # noqa: E402  pylint: disable=wrong-import-position
from supervised import Supervised  # noqa: E402  pylint: disable=wrong-import-position

FLEDGLING = "deploy/models/fledgling"
PLANTED = "SKEIN_PLANTED_BUG"
WORSE = 3  # skeinctl's exit code for answers that are not as they must be
# Two streams of each kind, all on the only decode-worker: its death meets each kind.
LOAD = ["--streams=16", "--prompts=8", "--prompt-tokens=24", "--tokens=200"]


def planted_binaries():
    """All binaries; router and decode-worker are those that take a planted bug."""
    planted = {os.path.basename(path)[len("planted_"):]: os.path.abspath(path) for path in sys.argv[1:]
               if os.path.basename(path).startswith("planted_")}
    assert sorted(planted) == ["decode_worker", "router"], planted
    return {**binaries_from_argv(), **planted}


def takes_none(binary):
    done = subprocess.run([binary, "--version"], env={**os.environ, PLANTED: "none"}, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    return "optimised" in done.stderr


def killed_decode(bug):
    """The rows of a load without a fault, and of one whose decode-worker is killed, in a cluster with this bug (None: without).
    A string says why there are none."""
    binaries = planted_binaries()
    if takes_none(binaries["router"]):
        return "skip: this build is optimised, and has no planted bugs"
    with tempfile.TemporaryDirectory() as folder:
        cluster = Supervised(binaries, emulated_model(folder, FLEDGLING), prefill=1, decode=1, worker_flags=["--device=emulated"],
                             decode_flags=["--emulated-decode-step-us=10000"],
                             orchestrator_flags=["--state-dir=" + os.path.join(folder, "state")])
        if bug:
            cluster.environments.update({name: {PLANTED: bug} for name in ("router", "decode-0")})
        with cluster:
            code, result = cluster.chaos("kill-decode", *LOAD)
    calm, killed = result["rows"]
    assert calm["good"], calm  # what is planted shows only where a stream resumes
    assert killed["running"] >= 16 and (code == WORSE) == (not killed["good"]), (code, killed)
    return killed


def bad_answers(row):
    return {kind for kind, counts in row["kinds"].items() if counts["wrong"] + counts["lost"] + counts["doubled"] > 0}


def a_resume_at_a_wrong_index_is_caught():
    row = killed_decode("resume_at_wrong_index")
    if isinstance(row, str):
        return row
    assert not row["good"] and row["doubled"] > 0, row
    assert len(bad_answers(row)) > 2, row  # whatever the kind of request
    return None


def penalties_that_forget_the_sent_tokens_are_caught():
    row = killed_decode("sent_tokens_forgotten")
    if isinstance(row, str):
        return row
    assert not row["good"] and bad_answers(row) == {"penalties"}, row
    assert row["kinds"]["penalties"]["wrong"] > 0, row
    return None


def nothing_is_caught_where_nothing_is_planted():
    row = killed_decode(None)
    if isinstance(row, str):
        return row
    assert row["good"] and not bad_answers(row), row
    return None


if __name__ == "__main__":
    run_tests(a_resume_at_a_wrong_index_is_caught,
              penalties_that_forget_the_sent_tokens_are_caught,
              nothing_is_caught_where_nothing_is_planted)
