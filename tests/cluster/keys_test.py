#!/usr/bin/env python3
"""The API keys of a running router: SIGHUP reloads the file, and a broken file changes nothing."""
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
        for text, why in (("sk-new\nsk new\n", "line 2: only 'priority=N' may follow a key, which is printable ASCII without spaces"),
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


if __name__ == "__main__":
    run_tests(sighup_takes_the_keys_of_now, a_broken_file_keeps_the_keys_and_says_why)
