#!/usr/bin/env python3
"""Every user script answers --help and refuses unknown arguments, without any other effect.

Scripts are the executable files that git knows, but for tests that Bazel runs (*_test.py, *_test.sh) and third_party/. They
run with commands on the PATH that only note that they were called.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
COMMANDS = ("apt-get", "bazel", "curl", "kill", "nice", "node", "npm", "nvidia-smi", "setsid", "sudo")
UNKNOWN = "--no-such-argument"


def scripts():
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", "-s"], check=True, stdout=subprocess.PIPE, text=True).stdout
    paths = [line.split("\t")[1] for line in listing.splitlines() if line.startswith("100755")]
    found = [p for p in paths if not p.endswith(("_test.py", "_test.sh")) and not p.startswith("third_party/")]
    assert len(found) > 15 and "deploy/local/down" in found, found
    return found


class Bench:
    """An empty home and run folder, and a PATH whose COMMANDS only record that they were called."""

    def __init__(self, folder):
        self.folder = folder
        self.notes = os.path.join(folder, "called")
        stubs = os.path.join(folder, "bin")
        os.mkdir(stubs)
        for command in COMMANDS:
            path = os.path.join(stubs, command)
            with open(path, "w", encoding="utf-8") as stub:
                stub.write("#!/bin/sh\necho %s \"$@\" >>'%s'\nexit 99\n" % (command, self.notes))
            os.chmod(path, 0o755)
        self.environment = {"PATH": stubs + ":/usr/bin:/bin", "HOME": os.path.join(folder, "home"), "LANG": "C.UTF-8",
                            "SKEIN_RUN_DIR": os.path.join(folder, "run"), "PYTHONDONTWRITEBYTECODE": "1"}

    def call(self, script, argument):
        done = subprocess.run([os.path.join(ROOT, script), argument], env=self.environment, cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        assert not os.path.exists(self.notes), "%s %s called %s" % (script, argument, open(self.notes).read())
        assert sorted(os.listdir(self.folder)) == ["bin"], "%s %s left %s" % (script, argument, os.listdir(self.folder))
        return done


def each_answers_help_and_does_nothing():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for script in scripts():
            done = bench.call(script, "--help")
            assert done.returncode == 0, "%s --help: %d\n%s" % (script, done.returncode, done.stderr)
            assert len(done.stdout.splitlines()) >= 2 and not done.stderr, "%s --help: %r" % (script, done)


def each_refuses_what_it_does_not_know():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for script in scripts():
            done = bench.call(script, UNKNOWN)
            assert done.returncode == 2, "%s %s: %d, not 2\n%s" % (script, UNKNOWN, done.returncode, done.stderr)
            assert len(done.stderr.splitlines()) == 1 and not done.stdout, "%s %s: %r" % (script, UNKNOWN, done)
            assert UNKNOWN in done.stderr or "are required" in done.stderr, "%s: %r" % (script, done.stderr)


if __name__ == "__main__":
    run_tests(each_answers_help_and_does_nothing, each_refuses_what_it_does_not_know)
