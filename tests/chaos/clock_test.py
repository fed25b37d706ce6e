#!/usr/bin/env python3
"""The wall clock of one process after another jumps by an hour, forth and back, while streams run. Nobody notices: leases, deadlines
and timers rest on clocks that nobody can set.

Each process has a wall clock of its own, by libfaketime; its monotonic clock and its boot time are the host's.
"""
import email.utils
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import binaries_from_argv, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from standbys import Standbys, new_requests_succeed, nobody_notices  # noqa: E402  pylint: disable=wrong-import-position

LIBRARY = "/usr/lib/%s-linux-gnu/faketime/libfaketimeMT.so.1" % os.uname().machine
HOUR_S = 3600
LEASE_S = 30  # only a jump could end it


def faked(clock):
    return {"LD_PRELOAD": LIBRARY, "FAKETIME_TIMESTAMP_FILE": clock, "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}


class Clocks(Standbys):
    def run(self, name, binary, arguments):
        self.set_clock(name, 0)
        if binary == "orchestrator":
            arguments = [*arguments, "--instance-lease-s=%d" % LEASE_S]
        before = dict(os.environ)
        os.environ.update(faked(self.clock(name)))
        try:
            super().run(name, binary, arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def clock(self, name):
        return os.path.join(self.folder, name + ".clock")

    def set_clock(self, name, seconds):
        draft = self.clock(name) + ".draft"
        with open(draft, "w", encoding="utf-8") as file:
            file.write("%+d\n" % seconds)
        os.rename(draft, self.clock(name))

    def ahead_s(self, name):
        """How far the process's wall clock is ahead of the host's: its pages tell their date."""
        with urllib.request.urlopen(self.processes[name].admin() + "/livez", timeout=60) as answer:
            return email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()

    def leaderships(self):
        return sum(self.metric(self.processes[name], "skein_orchestrator_leaderships_total") for name in ("orchestrator", "standby"))


def why_not():
    if not os.path.exists(LIBRARY):
        return "skip: there is no libfaketime on this machine (tools/install_deps)"
    with tempfile.TemporaryDirectory() as folder:
        clock = os.path.join(folder, "clock")
        with open(clock, "w", encoding="utf-8") as file:
            file.write("+0\n")
        done = subprocess.run([binaries_from_argv()["orchestrator"], "--version"], env={**os.environ, **faked(clock)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return None if done.returncode == 0 else "skip: these binaries do not run with libfaketime: %r" % done.stdout[-200:]


def wall_clocks_jump_and_nobody_notices():
    if reason := why_not():
        return reason
    with tempfile.TemporaryDirectory() as folder, Clocks(folder, lease_s=LEASE_S) as cluster:
        leaderships = cluster.leaderships()

        def jump_each(seconds):
            for name in cluster.processes:
                cluster.set_clock(name, seconds)
                assert abs(cluster.ahead_s(name) - seconds) < HOUR_S / 2, name
                new_requests_succeed(cluster)
        for seconds in (HOUR_S, -HOUR_S, 0):
            nobody_notices(cluster, lambda seconds=seconds: jump_each(seconds))
        assert cluster.leaderships() == leaderships, "a lease has ended"
        cluster.await_whole()
    return None


if __name__ == "__main__":
    run_tests(wall_clocks_jump_and_nobody_notices)
