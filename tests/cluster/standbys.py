"""Two orchestrators, two routers and emulated workers as real processes, for tests of what ends, stops or starves while they run.

One orchestrator leads, the other one stands by; the store is the embedded one or etcd.
"""
import copy
import os
import threading

from cluster import Cluster, HttpFailure, Process, binaries_from_argv, free_ports
from emulated import complete, continuation, emulated_model

FLEDGLING = "deploy/models/fledgling"
STEP_US = 10000
TOKENS = 400  # 4 s: longer than a fail-over
PROMPTS = [[7 * i + k for k in range(20 + 3 * i)] for i in range(8)]
ROUTERS = ("router", "router2")
ORCHESTRATORS = ("orchestrator", "standby")


class Standbys(Cluster):
    """Its orchestrators have ports of their own, so that one that is started again is found where it was."""

    def __init__(self, folder, store="embedded", lease_s=1):
        super().__init__(binaries_from_argv(), emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated"],
                         decode_flags=["--emulated-decode-step-us=%d" % STEP_US])
        self.store, self.etcd_port, self.lease_s = store, 0, lease_s
        self.state_dir = os.path.join(self.folder, "state")
        self.urls = []

    def start(self):
        first = free_ports(len(ORCHESTRATORS))
        self.ports = {name: first + i for i, name in enumerate(ORCHESTRATORS)}
        self.orchestrator = "+".join("127.0.0.1:%d" % port for port in self.ports.values())
        if self.store == "etcd":
            self.start_etcd()
        for name in ORCHESTRATORS:
            self.start_orchestrator(name)
        for role in ("prefill", "decode"):
            for i in range(self.counts[role]):
                self.start_worker(role, i)
        for name in ROUTERS:
            port = self.port_file(name)
            self.run(name, "router", ["--orchestrator=" + self.orchestrator, "--port=0", "--port-file=" + port,
                                      "--model=%s=%s" % (self.name, self.model)])
            self.urls.append("http://127.0.0.1:" + self.await_file(port, name))
        self.url = self.urls[0]
        for door in self.doors():
            door.await_ready()
        self.until(lambda: self.serving() >= len(self.workers()), "each worker serves")

    def start_etcd(self):
        self.etcd_port = free_ports(2)
        client, peer = ("http://127.0.0.1:%d" % (self.etcd_port + i) for i in range(2))
        self.processes["etcd"] = Process("etcd", [
            "etcd", "--name=one", "--data-dir=" + os.path.join(self.folder, "etcd"), "--log-level=warn", "--heartbeat-interval=50",
            "--election-timeout=500", "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
            "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=one=" + peer], self.folder)

    def start_orchestrator(self, name):
        flags = ["--etcd=127.0.0.1:%d" % self.etcd_port] if self.store == "etcd" else ["--state-dir=" + self.state_dir]
        self.run(name, "orchestrator", ["--port=%d" % self.ports[name], "--store=" + self.store,
                                        "--leader-lease-s=%g" % self.lease_s, *flags])

    def stop(self):
        workers = [name for name in self.processes if "-" in name]
        bad = [problem for name in (*ROUTERS, *workers, *ORCHESTRATORS) if (problem := self.end(name))]
        assert not bad, "\n".join(bad)

    def doors(self):
        """This cluster, once for each router."""
        for url in self.urls:
            door = copy.copy(self)
            door.url = url
            yield door

    def state(self, name):
        return self.get("/status", base=self.processes[name].admin())["state"]

    def leads(self, name):
        return self.metric(self.processes[name], "skein_orchestrator_leader{") == 1  # not skein_orchestrator_leaderships_total

    def roles(self):
        """The one that leads, and the other one."""
        self.until(lambda: sum(self.leads(name) for name in ORCHESTRATORS) == 1, "one leads")
        return sorted(ORCHESTRATORS, key=lambda name: not self.leads(name))

    def await_whole(self):
        """All processes are known to the one that leads, and the other one stands by, ready."""
        leader, other = self.roles()
        self.until(lambda: self.state(other) == "standby", "the other one stands by")
        assert self.get("/readyz", raw=True, base=self.processes[other].admin())
        self.until(lambda: self.serving() == 4, "all workers are known")
        self.until(lambda: len(self.status()["routers"]) == 2, "both routers are known")
        assert self.state(leader) == "serving"
        self.assert_idle_and_whole()


class Stream(threading.Thread):
    def __init__(self, door, prompt):
        super().__init__()
        self.door, self.prompt = door, prompt
        self.tokens, self.problem = [], None
        self.start()

    def run(self):
        body = {"model": self.door.name, "prompt": self.prompt, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0,
                "return_token_ids": True}
        try:
            for chunk in self.door.stream("/v1/completions", body, timeout=120):
                self.problem = self.problem or chunk.get("error")
                for choice in chunk.get("choices", []):
                    self.tokens += choice.get("token_ids") or []
        except (AssertionError, HttpFailure, OSError) as problem:
            self.problem = self.problem or repr(problem)

    def check(self):
        self.join(120)
        assert self.problem is None, (self.problem, len(self.tokens))
        assert self.tokens == continuation(self.prompt, TOKENS), self.tokens


def run_streams(cluster):
    streams = [Stream(door, prompt) for door in cluster.doors() for prompt in PROMPTS]
    cluster.until(lambda: all(len(one.tokens) >= 10 or not one.is_alive() for one in streams), "streams run")
    assert all(one.is_alive() for one in streams), [one.problem for one in streams]
    return streams


def new_requests_succeed(cluster):
    for i, door in enumerate(cluster.doors()):
        prompt = [100 + i, 3, 5, 7]
        assert complete(door, prompt, 3) == continuation(prompt, 3)


def nobody_notices(cluster, break_it):
    """Streams run while `break_it` breaks something, and perhaps mends it; they end as they should, and new requests succeed."""
    cluster.await_whole()
    streams = run_streams(cluster)
    break_it()
    new_requests_succeed(cluster)
    for stream in streams:
        stream.check()
