#!/usr/bin/env python3
"""The network between the orchestrator and one decode-worker is cut for longer than a lease, while routers and prefill-workers
reach both: what that worker streams goes on, nothing is planned anew, and what is new goes elsewhere."""
import os
import socket
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import complete, continuation, emulated_model  # noqa: E402

FLEDGLING = "deploy/models/fledgling"
STEP_US = 20000
TOKENS = 900  # 18 s
PROMPT = list(range(40))


class Wire:
    """A TCP proxy whose bytes stop when it is cut, in both directions; its connections stay open, as under a lost route."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.whole = threading.Event()
        self.whole.set()
        self.open = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return  # closed
            self.whole.wait()
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            with self.lock:
                self.open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        try:
            while data := source.recv(65536):
                self.whole.wait()
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            with self.lock:
                self.open.discard(one)
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.whole.clear()

    def heal(self):
        """Connections from before are lost."""
        with self.lock:
            for one in self.open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.whole.set()

    def close(self):
        self.listener.close()
        self.heal()


class CutCluster(Cluster):
    """decode-0 reaches the orchestrator through `wire`."""
    wire = None

    def start_worker(self, role, index):
        if (role, index) != ("decode", 0):
            return super().start_worker(role, index)
        direct = self.orchestrator
        self.wire = Wire(direct)
        self.orchestrator = self.wire.address
        try:
            super().start_worker(role, index)
        finally:
            self.orchestrator = direct

    def instances(self):
        """The decode instances, by process."""
        return {one["pid"]: one for one in self.status()["instances"] if one["role"] == "decode"}

    def behind_the_wire(self):
        return self.instances().get(self.processes["decode-0"].popen.pid)

    def of_orchestrator(self, name, labels=""):
        return self.metric(self.processes["orchestrator"], name, labels)


def cluster_of(folder, decode):
    return CutCluster(binaries_from_argv(), emulated_model(folder, FLEDGLING), prefill=1, decode=decode,
                      worker_flags=["--device=emulated"], decode_flags=["--emulated-decode-step-us=%d" % STEP_US])


class Answer(threading.Thread):
    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.tokens, self.problem = cluster, None, None

    def run(self):
        try:
            self.tokens = complete(self.cluster, PROMPT, TOKENS)
        except Exception as error:  # pylint: disable=broad-except
            self.problem = repr(error)


def running(cluster, process):
    return cluster.metric(cluster.processes[process], "vllm:num_requests_running")


def an_answer_streams_on_while_its_instance_is_missed():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, 2) as cluster:
        answers = []
        while running(cluster, "decode-0") == 0:  # placed by what the instances hold
            assert len(answers) < 4, "nothing is placed at decode-0"
            answers.append(Answer(cluster))
            answers[-1].start()
            count = len(answers)
            cluster.until(lambda: running(cluster, "decode-0") + running(cluster, "decode-1") == count, "it decodes")
        cluster.until(lambda: cluster.behind_the_wire()["heard_by"] == 1, "the router says that it hears it")
        before = cluster.behind_the_wire()["instance"]
        cluster.wire.cut()
        cluster.until(lambda: cluster.behind_the_wire()["state"] == "missed", "its lease expires")
        assert cluster.of_orchestrator("skein_instances_missed") == 1
        assert any("does not report" in reason for reason in cluster.status()["reasons"]), cluster.status()["reasons"]
        assert complete(cluster, [7] * 20, 20) == continuation([7] * 20, 20)
        assert running(cluster, "decode-0") == 1, "it got something new"
        cluster.wire.heal()
        cluster.until(lambda: cluster.behind_the_wire()["state"] == "serving", "it is back")
        assert cluster.behind_the_wire()["instance"] == before
        for answer in answers:
            answer.join()
            assert answer.problem is None, answer.problem
            assert answer.tokens == continuation(PROMPT, TOKENS)
        for name in ("skein_instances_lost_total", "skein_replans_total", "skein_requests_failed_total"):
            assert cluster.of_orchestrator(name) == 0, name
        cluster.until(lambda: cluster.of_orchestrator("skein_instances_missed") == 0, "none is missed")
        cluster.assert_idle_and_whole()
        cluster.wire.close()


def an_answer_that_ends_meanwhile_leaves_nothing():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, 1) as cluster:
        answer = Answer(cluster)
        answer.start()
        cluster.until(lambda: running(cluster, "decode-0") == 1, "it decodes")
        cluster.until(lambda: cluster.behind_the_wire()["heard_by"] == 1, "the router says that it hears it")
        cluster.wire.cut()
        answer.join()
        assert answer.problem is None, answer.problem
        assert answer.tokens == continuation(PROMPT, TOKENS)
        # Nobody has requests there any more, so nobody hears it.
        cluster.until(lambda: cluster.behind_the_wire() is None, "it is lost")
        assert cluster.of_orchestrator("skein_requests_failed_total") == 0
        assert cluster.of_orchestrator("skein_orchestrator_requests", 'state="placed"') == 0
        cluster.wire.heal()
        cluster.until(lambda: (cluster.behind_the_wire() or {}).get("state") == "serving", "it is back")
        assert complete(cluster, PROMPT, 20) == continuation(PROMPT, 20)
        cluster.assert_idle_and_whole()
        cluster.wire.close()


if __name__ == "__main__":
    run_tests(an_answer_streams_on_while_its_instance_is_missed, an_answer_that_ends_meanwhile_leaves_nothing)
