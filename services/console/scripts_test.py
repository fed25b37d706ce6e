#!/usr/bin/env python3
"""The console's scripts without a cluster: their unit tests (node --test) and their types (tsc)."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*command):
    """Whether it ended well."""
    return subprocess.run(command, cwd=HERE, timeout=240, check=False).returncode == 0


def main():
    modules = os.path.join(os.environ["SKEIN_NPM"], "node_modules")
    missing = [p for p in ("typescript", "uplot") if not os.path.isdir(os.path.join(modules, p))]
    if missing:
        print("%s has no %s: run tests/tools/fetch_npm" % (modules, missing[0]))
        return 1
    bad = []
    if not run("node", "--test", os.path.join(HERE, "testing", "scripts_test.mjs")):
        bad.append("unit tests")
    with tempfile.TemporaryDirectory() as folder:
        project = os.path.join(folder, "tsconfig.json")
        files = [os.path.join(HERE, "page", "main.mjs"), os.path.join(HERE, "view.d.ts"), os.path.join(modules, "uplot", "dist", "uPlot.d.ts")]
        with open(project, "w", encoding="utf-8") as out:
            json.dump({"extends": os.path.join(HERE, "tsconfig.json"), "files": files}, out)
        if not run("node", os.path.join(modules, "typescript", "bin", "tsc"), "--project", project):
            bad.append("types")
    print("failed: " + "; ".join(bad) if bad else "passed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
