"""A small client of the Kubernetes API: JSON over HTTPS with a bearer token."""
import http.client
import json
import ssl
import threading
import time

GROUPS = {"pods": "/api/v1", "nodes": "/api/v1", "services": "/api/v1", "endpoints": "/api/v1", "events": "/api/v1",
          "namespaces": "/api/v1", "resourcequotas": "/api/v1", "deployments": "/apis/apps/v1", "statefulsets": "/apis/apps/v1",
          "replicasets": "/apis/apps/v1", "networkpolicies": "/apis/networking.k8s.io/v1",
          "horizontalpodautoscalers": "/apis/autoscaling/v2beta2"}


class ApiError(Exception):
    def __init__(self, status, body):
        super().__init__("HTTP %d: %s" % (status, body[:400]))
        self.status = status


def path_of(kind, namespace=None, name=None):
    path = GROUPS[kind] + ("/namespaces/" + namespace if namespace else "") + "/" + kind
    return path + ("/" + name if name else "")


class Api:
    def __init__(self, host, authority, token):
        self.host, self.token = host, token
        self.tls = ssl.create_default_context(cafile=authority)

    def _connect(self, timeout_s):
        return http.client.HTTPSConnection(self.host, 6443, context=self.tls, timeout=timeout_s)

    def call(self, method, path, body=None, content_type="application/json", timeout_s=30):
        connection = self._connect(timeout_s)
        try:
            headers = {"Authorization": "Bearer " + self.token, "Content-Type": content_type, "Accept": "application/json, */*"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, text)
        return json.loads(text) if text.startswith("{") else text

    def get(self, kind, namespace=None, name=None):
        return self.call("GET", path_of(kind, namespace, name))

    def list(self, kind, namespace=None, labels=""):
        path = path_of(kind, namespace) + ("?labelSelector=" + labels.replace(",", "%2C").replace("=", "%3D") if labels else "")
        return self.call("GET", path)["items"]

    def merge(self, kind, namespace, name, change):
        kind_of_patch = "application/strategic-merge-patch+json"
        return self.call("PATCH", path_of(kind, namespace, name), change, kind_of_patch)

    def create(self, kind, namespace, thing):
        return self.call("POST", path_of(kind, namespace), thing)

    def delete(self, kind, namespace, name, grace_s=None):
        path = path_of(kind, namespace, name) + ("" if grace_s is None else "?gracePeriodSeconds=%d" % grace_s)
        return self.call("DELETE", path)

    def watch(self, kind, seen, stop):
        """Calls seen(name -> thing, event) in a thread of its own at each change, until stop is set.

        Each reconnection begins with the whole list; a name is "namespace/name".
        """
        thread = threading.Thread(target=self._watch, args=(kind, seen, stop), name="watch " + kind, daemon=True)
        thread.start()
        return thread

    def _watch(self, kind, seen, stop):
        while not stop.is_set():
            try:
                listing = self.call("GET", path_of(kind))
                things = {key(t): t for t in listing["items"]}
                seen(dict(things), None)
                self._follow(kind, listing["metadata"]["resourceVersion"], things, seen, stop)
            except (OSError, http.client.HTTPException, ApiError, ValueError):
                stop.wait(0.3)

    def _follow(self, kind, version, things, seen, stop):
        connection = self._connect(60)
        try:
            path = "%s?watch=1&timeoutSeconds=50&resourceVersion=%s" % (path_of(kind), version)
            connection.request("GET", path, None, {"Authorization": "Bearer " + self.token})
            answer = connection.getresponse()
            for line in answer:
                event = json.loads(line)
                if stop.is_set() or event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    things.pop(key(event["object"]), None)
                else:
                    things[key(event["object"])] = event["object"]
                seen(dict(things), event)
        finally:
            connection.close()


def key(thing):
    return thing["metadata"].get("namespace", "") + "/" + thing["metadata"]["name"]


def wait_until(condition, what, limit_s, every_s=0.2):
    """Waits for condition(), which returns None or '' when it holds and else what is still amiss; returns the seconds."""
    began = time.monotonic()
    while True:
        amiss = condition()
        if not amiss:
            return time.monotonic() - began
        if time.monotonic() - began > limit_s:
            raise TimeoutError("%s: not within %d s: %s" % (what, limit_s, amiss))
        time.sleep(every_s)
