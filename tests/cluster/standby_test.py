#!/usr/bin/env python3
"""Two orchestrators and two routers: the leader is killed, stopped, or leaves. No running stream notices, what is submitted
meanwhile is answered, and the former leader does no harm when it comes back."""
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import run_tests  # noqa: E402
from standbys import Standbys, new_requests_succeed, run_streams  # noqa: E402


def a_fail_over_costs_no_request(cluster, lose):
    """`lose` ends, or stops, the orchestrator that leads, which is then started again unless it still runs."""
    cluster.await_whole()
    leader, other = cluster.roles()
    streams = run_streams(cluster)
    lose(leader)
    new_requests_succeed(cluster)
    assert cluster.leads(other)
    for stream in streams:
        stream.check()
    if leader in cluster.processes:
        cluster.processes[leader].popen.send_signal(signal.SIGCONT)
    else:
        cluster.start_orchestrator(leader)
    cluster.until(lambda: cluster.state(leader) == "standby", "the former leader stands by")
    assert cluster.leads(other), "it took the leadership back"
    new_requests_succeed(cluster)
    cluster.await_whole()


def a_killed_leader_is_succeeded():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder) as cluster:
        for _ in range(2):  # there and back
            a_fail_over_costs_no_request(cluster, cluster.kill)


def a_stopped_leader_is_succeeded_and_fenced():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder) as cluster:
        a_fail_over_costs_no_request(cluster, lambda name: cluster.processes[name].popen.send_signal(signal.SIGSTOP))


def a_leader_that_ends_resigns():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder) as cluster:
        def end(name):
            problem = cluster.end(name)
            assert problem == "", problem
        a_fail_over_costs_no_request(cluster, end)


def a_standby_may_be_lost():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder) as cluster:
        cluster.await_whole()
        leader, other = cluster.roles()
        streams = run_streams(cluster)
        cluster.kill(other)
        new_requests_succeed(cluster)
        for stream in streams:
            stream.check()
        cluster.start_orchestrator(other)
        cluster.await_whole()
        assert cluster.leads(leader)


def the_same_with_etcd():
    if shutil.which("etcd") is None:
        return "skip: there is no etcd on this machine (tools/install_deps etcd)"
    with tempfile.TemporaryDirectory() as folder, Standbys(folder, store="etcd") as cluster:
        a_fail_over_costs_no_request(cluster, cluster.kill)
    return None


if __name__ == "__main__":
    run_tests(a_killed_leader_is_succeeded,
              a_stopped_leader_is_succeeded_and_fenced,
              a_leader_that_ends_resigns,
              a_standby_may_be_lost,
              the_same_with_etcd)
