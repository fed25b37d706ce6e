"""The steps of the trial, in the order of arguments.STEPS; one method each, by the step's name."""
import time

from api import wait_until
from chaos import Chaos
from faults import Faults, restarts
from prometheus import Prometheus
from trial import Failed
from watching import Watching
from workload import NAMESPACE, Workload


class Steps(Chaos, Faults, Watching):
    def __init__(self, cluster, say):
        self.cluster, self.api, self.say = cluster, cluster.api, say
        self.skein, self.prometheus = Workload(cluster, say), Prometheus(cluster)

    def demo(self):
        self._deploy("overlays/demo")

    def ha(self):
        self._deploy("overlays/ha")
        for role in ("router", "orchestrator", "etcd"):
            nodes = {p["spec"]["nodeName"] for p in self.skein.pods(role)}
            if len(nodes) < 2:
                raise Failed("the pods %s are not spread: all on %s" % (role, ", ".join(nodes)))
        leader, standby = self.skein.orchestrators()
        self.say("%s leads, %s stands by" % (leader["metadata"]["name"], standby["metadata"]["name"]))

    def _deploy(self, overlay):
        documents = self.skein.render(overlay)
        began = time.monotonic()
        self.skein.apply(documents)
        self.say("%d objects applied in %.1f s" % (len(documents), time.monotonic() - began))
        seconds = self.skein.await_first_token(began)
        self.say("first token %.1f s after kubectl apply" % seconds)
        self.skein.await_settled()
        self.say("all pods ready %.1f s after kubectl apply" % (time.monotonic() - began))
        self.say(self.skein.placement())

    def scale_out(self):
        self._scale(1)

    def scale_in(self):
        self._scale(-1)

    def _scale(self, difference):
        with self.skein.load() as load:
            for name in ("prefill", "decode"):
                replicas = self.api.get("statefulsets", NAMESPACE, name)["spec"]["replicas"] + difference
                began = time.monotonic()
                self.cluster.kubectl("-n", NAMESPACE, "scale", "statefulset/" + name, "--replicas=%d" % replicas)
                self.skein.await_settled([name])
                wait_until(lambda name=name, n=replicas: len(self.skein.pods(name)) != n and "pods are ending", name, 300)
                self.say("%s: %d replicas after %.1f s" % (name, replicas, time.monotonic() - began))
            time.sleep(5)
        self._no_failure(load)

    def _no_failure(self, load):
        self.say(load.text())
        if load.result["failed"]:
            raise Failed("%d of %d requests failed" % (load.result["failed"], load.result["requests"]))
        if not load.result["requests"]:
            raise Failed("no request ran meanwhile")

    def roll_routers(self):
        self._no_failure(self._roll("deployment/router"))

    def roll_prefill(self):
        self._no_failure(self._roll("statefulset/prefill"))

    def roll_decode(self):
        load = self._roll("statefulset/decode")
        self.say(load.text())
        self.say("%d streams were cut by the update" % load.result["failed"])

    def _roll(self, what):
        began = time.monotonic()
        with self.skein.load() as load:
            self.cluster.kubectl("-n", NAMESPACE, "rollout", "restart", what)
            self.skein.await_settled([what.split("/")[1]], limit_s=600)
            self.say("%s: all pods replaced after %.1f s" % (what, time.monotonic() - began))
            time.sleep(5)
        return load

    def node_pod(self):
        """Then one of its processes is killed: it alone is started again."""
        if self.cluster.exists("namespaces", None, NAMESPACE):
            seconds = self._delete_namespace()
            self.say("what the steps before deployed is deleted after %.1f s" % seconds)
        self._deploy("examples/node-pods")
        pod = self.skein.pods("node")[0]
        before = self.skein.status_of(pod)["instances"]
        if len(before) < 2 or not all(i["running"] for i in before):
            raise Failed("not all instances of %s run: %s" % (pod["metadata"]["name"], before))
        self.say("%d processes in %s" % (len(before), pod["metadata"]["name"]))
        self._kill_instance(pod, before)

    def _delete_namespace(self):
        """Its pods first: while there are any, Kubernetes looks at a namespace again only after half of their grace period, five minutes."""
        self.cluster.kubectl("-n", NAMESPACE, "delete", "deployments,statefulsets", "--all", "--wait=false")
        wait_until(lambda: len(self.skein.pods()) and "%d pods" % len(self.skein.pods()), "the pods have ended", 300)
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        return wait_until(lambda: self.cluster.exists("namespaces", None, NAMESPACE) and "still there", "the namespace is deleted", 300)

    def _kill_instance(self, pod, before):
        machine = self.cluster.machines[pod["spec"]["nodeName"]]
        machine.sh("pkill", "-KILL", "-f", "skein-prefill-worker.*--admin-port=" + before[1]["admin"].split(":")[1])
        began = time.monotonic()

        def amiss():
            now = self.skein.status_of(pod)["instances"]
            state = (now[1]["status"] or {}).get("state")  # none until it answers
            again = now[1]["running"] and now[1]["restarts"] > before[1]["restarts"] and state == "serving"
            return None if again else "instance 1: %s" % now[1]

        wait_until(amiss, "the killed process is started again", 60)
        now = self.skein.status_of(pod)["instances"]
        self.say("kill -9 of instance 1: it serves again after %.1f s" % (time.monotonic() - began))
        others = [i["index"] for i in now if i["index"] != 1 and i["pid"] != before[i["index"]]["pid"]]
        if others or restarts(self.api.get("pods", NAMESPACE, pod["metadata"]["name"])) != restarts(pod):
            raise Failed("others were started again, too: %s" % (others or "the container"))
