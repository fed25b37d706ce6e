"""A real Prometheus in the cluster, in the namespace that the policies let through, and questions to it."""
import json
import os
import urllib.parse
import urllib.request

from api import wait_until
from images import PROMETHEUS
from kubernetes import condition

MANIFEST = os.path.join(os.path.dirname(os.path.realpath(__file__)), "prometheus.yaml")


class Prometheus:
    def __init__(self, cluster):
        self.cluster, self.api, self.address = cluster, cluster.api, ""

    def start(self):
        if self.address:
            return 0.0
        with open(MANIFEST, encoding="utf-8") as file:
            text = file.read().replace("IMAGE", PROMETHEUS)
        self.cluster.kubectl("apply", "-f", "-", input=text)
        return wait_until(self._not_ready, "Prometheus", 120)

    def _not_ready(self):
        for pod in self.api.list("pods", "monitoring", "app.kubernetes.io/name=prometheus"):
            if condition(pod, "Ready") == "True":
                self.address = pod["status"]["podIP"]
                return None
        return "its pod is not ready"

    def _get(self, path, **query):
        url = "http://%s:9090/api/v1/%s?%s" % (self.address, path, urllib.parse.urlencode(query, doseq=True))
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def targets(self):
        """{pod: last error, '' if the last scrape was good}"""
        return {t["labels"]["pod"]: "" if t["health"] == "up" else t["lastError"] or "not scraped yet"
                for t in self._get("targets", state="active")["activeTargets"]}

    def series(self, matcher):
        return {s["__name__"] for s in self._get("series", **{"match[]": matcher})}

    def query(self, expression):
        """{pod: value} of an instant query by pod."""
        return {r["metric"].get("pod", ""): float(r["value"][1]) for r in self._get("query", query=expression)["result"]}

