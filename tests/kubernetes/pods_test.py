#!/usr/bin/env python3
"""The pods' own command lines start the real programs: with the manifests' flags, variables, ports, probes and preStop.

There is no Kubernetes here: a network namespace of its own stands for the cluster, each pod is a process in it, and the name
`orchestrator` leads to it. Arguments: the paths of the programs.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from manifests import ROOT, objects, workloads  # noqa: E402

FIELDS = {"status.podIP": "127.0.0.1", "spec.nodeName": "node-1", "metadata.name": "pod-0"}
START_S = 120
MODEL = os.path.join(ROOT, "deploy", "models", "fledgling")
INSIDE = "SKEIN_TEST_IN_NAMESPACE"


def programs():
    """{path in the image: path here}"""
    names = {"router": "skein-router", "orchestrator": "skein-orchestrator", "prefill_worker": "skein-prefill-worker",
             "decode_worker": "skein-decode-worker", "skeinctl": "skeinctl", "skein-node": "skein-node"}
    return {"/usr/bin/" + names[os.path.basename(p)]: os.path.abspath(p) for p in sys.argv[1:]}


class Pod:
    """A pod's container as a process."""

    def __init__(self, name, spec, folder):
        self.name = name
        self.container = spec["containers"][0]
        self.log = os.path.join(folder, name + ".log")
        self.environment = {"PATH": os.environ["PATH"], "HOME": folder}
        for entry in self.container.get("env", []):
            value = FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in entry else entry["value"]
            value = re.sub(r"\$\((\w+)\)", lambda m: self.environment[m[1]], value)
            self.environment[entry["name"]] = MODEL if entry["name"] == "SKEIN_MODEL" else value
        self.folders = self.volumes(spec, folder)
        for here in self.folders.values():
            os.makedirs(here)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.here(self.container["command"] + self.container["args"]), env=self.environment,
                                            stdout=log, stderr=subprocess.STDOUT)

    def volumes(self, spec, folder):
        """{path of an empty volume in the container: a folder here}"""
        empty = {v["name"] for v in spec.get("volumes", []) if "emptyDir" in v}
        return {m["mountPath"]: os.path.join(folder, self.name + "-" + m["name"]) for m in self.container.get("volumeMounts", [])
                if m["name"] in empty}

    def here(self, command):
        for path, folder in self.folders.items():
            command = [re.sub("=" + re.escape(path) + "(?=/|$)", "=" + folder, word) for word in command]
        return [programs().get(word, word) for word in command]

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return self.name + ":\n" + log.read()[-3000:]

    def probe(self, kind):
        """The HTTP status of a probe; 0: nothing listens."""
        http = self.container[kind]["httpGet"]
        (port,) = [p["containerPort"] for p in self.container["ports"] if p["name"] == http["port"]]
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, http["path"]), timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def until(self, kind, status=200, seconds=START_S):
        deadline = time.monotonic() + seconds
        while self.probe(kind) != status:
            assert self.process.poll() is None, "%s ended with %s\n%s" % (self.name, self.process.returncode, self.said())
            assert time.monotonic() < deadline, "%s: %s is %s\n%s" % (self.name, kind, self.probe(kind), self.said())
            time.sleep(0.1)

    def listening(self):
        """TCP ports on which this process and its children listen."""
        pids = {self.process.pid} | children_of(self.process.pid)
        lines = subprocess.run(["ss", "-Htlnp"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        return {int(line.split()[3].rsplit(":", 1)[1]) for line in lines
                if pids & {int(pid) for pid in re.findall(r"pid=(\d+)", line)}}

    def leave(self):
        """Ends a pod like the kubelet: preStop, then SIGTERM."""
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            done = subprocess.run(self.here(hook["exec"]["command"]), env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=60)
            assert done.returncode == 0, "preStop of %s: %d %s\n%s" % (self.name, done.returncode, done.stdout, self.said())
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=30) == 0, self.said()


def children_of(pid):
    out = set()
    for entry in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue  # no process, or one that has just ended
        if parent == pid:
            out.add(int(entry))
    return out


def ask(port):
    body = json.dumps({"model": "fledgling", "prompt": "Ana's red kite is in the", "max_tokens": 4, "temperature": 0}).encode()
    request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def a_cluster_of(folder):
    """Starts every workload of a kustomization, sends a request, and stops it like Kubernetes."""
    with tempfile.TemporaryDirectory() as work:
        pods = {name: Pod(name, spec, work) for name, spec, _, _ in workloads(objects(folder))}
        try:
            for pod in pods.values():
                pod.until("startupProbe")
                assert pod.probe("livenessProbe") == 200, pod.said()
            for pod in pods.values():
                pod.until("readinessProbe")
            for pod in pods.values():
                listed = {p["containerPort"] for p in pod.container["ports"]}
                assert pod.listening() == listed, "%s listens on %s, the manifest lists %s" % (pod.name, pod.listening(), listed)
            assert ask(8000) == 4
            for name in sorted(pods, key=["router", "decode", "prefill", "node", "orchestrator"].index):
                pods[name].leave()
        finally:
            for pod in pods.values():
                if pod.process.poll() is None:
                    pod.process.kill()
                    pod.process.wait()


def the_demo_starts_answers_and_drains():
    a_cluster_of("overlays/demo")


def a_node_pod_starts_answers_and_drains():
    a_cluster_of("examples/node-pods")


def enter_namespaces():
    """Runs this test again in its own network namespace with a hosts file that has `orchestrator`."""
    if os.environ.get(INSIDE):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write("127.0.0.1 localhost orchestrator\n")
        hosts.flush()
        unshare = ["unshare"] + ([] if os.geteuid() == 0 else ["--map-root-user"]) + ["--net", "--mount"]
        script = 'ip link set lo up && mount --bind "$0" /etc/hosts && exec "$@"'
        if subprocess.run(unshare + ["sh", "-c", script, hosts.name, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            print("skipped  no network namespace can be made here\nCASES 0 passed, 0 failed, 1 skipped")
            sys.exit(0)
        command = unshare + ["sh", "-c", script, hosts.name, sys.executable, os.path.abspath(__file__)] + sys.argv[1:]
        sys.exit(subprocess.run(command, env=dict(os.environ, **{INSIDE: "1"})).returncode)


if __name__ == "__main__":
    enter_namespaces()
    run_tests(the_demo_starts_answers_and_drains, a_node_pod_starts_answers_and_drains)
