#!/usr/bin/env python3
"""Each process of a running cluster is replaced by one of another build, under load, each role first in turn: no request fails.

SKEIN_UPGRADE_FROM names a folder with the programs of the build to begin with (`tests/run --upgrade` makes it); by hand:

    SKEIN_UPGRADE_FROM=DIR tests/cluster/upgrade_test.py DIR2/router DIR2/orchestrator DIR2/prefill_worker ...

Without it both builds are this one: a test of the replacing itself, for one order only.
"""
import os
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import NAMES, Cluster, binaries_from_argv, free_ports, run_tests  # noqa: E402
from emulated import continuation, emulated_model  # noqa: E402

FLEDGLING = "deploy/models/fledgling"
ROLES = ("orchestrator", "prefill", "decode", "router")
PROGRAM = {"orchestrator": "orchestrator", "prefill": "prefill_worker", "decode": "decode_worker", "router": "router"}
TOKENS = 120
STEP_US = 10000  # so an answer takes more than a second, and replacing a process meets running ones
FROM = os.environ.get("SKEIN_UPGRADE_FROM", "")
STREAMS = 12 if FROM else 6


def binaries_from():
    found = {name: os.path.join(FROM, name) for name in NAMES} if FROM else binaries_from_argv()
    missing = [path for path in found.values() if not os.path.exists(path)]
    assert not missing, "SKEIN_UPGRADE_FROM has no %s" % ", ".join(missing)
    return found


def chunks_from(url, body):
    """The chunks of a streamed answer of the router at `url`, which need not be the cluster's latest."""
    return Cluster.stream(SimpleNamespace(url=url, ssl=None), "/v1/completions", body, timeout=120)


class Stream:
    """One answer from the router at `url`; read it with `read`."""

    def __init__(self, cluster, prompt, tokens):
        self.url, self.prompt, self.expected = cluster.url, prompt, tokens
        self.body = {"model": cluster.name, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
                     "return_token_ids": True}
        self.tokens = []

    def read(self):
        for chunk in chunks_from(self.url, self.body):
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                self.tokens.extend(choice.get("token_ids") or [])
        expected = continuation(self.prompt, self.expected)
        assert self.tokens == expected, (self.prompt, self.tokens, expected)


class Client(threading.Thread):
    """Asks for one answer after another until it is told to stop, and compares each with what it must be."""

    def __init__(self, cluster, number):
        super().__init__()
        self.cluster, self.number = cluster, number
        self.stopping, self.answers, self.problem, self.now = False, 0, None, None

    def run(self):
        try:
            while not self.stopping:
                prompt = [7 * self.number + self.answers % 50 + k for k in range(20 + 3 * self.number)]
                self.now = Stream(self.cluster, prompt, TOKENS)
                self.now.read()
                self.answers += 1
        except Exception as error:  # pylint: disable=broad-except
            self.problem = error


