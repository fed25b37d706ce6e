#!/usr/bin/env python3
"""OpenAI's own JavaScript client (npm's `openai`) against a real cluster: client.cjs, run on two prefill and two decode workers."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import Cluster, binaries_from_argv  # noqa: E402

MODEL = os.path.join(HERE, "..", "..", "deploy", "models", "fledgling")


def main():
    if not os.path.isdir(os.path.join(os.environ["SKEIN_NPM"], "node_modules", "openai")):
        print("SKEIN_NPM=%s has no node_modules/openai: run tests/tools/fetch_npm" % os.environ["SKEIN_NPM"])
        return 1
    with Cluster(binaries_from_argv(), MODEL) as cluster:
        code = subprocess.run(["node", os.path.join(HERE, "client.cjs"), cluster.url + "/v1", cluster.name], timeout=240,
                              check=False).returncode
        cluster.assert_idle_and_whole()
    return code


if __name__ == "__main__":
    sys.exit(main())
