#!/usr/bin/env python3
"""Faults of the network by `skeinctl chaos` against a real cluster: no client notices more than a pause, and no rule is left."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import binaries_from_argv, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from emulated import emulated_model  # noqa: E402  pylint: disable=wrong-import-position
from supervised import Supervised  # noqa: E402  pylint: disable=wrong-import-position

STREAMS = 6
LOAD = ["--streams=%d" % STREAMS, "--prompts=8", "--prompt-tokens=24", "--tokens=200", "--stop-s=1"]
SCENARIOS = ["partition-data-decode", "loss-decode", "partition-control-prefill"]


def the_network_breaks_and_no_client_fails():
    with tempfile.TemporaryDirectory() as folder, \
         Supervised(binaries_from_argv(), emulated_model(folder, "deploy/models/fledgling"), worker_flags=["--device=emulated"],
                    decode_flags=["--emulated-decode-step-us=10000"],
                    orchestrator_flags=["--state-dir=" + os.path.join(folder, "state")]) as cluster:
        code, result = cluster.chaos(*SCENARIOS, *LOAD)
        assert code == 0 and result, (code, result)
        rows = result["rows"]
        assert [row["scenario"] for row in rows] == ["none", *SCENARIOS], rows
        for row in rows[1:]:
            if row["skipped"]:  # the machine, or another run, does not allow it
                print("%s was not played: %s" % (row["scenario"], row["skipped"]))
                continue
            assert row["good"] and row["running"] >= STREAMS and row["recovery_s"] is not None, row
            for column in ("failed", "wrong", "lost", "doubled", "hung"):
                assert row[column] == 0, (column, row)
        if not any(row["skipped"] for row in rows):
            rules = subprocess.run(["iptables", "--table=raw", "--list-rules"], stdout=subprocess.PIPE, text=True, check=True).stdout
            assert "SKEIN_CHAOS" not in rules, rules
        cluster.assert_idle_and_whole()


if __name__ == "__main__":
    run_tests(the_network_breaks_and_no_client_fails)
