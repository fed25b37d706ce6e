"""Steps that compare what is seen with what was computed: connections with policies, metrics with the autoscaler's query."""
import os
import time

import yaml

import autoscaler
from api import wait_until
from images import BUSYBOX
from machine import sh
from manifests import for_1_20
from trial import Failed
from workload import NAMESPACE, is_etcd

HERE = os.path.dirname(os.path.realpath(__file__))

COMPONENTS = {"router", "orchestrator", "prefill", "decode", "etcd"}
# Pairs that are allowed and need not be seen.
NO_CACHE = ": the nodes have no DNS cache"
UNSEEN = {"dns 53/TCP": ": names are asked by TCP only when an answer is too long for UDP",
          "169.254.20.10/32 53/TCP": NO_CACHE, "169.254.20.10/32 53/UDP": NO_CACHE}


def load_yaml(name):
    with open(os.path.join(HERE, "..", name), encoding="utf-8") as file:
        return [d for d in yaml.safe_load_all(file) if d]


class Watching:
    def policies(self):
        enforcer = self.cluster.enforcer
        self._common_plans()
        self.say("Prometheus is ready after %.1f s" % self.prometheus.start())
        wait_until(lambda: self._unscraped(self.prometheus), "every pod is scraped", 60)
        allowed = set(sh(os.path.join(HERE, "..", "policy_pairs"), input=yaml.safe_dump_all(self.skein.render("overlays/ha"))).splitlines())
        seen, refused = enforcer.pairs("seen"), enforcer.pairs("refused")
        if enforcer.errors:
            raise Failed("rules could not be written: " + enforcer.errors[0])
        skein = {p for p in seen if set(p.split()[:2]) & COMPONENTS}
        self.say("%d pairs are allowed, %d were seen, %d were refused" % (len(allowed), len(skein), len(refused)))
        for pair in sorted(allowed - skein):
            self.say("allowed, not seen: %s%s" % (pair, UNSEEN.get(pair.split(" ", 1)[1], "")))
        for pair in sorted(refused & allowed):
            self.say("refused for a moment, before the rules knew a new pod's address: " + pair)
        refused -= allowed
        unexplained = [p for p in sorted(allowed - skein) if p.split(" ", 1)[1] not in UNSEEN]
        if skein - allowed or unexplained or refused:
            raise Failed("seen, not allowed: %s; allowed, not seen: %s; refused: %s" % tuple(
                ", ".join(sorted(p)) or "none" for p in (skein - allowed, unexplained, refused)))
        self._stranger()

    def _common_plans(self):
        """Every prompt on two prefill-workers of two nodes, so that these connect to one another.

        Nodes of one instance each: groups of a fixed size take neighbours, and larger nodes have empty places between them.
        """
        setting = ("-n", NAMESPACE, "set", "env", "statefulset/orchestrator")
        self.cluster.kubectl(*setting, "SKEIN_PROFILE=llama3-8b-a100", "SKEIN_POLICY=fixed2", "SKEIN_NODE_SIZE=1")
        try:
            self.skein.await_settled()
            with self.skein.load() as load:
                time.sleep(10)
            self.say("with every prompt on two prefill-workers: " + load.text())
        finally:
            self.cluster.kubectl(*setting, "SKEIN_PROFILE-", "SKEIN_POLICY-", "SKEIN_NODE_SIZE-")
            self.skein.await_settled()

    def _stranger(self):
        """A pod of another namespace reaches the API, and nothing else."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger", "namespace": "default"}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent"}]}}
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(pod))
        try:
            self.cluster.kubectl("wait", "--for=condition=Ready", "pod/stranger", "--timeout=60s")
            reached = []
            for pod in self.skein.pods():
                for port in pod["spec"]["containers"][0]["ports"]:
                    # Once connected, it ends with the program's exit status.
                    done = self.cluster.kubectl("exec", "stranger", "--", "/bin/busybox", "nc", "-w", "2", pod["status"]["podIP"],
                                                str(port["containerPort"]), "-e", "/bin/busybox", "true", check=False)
                    if done.returncode == 0:
                        reached.append("%s %s" % (pod["metadata"]["name"], port["name"]))
            self.say("a pod of another namespace reaches: " + ", ".join(reached))
            if not reached or not all(r.startswith("router-") and r.endswith(" http") for r in reached):
                raise Failed("it should reach the routers' API and nothing else")
        finally:
            self.api.delete("pods", "default", "stranger", grace_s=0)

    def hpa(self):
        prometheus = self.prometheus
        self.say("Prometheus is ready after %.1f s" % prometheus.start())
        scalers, _ = for_1_20(load_yaml("components/autoscaling/autoscalers.yaml"))
        self.cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump_all(scalers))
        self.say("the API server accepts the %d HorizontalPodAutoscalers" % len(scalers))
        with self.skein.load(clients=12):
            seconds = wait_until(lambda: self._unscraped(prometheus), "every pod is scraped", 60)
            self.say("every pod is scraped after %.1f s" % seconds)
            time.sleep(11)  # two scrapes under load
            for scaler in scalers:
                self._evaluate(prometheus, scaler)

    def _unscraped(self, prometheus):
        targets = prometheus.targets()
        names = [p["metadata"]["name"] for p in self.skein.pods() if not is_etcd(p)]
        missing = [name for name in names if name not in targets]
        return "; ".join(["no target for " + m for m in missing] + ["%s: %s" % t for t in targets.items() if t[1]])

    def _evaluate(self, prometheus, scaler):
        spec, name = scaler["spec"], scaler["metadata"]["name"]
        pods = [p["metadata"]["name"] for p in self.skein.pods(name)]
        for metric in spec["metrics"]:
            if metric["type"] != "Pods":
                self.say("%s scales by %s, which the metrics server gives, not Prometheus" % (name, metric["resource"]["name"]))
                continue
            wanted, target = metric["pods"]["metric"]["name"], autoscaler.quantity(metric["pods"]["target"]["averageValue"])
            query = self._query_for(prometheus, wanted, pods)
            values = prometheus.query(query)
            if sorted(values) != sorted(pods):
                raise Failed("%s gives values for %s, not for %s" % (query, sorted(values), sorted(pods)))
            average = sum(values.values()) / len(values)
            chosen = autoscaler.replicas(len(pods), average, target, spec["minReplicas"], spec["maxReplicas"])
            self.say("%s: %s = %s; average %.2f, target %g: %d replicas become %d" % (
                name, query, ", ".join("%s %g" % v for v in sorted(values.items())), average, target, len(pods), chosen))

    @staticmethod
    def _query_for(prometheus, wanted, pods):
        """The query by which the adapter's rules answer for a metric: the first rule that offers one of that name."""
        for rule in load_yaml("prometheus_adapter.yaml")[0]["rules"]:
            for series in sorted(prometheus.series(rule["seriesQuery"])):
                if autoscaler.metric_name(rule, series) == wanted:
                    return autoscaler.query_of(rule, series, NAMESPACE, pods)
        raise Failed("no rule of prometheus_adapter.yaml offers %s from a series that is there" % wanted)
