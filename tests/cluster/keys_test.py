#!/usr/bin/env python3
"""The API keys of a running router: SIGHUP reloads the file, and a broken file changes nothing."""
import hashlib
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402

MODEL = os.path.join("deploy", "models", "fledgling")


class Router(Cluster):
    """Without a cluster: /tokenize needs none."""

    def start(self):
        self.keys = os.path.join(self.folder, "keys")
        self.write_keys("sk-old\n")
        self.flags["router"] = ["--api-key-file=" + self.keys]
        self.orchestrator = "127.0.0.1:1"
        self.start_router()

    def write_keys(self, text):
        with open(self.keys + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.keys + ".new", 0o600)
        os.rename(self.keys + ".new", self.keys)

    def log_lines(self, msg):
        whole = self.processes["router"].text().rpartition("\n")[0]  # the router may be writing the line behind it
        lines = (json.loads(line) for line in whole.splitlines() if line.startswith("{"))
        return [line for line in lines if line["msg"] == msg]

    def reload(self, msg):
        """Sends SIGHUP and waits for the log line with the result."""
        before = len(self.log_lines(msg))
        self.processes["router"].popen.send_signal(signal.SIGHUP)
        self.until(lambda: len(self.log_lines(msg)) > before, "the log says " + msg)
        return self.log_lines(msg)[-1]

    def status_with(self, key):
        try:
            self.post("/tokenize", {"model": self.name, "prompt": "a"}, headers={"Authorization": "Bearer " + key})
            return 200
        except HttpFailure as failure:
            return failure.code


def sighup_takes_the_keys_of_now():
    with Router(binaries_from_argv(), MODEL) as router:
        assert (router.status_with("sk-old"), router.status_with("sk-new")) == (200, 401)
        router.write_keys("sk-new\nsk-third\n")
        assert (router.status_with("sk-old"), router.status_with("sk-new")) == (200, 401), "read before it was asked to"
        assert router.reload("API keys read")["keys"] == 2
        assert [router.status_with(key) for key in ("sk-old", "sk-new", "sk-third")] == [401, 200, 200]
        assert "sk-" not in router.processes["router"].text(), "the log holds a key"


def a_broken_file_keeps_the_keys_and_says_why():
    with Router(binaries_from_argv(), MODEL) as router:
        grammar = ("line 2: only 'priority=N', 'tenant=NAME', 'id=NAME', 'ttft-ms=N' and 'tpot-ms=N' may follow a key, "
                   "which is printable ASCII without spaces")
        for text, why in (("sk-new\nsk new\n", grammar),
                          ("# none\n", "the file has no keys"),
                          ("sha256:123\n", "line 1: 'sha256:' takes 64 hexadecimal digits")):
            router.write_keys(text)
            line = router.reload("API keys not reloaded; the previous keys stay valid")
            assert line["level"] == "error", line
            assert line["reason"] == "--api-key-file: '%s': %s" % (router.keys, why), line
            assert [router.status_with(key) for key in ("sk-old", "sk-new")] == [200, 401]
        os.remove(router.keys)
        line = router.reload("API keys not reloaded; the previous keys stay valid")
        assert line["reason"].endswith("cannot be read"), line
        assert router.status_with("sk-old") == 200


class Tenants(Router):
    """With tenants, an audit log and operators."""

    def start(self):
        self.keys, self.tenants, self.audit, self.operators = (
            os.path.join(self.folder, name) for name in ("keys", "tenants", "audit", "admin"))
        self.write_keys("sk-a tenant=a id=key-a\nsk-a2 tenant=a\nsk-b tenant=b\n")
        self.write_tenants(1)
        with open(self.operators, "w", encoding="utf-8") as file:
            file.write("sha256:%s\n" % hashlib.sha256(b"sk-operator").hexdigest())
        self.flags["router"] = ["--api-key-file=" + self.keys, "--tenants-file=" + self.tenants, "--audit-log=" + self.audit,
                                "--admin-key-file=" + self.operators]
        self.orchestrator = "127.0.0.1:1"
        self.start_router()

    def write_tenants(self, requests):
        with open(self.tenants, "w", encoding="utf-8") as file:
            file.write("tenants: {a: {requests_per_minute: %d}, b: }\n" % requests)

    def admin_request(self, method, path, key):
        return json.loads(self.request(method, path, headers={"Authorization": "Bearer " + key}, base=self.processes["router"].admin()))

    def audit_lines(self):
        with open(self.audit, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().rpartition("\n")[0].splitlines()]


