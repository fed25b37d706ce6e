"""Steps in which something is broken."""
import time

import network
from api import wait_until
from kubernetes import condition
from node import CTR
from trial import Failed
from workload import NAMESPACE, is_etcd

OUTAGE_MAX_S = 10.0  # leases and probes tell of a lost pod within some seconds
MISSING_IMAGE = "localhost/skein:no-such-tag"


class Faults:
    def pod_kill(self):
        with self.skein.load() as load:
            victim = self.skein.pods("prefill")[0]
            self._kill_process(victim)
            router = self.skein.pods("router")[0]["metadata"]["name"]
            began = time.monotonic()
            self.api.delete("pods", NAMESPACE, router, grace_s=0)
            time.sleep(0.5)  # the controllers hear of it
            self.say("deleted the pod %s without grace" % router)
            self.skein.await_settled()
            self.say("all ready again %.1f s later" % (time.monotonic() - began))
        self.say(load.text())
        self.say("first token after that: %.1f s" % self.skein.await_first_token(time.monotonic()))
        if load.result["outage_s"] > OUTAGE_MAX_S:
            raise Failed("no request was answered for %.1f s, though one of two of each role was left" % load.result["outage_s"])

    def _kill_process(self, pod):
        """kill -9 of the pod's first process, as the kernel does when memory is short; kubelet restarts the container."""
        name = pod["metadata"]["name"]
        before = restarts(pod)
        machine = self.cluster.machines[pod["spec"]["nodeName"]]
        container = pod["status"]["containerStatuses"][0]["containerID"].split("://")[1]
        machine.sh(*CTR, "tasks", "kill", "--signal", "SIGKILL", container)

        def amiss():
            now = self.api.get("pods", NAMESPACE, name)
            return None if restarts(now) > before and condition(now, "Ready") == "True" else "not restarted and ready"

        self.say("kill -9 of %s: ready again after %.1f s" % (name, wait_until(amiss, name, 120)))

    def node_drain(self):
        """The node without the orchestrator that leads, then the other: when the leader is evicted, the other orchestrator leads."""
        home = self.skein.orchestrators()[0]["spec"]["nodeName"]
        for node in sorted((n.name for n in self.cluster.nodes), key=lambda name: name == home):
            self._no_failure(self._drain(node))

    def _drain(self, node):
        try:
            with self.skein.load() as load:
                began = time.monotonic()
                self.cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s")
                self.say("%s is drained after %.1f s" % (node, time.monotonic() - began))
                left = [p["metadata"]["name"] for p in self.skein.pods() if p["spec"].get("nodeName") == node]
                if left:
                    raise Failed("still on %s: %s" % (node, ", ".join(left)))
                self.skein.await_settled()
                self.say("all pods ready on the other node after %.1f s" % (time.monotonic() - began))
        finally:
            self.cluster.kubectl("uncordon", node)
        return load

    def _lead_where_etcd_may_be_lost(self):
        """Spreads all pods over both nodes; then the orchestrator leads that is on the node with one member of etcd. Returns that node."""
        for role in ("etcd", "orchestrator", "prefill", "decode", "router"):
            self._spread(role)
        self.skein.await_settled(limit_s=900)
        homes = [p["spec"]["nodeName"] for p in self.skein.pods("etcd")]
        lost = next(n for n in self.cluster.nodes if homes.count(n.name) == 1)
        leader, _ = self.skein.orchestrators()
        if leader["spec"]["nodeName"] != lost.name:
            self.api.delete("pods", NAMESPACE, leader["metadata"]["name"])
            wait_until(lambda: self._leads_elsewhere(lost.name), "the other orchestrator leads", 60)
            self.skein.await_settled()
        return lost

    def _leads_elsewhere(self, node):
        """Where the leader is, if it is not on this node."""
        home = self.skein.orchestrators()[0]["spec"]["nodeName"]
        return "" if home == node else "it is on " + home

    def _spread(self, role):
        """1.20 only prefers to spread pods. So if all are on one node, one of them is deleted while that node takes no pods."""
        homes = {p["spec"]["nodeName"] for p in self.skein.pods(role)}
        if len(homes) > 1:
            return
        (home,) = homes
        self.cluster.kubectl("cordon", home)
        try:
            self.api.delete("pods", NAMESPACE, self.skein.pods(role)[0]["metadata"]["name"])
            wait_until(lambda: len({p["spec"].get("nodeName") for p in self.skein.pods(role)}) < 2 and "all on " + home,
                       role + " is on both nodes", 300)
        finally:
            self.cluster.kubectl("uncordon", home)
        self.skein.await_settled(limit_s=600)

    def node_lost(self):
        """For new requests nothing is done. For the pods, what docs/kubernetes.md tells. 1.20 knows no out-of-service taint."""
        lost = self._lead_where_etcd_may_be_lost()
        left = next(n for n in self.cluster.nodes if n is not lost)
        # A member of etcd stays: its data is locked until it has ended.
        theirs = [p for p in self.skein.pods() if p["spec"].get("nodeName") == lost.name and not is_etcd(p)]
        gone = [p["metadata"]["name"] for p in theirs]
        containers = [p["status"]["containerStatuses"][0]["containerID"].split("://")[1] for p in theirs]
        client, self.skein.client = self.skein.client, left.machine
        began = time.monotonic()
        network.cut(lost.name)
        self.say("%s is lost, with %s" % (lost.name, ", ".join(sorted(gone))))
        try:
            self.say("first token %.1f s later, with nothing done" % self.skein.await_first_token(began))
            wait_until(lambda: condition(self.api.get("nodes", None, lost.name), "Ready") == "True" and "it is Ready", "the node is told lost", 120)
            self.say("Kubernetes says so after %.1f s" % (time.monotonic() - began))
            forced = time.monotonic()
            self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", "--force", "--grace-period=0", *gone)
            self.skein.await_settled(["router", "orchestrator", "prefill", "decode"])
            self.say("all but etcd's ready on %s %.1f s after they were deleted by force" % (left.name, time.monotonic() - forced))
        finally:
            self.skein.client = client
            network.mend(lost.name)
        found = time.monotonic()
        wait_until(lambda: condition(self.api.get("nodes", None, lost.name), "Ready") != "True" and "not Ready", "the node is back", 120)
        wait_until(lambda: ", ".join(set(lost.ctr("tasks", "ls", "-q").split()) & set(containers)), "what still ran there has ended", 300)
        self.say("%s is back; what still ran there has ended after %.1f s" % (lost.name, time.monotonic() - found))
        self.skein.await_settled()
        with self.skein.load() as load:
            time.sleep(5)
        self._no_failure(load)

    def bad_image(self):
        name = "router"
        with self.skein.load() as load:
            self.cluster.kubectl("-n", NAMESPACE, "set", "image", "deployment/" + name, "skein=" + MISSING_IMAGE)
            try:
                seconds = wait_until(lambda: not self._waiting("ImagePullBackOff", "ErrImagePull") and "no pod says so", "a pull error", 120)
                self.say("%s after %.1f s; the old pods go on" % (self._waiting("ImagePullBackOff", "ErrImagePull"), seconds))
            finally:
                self.cluster.kubectl("-n", NAMESPACE, "rollout", "undo", "deployment/" + name)
            self.say("rolled back after %.1f s" % self.skein.await_settled([name]))
        self._no_failure(load)

    def _waiting(self, *reasons):
        """"POD: REASON" of the first pod that waits for one of the reasons."""
        for pod in self.skein.pods():
            for status in pod["status"].get("containerStatuses", []):
                reason = status["state"].get("waiting", {}).get("reason")
                if reason in reasons:
                    return "%s: %s" % (pod["metadata"]["name"], reason)
        return ""

    def missing_model(self):
        with self.skein.load() as load:
            before = self.api.get("statefulsets", NAMESPACE, "prefill")["spec"]["replicas"]
            last = "prefill-%d" % (before - 1)
            self.cluster.kubectl("-n", NAMESPACE, "set", "env", "statefulset/prefill", "SKEIN_MODEL=/models/none")
            try:
                wait_until(lambda: None if "/models/none" in self._reason(last) else self._reason(last), last + " says what it waits for", 120)
                self.say("%s is not ready and says: %s" % (last, self._reason(last)))
            finally:
                self.cluster.kubectl("-n", NAMESPACE, "rollout", "undo", "statefulset/prefill")
            # Kubernetes leaves a pod that never became ready as it is, even when the template is put right.
            self.api.delete("pods", NAMESPACE, last)
            self.say("mended: all ready after %.1f s" % self.skein.await_settled(["prefill"]))
        self._no_failure(load)

    def _reason(self, name):
        pod = self.cluster.exists("pods", NAMESPACE, name)
        if not pod or not pod["status"].get("podIP") or pod["metadata"].get("deletionTimestamp"):
            return "no pod"
        try:
            return self.skein.status_of(pod).get("reason", "")
        except (RuntimeError, ValueError) as error:
            return str(error)

    def quota(self):
        """The quota allows as many pods as there are, so one more is refused."""
        count = len(self.skein.pods())
        replicas = self.api.get("statefulsets", NAMESPACE, "decode")["spec"]["replicas"]
        self.api.create("resourcequotas", NAMESPACE, {"metadata": {"name": "try"}, "spec": {"hard": {"pods": str(count)}}})
        try:
            wait_until(lambda: not self.api.get("resourcequotas", NAMESPACE, "try").get("status", {}).get("used") and "not counted", "quota", 60)
            self.cluster.kubectl("-n", NAMESPACE, "scale", "statefulset/decode", "--replicas=%d" % (replicas + 1))
            wait_until(lambda: not self._refusals() and "no event says so", "the quota refuses a pod", 60)
            self.say("the event says: " + self._refusals()[0][:200])
            self.say("first token meanwhile: %.1f s" % self.skein.await_first_token(time.monotonic()))
        finally:
            self.api.delete("resourcequotas", NAMESPACE, "try")
        self.say("without the quota the pod is ready after %.1f s" % self.skein.await_settled(["decode"]))
        self.cluster.kubectl("-n", NAMESPACE, "scale", "statefulset/decode", "--replicas=%d" % replicas)
        self.skein.await_settled(["decode"])

    def _refusals(self):
        return [m for m in self.skein.events("FailedCreate") if "exceeded quota" in m]


def restarts(pod):
    return sum(s["restartCount"] for s in pod["status"].get("containerStatuses", []))
