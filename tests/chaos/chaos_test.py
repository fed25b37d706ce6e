#!/usr/bin/env python3
"""`skeinctl chaos` against a real cluster of emulated workers: no fault is noticed by a client, and the table says so."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import binaries_from_argv, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from emulated import emulated_model  # noqa: E402  pylint: disable=wrong-import-position
from supervised import Supervised  # noqa: E402  pylint: disable=wrong-import-position
from tls import TlsCluster  # noqa: E402  pylint: disable=wrong-import-position

FLEDGLING = "deploy/models/fledgling"
STREAMS = 6
LOAD = ["--streams=%d" % STREAMS, "--prompts=8", "--prompt-tokens=24", "--tokens=200", "--stop-s=1"]


class InTls(TlsCluster, Supervised):
    """With API keys, too."""

    def before_start(self):
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("sk-chaos\n")
        os.chmod(keys, 0o600)
        self.flags["router"] = ["--api-key-file=" + keys]
        self.environments["skeinctl"]["SKEIN_API_KEY"] = "sk-chaos"


def cluster_of(folder, kind=Supervised, **more):
    return kind(binaries_from_argv(), emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated"],
                      decode_flags=["--emulated-decode-step-us=10000", "--drain-grace-s=1"],
                      orchestrator_flags=["--state-dir=" + os.path.join(folder, "state")], **more)


def assert_unnoticed(code, result, scenarios):
    assert code == 0 and result, (code, result)
    rows = {row["scenario"]: row for row in result["rows"]}
    assert list(rows) == ["none", *scenarios], list(rows)
    for name, row in rows.items():
        assert row["skipped"] is None and row["good"], row
        assert row["running"] >= STREAMS, "%s met no running streams: %s" % (name, row)
        assert row["requests"] > STREAMS and row["recovery_s"] is not None, row
        for column in ("failed", "wrong", "near_ties", "lost", "doubled", "hung"):
            assert row[column] == 0, (name, column, row)
        assert sum(counts["requests"] for counts in row["kinds"].values()) == row["requests"], row
    assert set(rows["none"]["kinds"]) >= {"greedy", "sampled", "choices", "logprobs", "stop"}, rows["none"]["kinds"]


def workers_and_orchestrator_break_and_no_client_notices():
    scenarios = ["kill-decode", "stop-decode", "term-decode", "kill-prefill", "term-prefill", "kill-orchestrator",
                 "scale-in-decode"]
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        assert_unnoticed(*cluster.chaos(*scenarios, *LOAD), scenarios)
        assert cluster.restarts >= 5, cluster.restarts
        cluster.assert_idle_and_whole()


def faults_in_the_midst_of_handoffs_and_switches_are_not_noticed():
    scenarios = ["handoff-kill-decode", "handoff-stop-decode", "handoff-kill-prefill", "handoff-term-prefill", "handoff-kill-orchestrator",
                 "bind-kill-decode", "bind-stop-decode", "release-kill-decode", "release-kill-orchestrator"]
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        assert_unnoticed(*cluster.chaos(*scenarios, "--handoff-prompt-tokens=20000", *LOAD), scenarios)
        cluster.assert_idle_and_whole()


def processes_break_in_the_midst_of_a_batch_and_each_line_is_answered_once():
    scenarios, lines = ["batch-kill-decode", "batch-stop-decode", "batch-term-prefill", "batch-kill-orchestrator"], 150
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        code, result = cluster.chaos(*scenarios, "--batch-lines=%d" % lines, *LOAD)
        assert_unnoticed(code, result, scenarios)
        for row in result["rows"][1:]:
            assert row["kinds"]["batch"]["requests"] == lines, row["kinds"]
        cluster.assert_idle_and_whole()


def a_killed_router_fails_its_own_streams_and_no_answer_is_wrong():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, prefill=1, decode=1) as cluster:
        code, result = cluster.chaos("kill-router", *LOAD)
        assert code == 0, (code, result)
        row = result["rows"][1]
        assert row["clients_may_fail"] and row["failed"] == row["excused"] >= STREAMS, row
        assert row["wrong"] == row["lost"] == row["doubled"] == row["hung"] == 0, row
        cluster.assert_idle_and_whole()


def a_cluster_in_tls_with_keys_is_measured_and_broken():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, InTls) as cluster:
        bench = [cluster.binaries["skeinctl"], "bench", "--url", cluster.url, "--requests=4", "--input-tokens=16", "--output-tokens=8"]
        environment = {**os.environ, **cluster.environments["skeinctl"]}
        subprocess.run(bench, check=True, env=environment)
        done = subprocess.run([*bench, "--api-key=wrong"], env=environment, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1 and "was answered 401: The API key" in done.stderr, done
        assert_unnoticed(*cluster.chaos("kill-decode", *LOAD), ["kill-decode"])
        cluster.assert_idle_and_whole()


def nothing_is_broken_unless_somebody_agrees():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, prefill=1, decode=1) as cluster:
        done = subprocess.run([cluster.binaries["skeinctl"], "chaos", "--orchestrator", cluster.orchestrator, "kill-decode"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and "nothing was broken" in done.stderr and not done.stdout, done
        for name, process in cluster.processes.items():
            assert process.popen.poll() is None, name
            assert ", process %d\n" % process.popen.pid in done.stderr, (name, done.stderr)


if __name__ == "__main__":
    run_tests(workers_and_orchestrator_break_and_no_client_notices,
              faults_in_the_midst_of_handoffs_and_switches_are_not_noticed,
              processes_break_in_the_midst_of_a_batch_and_each_line_is_answered_once,
              a_killed_router_fails_its_own_streams_and_no_answer_is_wrong, a_cluster_in_tls_with_keys_is_measured_and_broken,
              nothing_is_broken_unless_somebody_agrees)
