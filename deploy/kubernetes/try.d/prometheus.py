"""A real Prometheus in the cluster, in the namespace that the policies let through, and questions to it."""
import http.client
import http.server
import json
import os
import threading
import urllib.parse
import urllib.request

from api import ApiError, wait_until
from images import PROMETHEUS
from kubernetes import condition
from network import CONTROL_IP

MANIFEST = os.path.join(os.path.dirname(os.path.realpath(__file__)), "prometheus.yaml")


class Prometheus:
    def __init__(self, cluster):
        self.cluster, self.api, self.address = cluster, cluster.api, ""

    def start(self):
        if self.address:
            return 0.0
        with open(MANIFEST, encoding="utf-8") as file:
            text = file.read().replace("IMAGE", PROMETHEUS).replace("TARGETS", "%s:%d" % (CONTROL_IP, self._serve_targets()))
        self.cluster.kubectl("apply", "-f", "-", input=text)
        return wait_until(self._not_ready, "Prometheus", 120)

    def _serve_targets(self):
        """Prometheus asks here for what to scrape; returns the port."""
        api = self.api

        class Targets(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name  # http.server's name
                try:
                    body = json.dumps(targets_of(api.list("pods", "skein"))).encode()
                    status = 200
                except (OSError, ApiError, http.client.HTTPException) as error:  # the cluster is being taken down
                    body, status = str(error).encode(), 503
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # Prometheus has given up waiting

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        server = http.server.ThreadingHTTPServer((CONTROL_IP, 0), Targets)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_address[1]

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



def targets_of(pods):
    """What prometheus.io's annotations say, as HTTP service discovery wants it."""
    found = []
    for pod in pods:
        notes, ip = pod["metadata"].get("annotations", {}), pod["status"].get("podIP")
        if ip and notes.get("prometheus.io/scrape") == "true" and pod["status"]["phase"] == "Running":
            found.append({"targets": ["%s:%s" % (ip, notes["prometheus.io/port"])],
                          "labels": {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"], "node": pod["spec"]["nodeName"]}})
    return found
