"""What the steps do with Skein on the cluster: apply an overlay, wait for it, ask it, load it."""
import json
import os
import subprocess
import time

import yaml

import load
from api import wait_until
from kubernetes import condition
from machine import sh
from images import ETCD
from manifests import for_1_20, volumes_for, with_image
from node import CTR

HERE = os.path.dirname(os.path.realpath(__file__))
NAMESPACE = "skein"
MODEL = "fledgling"
SETS = ("deployments", "statefulsets")
USER = 65532  # of all pods


class Workload:
    def __init__(self, cluster, say):
        self.cluster, self.api, self.say = cluster, cluster.api, say
        self.client, self.noted, self.led = cluster.machines["node1"], set(), []

    def render(self, overlay):
        """The documents of an overlay, a folder here such as overlays/demo, made fit for 1.20."""
        text = sh(os.path.join(HERE, "..", "render"), os.path.join(HERE, "..", overlay))
        documents, notes = for_1_20([d for d in yaml.safe_load_all(text) if d])
        documents, more = with_image(documents, "registry.k8s.io/etcd", ETCD)
        notes += more
        for note in notes:
            if note not in self.noted:
                self.say("for 1.20: " + note)
        self.noted.update(notes)
        return documents

    def apply(self, documents):
        self._make_volumes(documents)
        folder = os.path.join(self.cluster.folder, "overlay")
        os.makedirs(folder, exist_ok=True)
        for name, content in (("objects.yaml", documents), ("kustomization.yaml", [{"resources": ["objects.yaml"]}])):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                yaml.safe_dump_all(content, file)
        return self.cluster.kubectl("apply", "-k", folder)

    def _make_volumes(self, documents):
        """As a storage class of networked disks would: a pod finds its data on whichever node it starts."""
        volumes = volumes_for(documents, os.path.join(self.cluster.folder, "volumes"))
        for volume in volumes:
            path = volume["spec"]["hostPath"]["path"]
            os.makedirs(path, mode=0o700, exist_ok=True)
            os.chown(path, USER, USER)  # fsGroup changes no hostPath
        if volumes:
            self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(volumes))

    def url(self):
        service = self.api.get("services", NAMESPACE, "router")
        port = next(p["port"] for p in service["spec"]["ports"] if p["name"] == "http")
        return "http://%s:%d" % (service["spec"]["clusterIP"], port)

    def await_first_token(self, began, limit_s=300):
        """Asks through the Service, with curl on a node, until a token comes; seconds since began."""
        body = json.dumps({"model": MODEL, "prompt": "Once upon a time", "max_tokens": 4, "stream": True})
        seen = {"why": ""}

        def amiss():
            url = self.url()
            done = self.client.sh("curl", "-sN", "--connect-timeout", "2", "--max-time", "30", "-H", "Content-Type: application/json", "-d", body,
                                  url + "/v1/completions", check=False)
            if done.stdout.startswith("data: {") and '"error"' not in done.stdout:
                return None
            seen["why"] = done.stdout.strip()[:200] or "curl's exit status is %d" % done.returncode
            return seen["why"]

        wait_until(amiss, "the first token", limit_s)
        return time.monotonic() - began

    def amiss(self, names=None):
        """What is not ready or not up to date among the Deployments and StatefulSets; '' if nothing."""
        found = []
        for kind in SETS:
            for thing in self.api.list(kind, NAMESPACE):
                name = thing["metadata"]["name"]
                if (names is None or name in names) and not settled(thing):
                    status = thing["status"]
                    found.append("%s has %d of %d ready, %d up to date" % (name, status.get("readyReplicas", 0), thing["spec"]["replicas"],
                                                                           status.get("updatedReplicas", 0)))
                elif names is None or name in names:
                    # The controller's count lags behind by a moment; the pods themselves tell.
                    ready = [p for p in self.pods(name) if condition(p, "Ready") == "True" and "deletionTimestamp" not in p["metadata"]]
                    if len(ready) != thing["spec"]["replicas"]:
                        found.append("%s has %d of %d pods ready" % (name, len(ready), thing["spec"]["replicas"]))
        return "; ".join(found)

    def await_settled(self, names=None, limit_s=300):
        return wait_until(lambda: self.amiss(names), "pods are ready", limit_s)

    def pods(self, component=""):
        label = "app.kubernetes.io/name=skein" + (",app.kubernetes.io/component=" + component if component else "")
        return self.api.list("pods", NAMESPACE, label)

    def placement(self):
        """Lines "POD on NODE, ready"."""
        return "\n".join("%s on %s%s" % (p["metadata"]["name"], p["spec"].get("nodeName", "no node"),
                                         "" if condition(p, "Ready") == "True" else ", not ready") for p in self.pods())

    def status_of(self, pod):
        """A pod's GET /status, asked from its node, as kubelet's probes are."""
        admin = next(p["containerPort"] for p in pod["spec"]["containers"][0]["ports"] if p["name"] == "admin")
        machine = self.cluster.machines[pod["spec"]["nodeName"]]
        return json.loads(machine.sh("curl", "-s", "--max-time", "5", "http://%s:%d/status" % (pod["status"]["podIP"], admin)))

    def process_of(self, pod):
        """The first process of a pod's container, by its number on the pod's node."""
        machine = self.cluster.machines[pod["spec"]["nodeName"]]
        container = pod["status"]["containerStatuses"][0]["containerID"].split("://")[1]
        rows = machine.sh(*CTR, "tasks", "ls").splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith(container))

    def orchestrators(self):
        """The pod of the orchestrator that leads, and the pod of the other one."""
        def amiss():
            pods = self.pods("orchestrator")
            states = {p["metadata"]["name"]: self._state(p) for p in pods}
            self.led = sorted(pods, key=lambda p: states[p["metadata"]["name"]] == "standby")
            return None if sorted(states.values()) == ["serving", "standby"] else str(states)

        wait_until(amiss, "one orchestrator leads, and one stands by", 60)
        return self.led

    def _state(self, pod):
        try:
            return self.status_of(pod)["state"]
        except (RuntimeError, ValueError, KeyError) as error:
            return type(error).__name__

    def load(self, clients=2):
        return Load(self.client, self.url(), clients, self.say)

    def events(self, reason):
        return [e["message"] for e in self.api.list("events", NAMESPACE) if e.get("reason") == reason]