def refused_with(code, call):
    try:
        call()
    except HttpFailure as failure:
        assert failure.code == code, failure
        return failure
    raise AssertionError("not refused with %d" % code)


def a_tenants_limit_holds_for_all_its_keys_and_survives_a_reload():
    with Tenants(binaries_from_argv(), MODEL) as router:
        asked = ("sk-a", "sk-a2", "sk-a", "sk-b", "sk-b", "sk-b")
        assert [router.status_with(key) for key in asked] == [200, 429, 429, 200, 200, 200]
        router.reload("API keys read")
        assert router.status_with("sk-a") == 429, "a reload forgives nothing"
        for path in ("/metrics", "/openapi.json", "/version"):
            refused_with(401, lambda: router.get(path, raw=True))  # pylint: disable=cell-var-from-loop
        for key in ("", "sk-a"):
            refused_with(401, lambda: router.admin_request("GET", "/admin/tenants", key))  # pylint: disable=cell-var-from-loop
        tenants = {t["name"]: t for t in router.admin_request("GET", "/admin/tenants", "sk-operator")["tenants"]}
        assert tenants["a"]["keys"][0] == "key-a" and tenants["a"]["limits"]["requests_per_minute"] == 1, tenants
        used = tenants["a"]["used"]
        assert (used["requests"]["finished"], used["over_limits"]["requests_per_minute"]) == (1, 3), tenants
        assert tenants["b"]["used"]["requests"]["finished"] == 3, tenants
        router.until(lambda: len(router.audit_lines()) == 7, "the audit log has a line for each request")
        lines = router.audit_lines()
        assert [(line["tenant"], line["status"]) for line in lines] == [
            ("a", 200), ("a", 429), ("a", 429), ("b", 200), ("b", 200), ("b", 200), ("a", 429)], lines
        assert lines[0]["key"] == "key-a"
        text = router.processes["router"].text() + open(router.audit, encoding="utf-8").read()
        assert "sk-" not in text, "a log holds a key"


def operators_reload_and_the_audit_log_is_opened_anew():
    with Tenants(binaries_from_argv(), MODEL) as router:
        assert [router.status_with("sk-a") for _ in range(2)] == [200, 429]
        router.until(lambda: len(router.audit_lines()) == 2, "two lines")
        os.rename(router.audit, router.audit + ".1")
        router.write_tenants(100)
        refused_with(401, lambda: router.admin_request("POST", "/admin/reload", "sk-a"))
        assert router.admin_request("POST", "/admin/reload", "sk-operator") == {"reloaded": True}
        assert router.status_with("sk-a") == 200
        router.until(lambda: os.path.exists(router.audit) and len(router.audit_lines()) == 1, "the new file has the next line")
        with open(router.tenants, "w", encoding="utf-8") as file:
            file.write("tenants: {a: {requests: 1}, b: }\n")
        wrong = refused_with(409, lambda: router.admin_request("POST", "/admin/reload", "sk-operator"))
        assert "a tenant has no 'requests'" in wrong.error()["message"], wrong
        assert router.status_with("sk-a") == 200


if __name__ == "__main__":
    run_tests(sighup_takes_the_keys_of_now, a_broken_file_keeps_the_keys_and_says_why,
              a_tenants_limit_holds_for_all_its_keys_and_survives_a_reload,
              operators_reload_and_the_audit_log_is_opened_anew)
