"""An etcd of several members on this machine: Debian's program, each member with its own ports and folder.

    members = EtcdMembers(cluster.folder, 3, TUNED)
    members.start(0)
    members.endpoints()     # for --etcd
"""
import json
import os
import shutil
import signal
import urllib.request

from cluster import Process, free_ports

TUNED = ("--heartbeat-interval=50", "--election-timeout=500")  # as deploy/kubernetes/components/standbys has them
ANSWER_S = 5


def missing():
    """Why there can be none here; empty if there can."""
    return "" if shutil.which("etcd") else "there is no etcd on this machine (tools/install_deps etcd)"


class EtcdMembers:
    def __init__(self, folder, count=3, flags=()):
        self.folder, self.flags = folder, list(flags)
        first = free_ports(2 * count)
        self.clients = ["127.0.0.1:%d" % (first + 2 * i) for i in range(count)]
        self.peers = ["http://127.0.0.1:%d" % (first + 2 * i + 1) for i in range(count)]
        self.processes = {}  # by index: those that run, or are stopped

    def endpoints(self):
        return ",".join(self.clients)

    def start_all(self):
        for i in range(len(self.clients)):
            self.start(i)

    def start(self, index):
        """Also one that was killed: it goes on with its data."""
        client, peer = "http://" + self.clients[index], self.peers[index]
        together = ",".join("etcd-%d=%s" % named for named in enumerate(self.peers))
        self.processes[index] = Process("etcd-%d" % index, [
            "etcd", "--name=etcd-%d" % index, "--data-dir=" + os.path.join(self.folder, "etcd-%d" % index), "--log-level=warn",
            "--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
            "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + together, *self.flags], self.folder)

    def kill(self, index):
        process = self.processes.pop(index)
        process.popen.kill()
        process.popen.wait()

    def stop(self, index):
        self.processes[index].popen.send_signal(signal.SIGSTOP)

    def go_on(self, index):
        self.processes[index].popen.send_signal(signal.SIGCONT)

    def end(self):
        for index in list(self.processes):
            self.kill(index)

    def leader(self):
        """The index of the member that leads, of those that answer; None: nobody knows one."""
        told = [status for index in self.processes if (status := self._status(index))]
        leading = [index for index, status in told if status.get("leader") == status["header"]["member_id"]]
        # One that was stopped may believe that it leads still; the highest term decides.
        return max(leading, key=lambda index: int(dict(told)[index]["raftTerm"])) if leading else None

    def serves(self, index):
        """Whether a member answers, and knows a leader."""
        status = self._status(index)
        return status is not None and status[1].get("leader", "0") != "0"

    def _status(self, index):
        request = urllib.request.Request("http://%s/v3/maintenance/status" % self.clients[index], b"{}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return index, json.load(answer)
        except OSError:
            return None