def is_etcd(pod):
    """It is no program of Skein: it is not scraped, and it stays where its data is."""
    return pod["metadata"]["labels"]["app.kubernetes.io/component"] == "etcd"


def settled(thing):
    spec, status = thing["spec"], thing["status"]
    wanted = spec["replicas"]
    if status.get("observedGeneration", 0) < thing["metadata"]["generation"]:
        return False
    if status.get("replicas", 0) != wanted or status.get("readyReplicas", 0) != wanted:
        return False
    if thing["spec"].get("serviceName") and status.get("updateRevision") != status.get("currentRevision"):
        return False
    return status.get("updatedReplicas", 0) == wanted


class Load:
    """Clients on node1 that ask through the router's Service all the while, and one with long streams; with-block: they run inside of it."""

    def __init__(self, machine, url, clients, say):
        self.say = say
        self.command = machine.inside("python3", os.path.join(HERE, "load.py"), url, MODEL, clients)
        self.result, self.process = None, None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        time.sleep(2)  # requests run when the step begins
        return self

    def __exit__(self, kind, *_):
        if kind is KeyboardInterrupt:
            return  # the machine is about to end, and it with it
        output, _ = self.process.communicate()
        self.result = load.summary([json.loads(line) for line in output.splitlines()])
        if kind:
            self.say("meanwhile: " + self.text())

    def text(self):
        outage = ", without an answer for %.1f s" % self.result["outage_s"] if self.result["outage_s"] else ""
        return "%d requests, %d failed%s, slowest first token %.1f s; %d of them long streams, %d failed, the longest took %.1f s%s" % (
            self.result["requests"], self.result["failed"], outage, self.result["first_token_max_s"], self.result["long"],
            self.result["long_failed"], self.result["long_max_s"],
            "".join("\n  %d x %s" % (n, why) for why, n in self.result["failures"].items()))