class Load:
    """STREAMS clients."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.clients = [Client(cluster, i) for i in range(STREAMS)]
        for client in self.clients:
            client.start()

    def check(self):
        problems = [(client.number, client.answers, client.problem) for client in self.clients if client.problem is not None]
        assert not problems, problems

    def until(self, condition, what):
        def met():
            self.check()
            return all(condition(client) for client in self.clients)
        self.cluster.until(met, what, seconds=240)

    def await_streaming(self):
        """Each client has the first tokens of an answer."""
        self.until(lambda client: client.now is not None and client.now.tokens, "all stream")

    def await_answers(self):
        """Each client gets an answer that it asks for from now on."""
        marks = {client.number: client.answers + 2 for client in self.clients}
        self.until(lambda client: client.answers >= marks[client.number], "each gets an answer")

    def await_move(self, url):
        """Each client has tokens from the router at `url`."""
        self.until(lambda client: client.now.url == url and client.now.tokens, "all have moved to the new router")

    def stop(self):
        for client in self.clients:
            client.stopping = True
        for client in self.clients:
            client.join(120)
            assert not client.is_alive(), client.number
        self.check()
        return sum(client.answers for client in self.clients)


class Upgraded(Cluster):
    """A cluster whose orchestrator can be started again at its address."""

    def __init__(self, *arguments, **options):
        self.port = free_ports(1)
        super().__init__(*arguments, **options)
        self.flags["orchestrator"] = ["--state-dir=" + os.path.join(self.folder, "state")]
        os.mkdir(os.path.join(self.folder, "state"))

    def run(self, name, binary, arguments):
        if name == "orchestrator":
            arguments = ["--port=%d" % self.port] + [a for a in arguments if not a.startswith("--port=")]
        super().run(name, binary, arguments)

    def must_end(self, name):
        problem = self.end(name)
        assert not problem, problem

    def await_all(self):
        self.until(lambda: self.serving() >= len(self.workers()), "each worker serves")

    def replace_orchestrator(self, _):
        self.must_end("orchestrator")
        port = self.port_file("orchestrator")
        self.run("orchestrator", "orchestrator", ["--port-file=" + port])
        self.await_file(port, "orchestrator")
        self.await_all()

    def replace_workers(self, role):
        for name in sorted(name for name in self.processes if name.startswith(role + "-")):
            self.start_worker(role, int(name.split("-")[1]) + 10)
            self.await_all()
            self.must_end(name)

    def replace_router(self, load):
        """Clients go to the new one before the old one gets SIGTERM; what streams there ends there."""
        last = Stream(self, [5] * 30, 4 * TOKENS)
        problems = []

        def read():
            try:
                last.read()
            except Exception as error:  # pylint: disable=broad-except
                problems.append(error)
        reader = threading.Thread(target=read)
        reader.start()
        self.processes["former"] = self.processes.pop("router")
        self.start_router()
        self.await_ready()
        load.await_move(self.url)
        self.until(lambda: last.tokens or problems, "the old router streams")
        assert reader.is_alive() and not problems, ("no stream met the end of the old router", problems)
        self.must_end("former")
        reader.join(60)
        assert not reader.is_alive() and not problems, problems

    def replace(self, role, load):
        load.await_streaming()
        {"orchestrator": self.replace_orchestrator, "router": self.replace_router}.get(role, lambda _: self.replace_workers(role))(load)
        load.await_answers()


def check_operators(cluster, builds):
    """skeinctl of each build tells the state of the mixed cluster."""
    seen = []
    for build in builds:
        done = subprocess.run([build["skeinctl"], "status", "--orchestrator", cluster.orchestrator, "--format=json"], check=False,
                              stdout=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode in (0, 3), done
        seen.append(len(cluster.status()["instances"]))
    assert seen == [len(cluster.workers())] * len(builds), seen


def version_of(build):
    return subprocess.run([build["skeinctl"], "--version"], check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout.strip()


def upgrade(order):
    old, new = binaries_from(), binaries_from_argv()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Upgraded(
            dict(old), emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated"],
            decode_flags=["--emulated-decode-step-us=%d" % STEP_US, "--drain-grace-s=0.2"]) as cluster:
        load = Load(cluster)
        try:
            resumes = 0
            for role in order:
                cluster.binaries[PROGRAM[role]] = new[PROGRAM[role]]
                if role == "router":
                    resumes += cluster.metric(cluster.processes["router"], "skein_router_resumes_total")
                cluster.replace(role, load)
                check_operators(cluster, (old, new))
            resumes += cluster.metric(cluster.processes["router"], "skein_router_resumes_total")
        finally:
            answers = load.stop()
        cluster.assert_idle_and_whole()
        assert resumes >= 1, "no decode-worker that left had a stream"
    print("   %s -> %s, %s first: %d answers, 0 failed; %d resumed; %.0f s" % (
        version_of(old), version_of(new), order[0], answers, resumes, time.monotonic() - began), flush=True)


def each_role_is_replaced_under_load_orchestrator_first():
    upgrade(ROLES)


def prefill_workers_first():
    return upgrade(ROLES[1:] + ROLES[:1]) if FROM else "skip: SKEIN_UPGRADE_FROM is not set, so one order is enough"


def decode_workers_first():
    return upgrade(ROLES[2:] + ROLES[:2]) if FROM else "skip: SKEIN_UPGRADE_FROM is not set, so one order is enough"


def router_first():
    return upgrade(ROLES[3:] + ROLES[:3]) if FROM else "skip: SKEIN_UPGRADE_FROM is not set, so one order is enough"


if __name__ == "__main__":
    run_tests(each_role_is_replaced_under_load_orchestrator_first, prefill_workers_first, decode_workers_first, router_first)
