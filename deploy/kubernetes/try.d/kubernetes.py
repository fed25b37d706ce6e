"""The whole Kubernetes of the trial: brings it up, and takes it down so that nothing is left of it."""
import json
import os
import shutil
import threading
import time

import network
from api import ApiError, wait_until
from controlplane import ControlPlane
from machine import Machine, enter_network, sh
from names import NameServer
from node import Node, cgroups_of, remove_cgroup
from policy import Enforcer

# kubelet sets these for the whole host.
SYSCTLS = ("vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops", "kernel.keys.root_maxkeys",
           "kernel.keys.root_maxbytes")


CGROUP = "/skein-try"


class Cluster:
    def __init__(self, cache):
        self.cache, self.folder = cache, os.path.join(cache, "run")
        machines = [Machine("control", network.CONTROL, self.folder)]
        machines += [Machine(node, network.namespace(node), self.folder) for node in network.NODES]
        self.machines = {m.name: m for m in machines}
        self.control = ControlPlane(self.machines["control"], cache)
        self.nodes = [Node(self.machines[name], self.control) for name in network.NODES]
        self.stop = threading.Event()
        self.enforcer = None

    @property
    def api(self):
        return self.control.api

    def up(self, say, archives):
        self.stop.clear()
        os.makedirs(self.folder)
        self._keep_sysctls()
        network.make()
        for machine in self.machines.values():
            machine.start()
        enter_network(network.CONTROL)
        self.control.start()
        say("the API server answers")
        self.api.create("namespaces", None, {"metadata": {"name": "monitoring", "labels": {"kubernetes.io/metadata.name": "monitoring"}}})
        self.api.merge("namespaces", None, "kube-system", {"metadata": {"labels": {"kubernetes.io/metadata.name": "kube-system"}}})
        NameServer(self.machines["control"], self.api).start(self.stop)
        self.enforcer = Enforcer([node.machine for node in self.nodes], self.api)
        self.enforcer.start(self.stop)
        for node in self.nodes:
            node.start(archives)
        wait_until(self._nodes_missing, "the nodes are ready", 180)
        # With its first rules kube-proxy forgets connections to UDP Services; answers of the name server would look like new ones.
        wait_until(lambda: ", ".join(node.name for node in self.nodes if not node.has_services()), "kube-proxy has its first rules", 60)
        say("%d nodes are ready" % len(self.nodes))

    def _nodes_missing(self):
        ready = [n["metadata"]["name"] for n in self.api.list("nodes") if condition(n, "Ready") == "True"]
        return ", ".join(node.name for node in self.nodes if node.name not in ready)

    def _keep_sysctls(self):
        values = {name: sh("sysctl", "-n", name).strip() for name in SYSCTLS}
        with open(os.path.join(self.folder, "sysctls.json"), "w", encoding="ascii") as file:
            json.dump(values, file)

    def down(self):
        """Takes down what runs, also what an earlier trial left. Returns what could not be removed."""
        self.stop.set()
        for machine in self.machines.values():
            machine.stop()
        network.remove()
        until = time.monotonic() + 10
        while cgroups_of(CGROUP) and time.monotonic() < until:
            remove_cgroup(CGROUP)
            time.sleep(0.1)
        try:
            with open(os.path.join(self.folder, "sysctls.json"), encoding="ascii") as file:
                for name, value in json.load(file).items():
                    sh("sysctl", "-qw", "%s=%s" % (name, value))
        except FileNotFoundError:
            pass
        shutil.rmtree(self.folder, ignore_errors=True)
        left = [path for path in (self.folder, *cgroups_of(CGROUP), *("/run/netns/" + network.namespace(n) for n in network.NODES))
                if os.path.exists(path)]
        return left

    def kubectl(self, *arguments, **options):
        return sh("kubectl", "--kubeconfig", self.control.kubeconfig("admin"), *arguments, **options)

    def apply(self, text):
        return self.kubectl("apply", "-f", "-", input=text)

    def exists(self, kind, namespace, name):
        try:
            return self.api.get(kind, namespace, name)
        except ApiError as error:
            if error.status != 404:
                raise
            return None


def condition(thing, kind):
    return next((c["status"] for c in thing.get("status", {}).get("conditions", []) if c["type"] == kind), "")
