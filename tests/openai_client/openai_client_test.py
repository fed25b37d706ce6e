#!/usr/bin/env python3
"""OpenAI's own JavaScript client (npm's `openai`) against a real cluster: client.cjs, run on two prefill and two decode workers."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import Cluster, binaries_from_argv  # noqa: E402

MODEL = os.path.join(HERE, "..", "..", "deploy", "models", "fledgling")


def main():
    npm = os.environ.get("SKEIN_NPM", "")
    if not os.path.isdir(os.path.join(npm, "node_modules", "openai")) or not shutil.which("node"):
        print("skipped  needs node and npm's openai (SKEIN_NPM)\nCASES 0 passed, 0 failed, 1 skipped")
        return 0
    with Cluster(binaries_from_argv(), MODEL) as cluster:
        code = subprocess.run(["node", os.path.join(HERE, "client.cjs"), cluster.url + "/v1", cluster.name], timeout=240,
                              check=False).returncode
        cluster.assert_idle_and_whole()
    return code


if __name__ == "__main__":
    sys.exit(main())
