#!/usr/bin/env python3
"""Clients of npm (`openai`, `ai`) against a real cluster of two prefill and two decode workers: client.cjs, ai_client.cjs and
batch_client.cjs, whose batches the cluster computes."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import Cluster, binaries_from_argv  # noqa: E402

MODEL = os.path.join(HERE, "..", "..", "deploy", "models", "fledgling")


CLIENTS = {"client.cjs": "openai", "ai_client.cjs": "ai", "batch_client.cjs": "openai"}  # and the package that each one needs
MORE = {"batch_client.cjs": ["computes"]}  # arguments


def main():
    missing = [p for p in CLIENTS.values() if not os.path.isdir(os.path.join(os.environ["SKEIN_NPM"], "node_modules", p))]
    if missing:
        print("SKEIN_NPM=%s has no node_modules/%s: run tests/tools/fetch_npm" % (os.environ["SKEIN_NPM"], missing[0]))
        return 1
    code = 0
    with tempfile.TemporaryDirectory() as state, Cluster(binaries_from_argv(), MODEL, orchestrator_flags=["--state-dir=" + state]) as cluster:
        for client in CLIENTS:
            code |= subprocess.run(["node", os.path.join(HERE, client), cluster.url + "/v1", cluster.name, *MORE.get(client, [])], timeout=240,
                                   check=False).returncode
            cluster.assert_idle_and_whole()
    return code


if __name__ == "__main__":
    sys.exit(main())
