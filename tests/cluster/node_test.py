#!/usr/bin/env python3
"""skein-node with real workers: one fails and is restarted alone, the others continue; readiness of each; signals; drain of all."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, Process, binaries_from_argv, free_ports, run_tests  # noqa: E402
from emulated import complete, continuation, emulated_model  # noqa: E402

MODEL = "deploy/models/fledgling"
NODE = next(os.path.abspath(a) for a in sys.argv[1:] if os.path.basename(a) == "skein-node")


class Node:
    """A skein-node and a cluster."""

    def __init__(self, cluster, instances, programs, flags=()):
        admin = os.path.join(cluster.folder, "node.admin")
        command = [NODE, "--instances=" + instances, "--admin-port=0", "--admin-port-file=" + admin, "--restart-delay-s=0.3", *flags]
        for program in programs:
            command += ["--", *program]
        self.cluster = cluster
        self.process = cluster.processes["node"] = Process("node", command, cluster.folder)

    def get(self, path):
        return self.cluster.get(path, raw=True, base=self.process.admin())

    def status(self):
        return json.loads(self.get("/status"))

    def code(self, path):
        try:
            self.get(path)
            return 200
        except HttpFailure as failure:
            return failure.code

    def await_ready(self):
        self.cluster.until(lambda: self.code("/readyz") == 200, "the node is ready")


def worker(cluster, role, first):
    return [cluster.binaries[role + "_worker"], "--orchestrator=" + cluster.orchestrator, "--model=" + cluster.model,
            "--served-name=" + cluster.name, "--kv-gib=0.02", "--admin-port={%d+i}" % first]


def one_dies_and_the_others_go_on():
    with Cluster(binaries_from_argv(), MODEL, prefill=0, decode=0) as cluster:
        first = free_ports(4)
        node = Node(cluster, "2,2", [worker(cluster, "prefill", first), worker(cluster, "decode", first)])
        node.await_ready()
        cluster.await_ready()
        body = {"model": cluster.name, "prompt": "The", "max_tokens": 2000, "ignore_eos": True}
        chunks = cluster.stream("/v1/completions", body)
        next(chunks)
        cluster.until(lambda: node.status()["running"] == 1, "the node has heard of it", 10)
        instances = node.status()["instances"]
        busy = next(i["index"] for i in instances[2:] if i["status"]["running"] == 1)
        victim = 5 - busy  # the other decode-worker
        os.kill(instances[victim]["pid"], signal.SIGKILL)
        cluster.until(lambda: node.status()["instances"][victim]["last_exit"] == "killed by SIGKILL", "it says how it died", 10)
        assert node.code("/readyz/%d" % busy) == 200
        assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "length", "the others' work goes on"
        node.await_ready()
        after = node.status()["instances"]
        assert after[victim]["restarts"] == 1 and after[victim]["pid"] != instances[victim]["pid"], after[victim]
        assert "registered" in after[victim]["last_words"], after[victim]["last_words"]
        assert [i["pid"] for n, i in enumerate(after) if n != victim] == [i["pid"] for n, i in enumerate(instances) if n != victim]
        assert 'skein_node_instance_restarts_total{instance_index="%d"} 1' % victim in node.get("/metrics")
        assert node.code("/readyz/4") == 404 and node.code("/readyz/x") == 404
        cluster.post("/v1/completions", dict(body, max_tokens=2))

        drained = json.loads(cluster.request("POST", "/drain?force=1&wait_s=20", base=node.process.admin()))
        assert drained["safe_to_delete"] and drained["state"] == "drained", drained
        cluster.until(lambda: {i["state"] for i in cluster.status()["instances"] if i["state"] != "gone"} == {"drained"},
                      "the orchestrator has heard of it", 10)
        cluster.request("POST", "/resume", base=node.process.admin())
        node.await_ready()
        refused = node_refuses(cluster, node)
        assert "instance 1: instance" in refused and "last prefill instance" in refused, refused
        node.await_ready()  # those that had obeyed undid the order

        pids = [i["pid"] for i in node.status()["instances"]]
        cluster.processes.pop("node")
        node.process.popen.send_signal(signal.SIGTERM)
        assert node.process.popen.wait(30) == 0, node.process.tail()
        assert not any(os.path.exists("/proc/%d" % pid) for pid in pids)
        assert '"index":3' in node.process.text(), "lines name their instance"


def one_whose_engine_failed_comes_back():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, MODEL), prefill=1, decode=0,
                    worker_flags=["--device=emulated"], router_flags=["--resume-wait-s=0"]) as cluster:
        first = free_ports(1)
        node = Node(cluster, "1", [[*worker(cluster, "decode", first), "--device=emulated", "--emulated-fail-token=7"]])
        node.await_ready()
        cluster.await_ready()
        try:
            complete(cluster, [1, 7], 4)
            raise AssertionError("it was answered")
        except HttpFailure as failure:
            assert failure.code == 503, failure
        cluster.until(lambda: node.status()["instances"][0]["restarts"] == 1, "it is started again", 20)
        node.await_ready()
        again = node.status()["instances"][0]
        assert again["last_exit"] == "ended with exit code 3" and "its engine failed" in again["last_words"], again
        cluster.await_ready()
        assert complete(cluster, [1, 2], 4) == continuation([1, 2], 4)


def node_refuses(cluster, node):
    try:
        cluster.request("POST", "/drain", base=node.process.admin())
    except HttpFailure as failure:
        assert failure.code == 409, failure
        return failure.body
    raise AssertionError("it obeyed")


def script(text):
    return ["/bin/sh", "-c", text, "sh", "--admin-port={%d+i}" % free_ports(3)]


def what_never_runs_is_told_and_tried_again():
    with Cluster(binaries_from_argv(), MODEL, prefill=0, decode=0) as cluster:
        node = Node(cluster, "3", [script("echo no such model >&2; exit 3")], ["--min-ready=1", "--restart-delay-max-s=0.4"])
        cluster.until(lambda: all(i["restarts"] >= 2 for i in node.status()["instances"]), "each is tried again", 20)
        # Between two restarts; a child that runs for a moment has not ended yet.
        cluster.until(lambda: "ended with exit code 3" in node.status()["reason"], "the reason says how it ended", 20)
        shown = node.status()
        assert shown["state"] == "waiting" and shown["instances"][0]["last_words"] == "no such model", shown
        # The supervisor has started. An instance fails, and the supervisor restarts it.
        assert node.code("/readyz") == 503 and node.code("/startupz") == 200 and node.code("/livez") == 200
        cluster.processes.pop("node")
        node.process.popen.terminate()
        assert node.process.popen.wait(20) == 0


def signals_are_passed_on_and_a_stubborn_one_is_killed():
    with Cluster(binaries_from_argv(), MODEL, prefill=0, decode=0) as cluster:
        mark = os.path.join(cluster.folder, "mark")
        node = Node(cluster, "2", [script("trap '' TERM; trap 'echo hup >> %s' HUP; while :; do sleep 0.1; done" % mark)],
                    ["--stop-grace-s=0.5"])
        cluster.until(lambda: all(i["running"] for i in node.status()["instances"]), "they run", 20)
        node.process.popen.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        cluster.processes.pop("node")
        node.process.popen.terminate()
        start = time.monotonic()
        assert node.process.popen.wait(20) == 0 and time.monotonic() - start >= 0.5, node.process.tail()
        assert "forwarding SIGHUP" in node.process.text() and "killed by SIGKILL" in node.process.text()


def children_die_with_their_node():
    with Cluster(binaries_from_argv(), MODEL, prefill=0, decode=0) as cluster:
        node = Node(cluster, "2", [script("while :; do sleep 0.1; done")])
        cluster.until(lambda: all(i["running"] for i in node.status()["instances"]), "they run", 20)
        pids = [i["pid"] for i in node.status()["instances"]]
        cluster.kill("node")

        def gone(pid):
            try:
                with open("/proc/%d/stat" % pid, encoding="utf-8") as stat:
                    return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                return True
        cluster.until(lambda: all(gone(pid) for pid in pids), "no child is left", 10)


def wrong_flags_are_named():
    def error(*arguments):
        done = subprocess.run([NODE, *arguments], check=False, stderr=subprocess.PIPE, universal_newlines=True, timeout=30)
        assert done.returncode == 2, done
        return done.stderr
    assert "--instances: '0' is not a number from 1 to 64" in error("--instances=0", "--", "x")
    assert "names 2 programs, but the number of programs after -- is 1" in error("--instances=1,1", "--", "x", "--admin-port={1+i}")
    assert "instance 0: '' is not a valid --admin-port" in error("--instances=1", "--", "x")
    assert "instances 0 and 1 both have 7500" in error("--instances=2", "--", "x", "--admin-port", "7500")
    assert "'{k}': only sums such as" in error("--instances=1", "--", "x", "--admin-port=1", "{k}")
    assert "--min-ready: 3 exceeds the number of instances, 2" in error("--instances=2", "--min-ready=3", "--", "x", "--admin-port={1+i}")


if __name__ == "__main__":
    tempfile.tempdir = os.environ.get("TEST_TMPDIR")
    run_tests(one_dies_and_the_others_go_on, one_whose_engine_failed_comes_back, what_never_runs_is_told_and_tried_again,
              signals_are_passed_on_and_a_stubborn_one_is_killed, children_die_with_their_node, wrong_flags_are_named)
