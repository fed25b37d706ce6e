#!/usr/bin/env python3
"""Batch jobs while processes are killed: each line is answered exactly once, with the tokens that the model gives it alone."""
import os
import signal
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from batches import Job, lines_of  # noqa: E402  pylint: disable=wrong-import-position
from cluster import binaries_from_argv, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from emulated import complete, emulated_model  # noqa: E402  pylint: disable=wrong-import-position
from supervised import Supervised  # noqa: E402  pylint: disable=wrong-import-position

FLEDGLING = "deploy/models/fledgling"
LINES = 240
ROLES = ("decode-0", "prefill-0", "router", "orchestrator")


def cluster_of(folder):
    return Supervised(binaries_from_argv(), emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated"],
                      decode_flags=["--emulated-decode-step-us=5000"],
                      orchestrator_flags=["--state-dir=" + os.path.join(folder, "state")])


def kill(cluster, *names):
    for name in names:
        cluster.processes[name].popen.send_signal(signal.SIGKILL)


def each_line_is_answered_once_while_every_role_is_killed():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        job = Job([cluster.url], lines_of(cluster.name, LINES), cluster.restart_ended)
        job.submit()
        for step, name in enumerate(ROLES):
            job.await_completed((step + 1) * LINES // 8, 60)
            kill(cluster, name)
        job.check(job.await_end(120))
        assert cluster.restarts >= len(ROLES), cluster.restarts
        cluster.restart_ended(everyone=True)
        cluster.await_ready()
        cluster.assert_idle_and_whole()


def a_job_survives_the_death_of_the_whole_cluster():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        job = Job([cluster.url], lines_of(cluster.name, LINES))
        job.submit()
        for part in (1, 2):
            before = job.await_completed(part * LINES // 4, 60)["request_counts"]["completed"]
            kill(cluster, *cluster.processes)
            for process in cluster.processes.values():
                process.popen.wait()
            cluster.restart_ended(everyone=True)
            cluster.await_ready()
            assert job.state()["request_counts"]["completed"] >= before
        job.check(job.await_end(120))


def online_requests_are_answered_while_a_job_runs():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        job = Job([cluster.url], lines_of(cluster.name, LINES))
        job.submit()
        job.await_completed(1, 60)
        for i in range(8):
            complete(cluster, [11 + i, 12, 13], 20)
        job.check(job.await_end(120))


if __name__ == "__main__":
    run_tests(each_line_is_answered_once_while_every_role_is_killed,
              a_job_survives_the_death_of_the_whole_cluster,
              online_requests_are_answered_while_a_job_runs)
