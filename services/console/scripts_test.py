#!/usr/bin/env python3
"""The console's scripts without a cluster: their unit tests (node --test), their types (tsc), and that uPlot is npm's."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")


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
    if not run("node", os.path.join(modules, "typescript", "bin", "tsc"), "--project", os.path.join(HERE, "tsconfig.json")):
        bad.append("types")
    for name in ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "dist/uPlot.d.ts", "LICENSE"):
        with open(os.path.join(modules, "uplot", name), "rb") as theirs, \
                open(os.path.join(ROOT, "third_party", "uplot", os.path.basename(name)), "rb") as ours:
            if theirs.read() != ours.read():
                bad.append("third_party/uplot: %s is not npm's" % name)
    print("failed: " + "; ".join(bad) if bad else "passed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
