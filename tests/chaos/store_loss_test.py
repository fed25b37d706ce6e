#!/usr/bin/env python3
"""The store of the orchestrators is lost: its folder is removed, its disk is full, or etcd stops or dies. Streams go on, and new requests
are answered as soon as docs/high_availability.md promises: there is never a second leader.

The full disk is a small tmpfs in a mount namespace of this test; where the machine allows none, that case is skipped.
"""
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import Process, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from standbys import (ORCHESTRATORS, Standbys, new_requests_succeed, nobody_notices,  # noqa: E402  pylint: disable=wrong-import-position
                      run_streams)

IN_NAMESPACE = "SKEIN_TEST_MOUNTS"


class OnASmallDisk(Standbys):
    """The folder of the store is a file system of its own."""

    def start(self):
        os.makedirs(self.state_dir)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", self.state_dir], check=True)
        super().start()

    def fill(self):
        """Takes what is left; how many bytes that was."""
        taken = 0
        with open(os.path.join(self.state_dir, "ballast"), "ab", buffering=0) as ballast:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        taken += ballast.write(b"x" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC, error
        return taken

    def free(self):
        os.remove(os.path.join(self.state_dir, "ballast"))


def one_leads(cluster):
    cluster.until(lambda: sum(cluster.leads(name) for name in ORCHESTRATORS) == 1, "one leads")


def a_removed_store_has_no_second_leader():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder) as cluster:
        _, other = cluster.roles()

        def remove():
            shutil.rmtree(cluster.state_dir)
            # The next process makes a new file; those that run must not go on with the one that is gone.
            cluster.kill(other)
            cluster.start_orchestrator(other)
            one_leads(cluster)
        nobody_notices(cluster, remove)
        cluster.await_whole()
        leader, _ = cluster.roles()
        cluster.kill(leader)
        new_requests_succeed(cluster)
        cluster.start_orchestrator(leader)
        cluster.await_whole()


def a_full_disk_costs_no_leadership_and_the_next_leader_is_found():
    if not os.environ.get(IN_NAMESPACE):
        return "skip: this machine allows no mounts in a namespace (unshare, as root or by a user namespace)"
    with tempfile.TemporaryDirectory() as folder, OnASmallDisk(folder) as cluster:
        leader, other = cluster.roles()

        def fill():
            assert cluster.fill() > 0
            cluster.kill(leader)
            new_requests_succeed(cluster)  # so the other one has written that it leads
            assert cluster.leads(other)
            assert cluster.fill() == 0, "the disk was not full all the time"
        nobody_notices(cluster, fill)
        cluster.start_orchestrator(leader)
        cluster.await_whole()
        cluster.free()
        cluster.await_whole()
    return None


def without_etcd_streams_go_on_and_new_requests_wait():
    if shutil.which("etcd") is None:
        return "skip: there is no etcd on this machine (tools/install_deps etcd)"
    with tempfile.TemporaryDirectory() as folder, Standbys(folder, store="etcd") as cluster:
        def nobody_leads():
            return not any(cluster.leads(name) for name in ORCHESTRATORS)

        def stop():
            cluster.processes["etcd"].popen.send_signal(signal.SIGSTOP)
            cluster.until(nobody_leads, "the leader has stepped down")
            cluster.processes["etcd"].popen.send_signal(signal.SIGCONT)
        nobody_notices(cluster, stop)

        def kill():
            etcd = cluster.processes["etcd"]
            with open("/proc/%d/cmdline" % etcd.popen.pid, encoding="utf-8") as file:
                command = file.read().split("\0")[:-1]
            cluster.kill("etcd")
            cluster.until(nobody_leads, "the leader has stepped down")
            cluster.processes["etcd"] = Process("etcd", command, cluster.folder)
        nobody_notices(cluster, kill)
        cluster.await_whole()

        # For good: what runs ends as it should, although nobody leads.
        streams = run_streams(cluster)
        cluster.kill("etcd")
        cluster.until(nobody_leads, "the leader has stepped down")
        for stream in streams:
            stream.check()
    return None


def in_a_namespace():
    """Runs this test again where it may mount, if the machine allows it."""
    for how in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        command = ["unshare", *how, "--"]
        probe = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], stderr=subprocess.DEVNULL, check=False)
        if probe.returncode == 0:
            os.environ[IN_NAMESPACE] = "1"
            os.execvp("unshare", [*command, sys.executable, *sys.argv])


if __name__ == "__main__":
    if not os.environ.get(IN_NAMESPACE):
        in_a_namespace()
    run_tests(a_removed_store_has_no_second_leader,
              a_full_disk_costs_no_leadership_and_the_next_leader_is_found,
              without_etcd_streams_go_on_and_new_requests_wait)
