#!/usr/bin/env python3
"""README.md and docs/ are correct: every command is copied from the page and run, with prebuilt programs.

tests/readme/run does the same from nothing, in a fresh clone. A command that no rule here knows how to run fails the test.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "cluster")]
from cluster import NAMES, binaries_from_argv, free_ports, run_tests  # noqa: E402  pylint: disable=wrong-import-position
from pages import commands_of, missing, sessions_of  # noqa: E402  pylint: disable=wrong-import-position

SESSION_S = 300
README_RULES = (r"deploy/local/(up|down|ask)\b", r"deploy/local/run/bin/skeinctl\b", r"curl\b")
PROGRAM = re.compile(r"^(orchestrator|prefill_worker|decode_worker|router|skeinctl)\b")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
# Commands of tests/run, bazel, deploy/kubernetes/generate, and all others.
OTHERS_FLAGS = {"--config", "--help", "--jobs", "--runbook-base", "--sanitize", "--version", "--seconds"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def folder_of_binaries(folder):
    """One folder with all programs, for deploy/local/up --bin and for the PATH."""
    os.makedirs(folder)
    for name, path in binaries_from_argv().items():
        os.symlink(path, os.path.join(folder, name))
    return folder


def run_session(script, where, prints, environment, cwd=ROOT):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=cwd, env=environment, text=True, timeout=SESSION_S,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print("--- %s\n%s\n%s" % (where, script, done.stdout), flush=True)
    assert done.returncode == 0, "%s: exit status %d" % (where, done.returncode)
    assert (lost := missing(prints, done.stdout)) is None, "%s: did not print %r" % (where, lost)


def the_readme_does_as_it_says():
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    port = str(free_ports(1))
    environment = dict(os.environ, SKEIN_RUN_DIR=folder + "/run", HOME=folder)

    def here(text):  # a port and programs of our own; everything else as it stands in the page
        text = re.sub(r"^deploy/local/up\b", "deploy/local/up --bin %s/bin --port %s" % (folder, port), text, flags=re.M)
        return text.replace("127.0.0.1:8000", "127.0.0.1:" + port).replace("deploy/local/run/", folder + "/run/")

    folder_of_binaries(folder + "/bin")
    try:
        for session in sessions_of("README.md", read("README.md")):
            for command in commands_of(session):
                assert any(re.match(rule, command) for rule in README_RULES), \
                    "%s: there is no rule here by which to run: %s" % (session.where(), command)
            run_session(here("\n".join(session.lines)), session.where(), [here(line) for line in session.prints], environment)
    finally:
        subprocess.run([ROOT + "/deploy/local/down"], env=environment, check=True, timeout=SESSION_S)


class Hosts:
    """The hosts of docs/several_hosts.md as loopback addresses with free ports."""

    def __init__(self, folder):
        self.bin = folder_of_binaries(folder + "/bin")
        self.ports = {}
        self.processes = []
        self.folder = folder
        # As on the page: KV uses the network, not shared memory.
        self.environment = dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"], UCX_TLS="self,tcp")

    def here(self, command):
        own = re.search(r"--advertise 10\.0\.0\.(\d)", command)
        command = command.replace("--host 0.0.0.0", "--host " + ("127.0.0." + own.group(1) if own else "127.0.0.1"))
        command = command.replace("10.0.0.", "127.0.0.")
        return re.sub(r"(?<=port )\d+|(?<=127\.0\.0\.1:)\d+", lambda m: self.port(m.group()), command)

    def port(self, number):
        if number not in self.ports:
            self.ports[number] = str(free_ports(1))
        return self.ports[number]

    def start(self, command):
        log = open("%s/%d.log" % (self.folder, len(self.processes)), "w+", encoding="utf-8")
        process = subprocess.Popen(["bash", "-c", "exec " + self.here(command)], cwd=ROOT + "/deploy", env=self.environment,
                                   stdout=log, stderr=log)
        process.log = log
        self.processes.append(process)

    def await_ready(self):
        end = time.monotonic() + SESSION_S
        while True:
            try:
                return urllib.request.urlopen("http://127.0.0.1:%s/readyz" % self.port("8000"), timeout=2).read()
            except OSError:
                assert all(p.poll() is None for p in self.processes), "a process ended:\n" + self.logs()
                assert time.monotonic() < end, "not ready:\n" + self.logs()
                time.sleep(0.1)

    def await_log(self, words):
        end = time.monotonic() + SESSION_S
        while words not in self.logs():
            assert time.monotonic() < end, "no log line with %r:\n%s" % (words, self.logs())
            time.sleep(0.1)

    def logs(self):
        text = ""
        for process in self.processes:
            process.log.seek(0)
            text += process.log.read()
        return text

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def several_hosts_work_as_the_page_says():
    hosts = Hosts(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    page = "docs/several_hosts.md"
    try:
        for session in sessions_of(page, read(page)):
            commands = commands_of(session)
            if all(PROGRAM.match(c) and not c.startswith("skeinctl") for c in commands):
                for command in commands:
                    hosts.start(command)
                continue
            hosts.await_ready()
            for command in commands:
                assert re.match(r"skeinctl\b|curl\b", command), "%s: no rule to run: %s" % (session.where(), command)
            run_session(hosts.here("\n".join(session.lines)), session.where(), [hosts.here(line) for line in session.prints],
                        hosts.environment)
        assert len(hosts.processes) == 4, hosts.logs()
        hosts.await_log("handoff transport")  # the worker writes it at its next check of traffic
        lines = [json.loads(line) for line in hosts.logs().splitlines() if line.startswith("{")]
        transports = [line for line in lines if line["msg"] == "handoff transport"]
        assert transports and all("tcp" in line["transport"] for line in transports), hosts.logs()
        workers = {line["endpoint"] for line in lines if line["msg"] == "instance registers" and line["instance_role"] == "decode"}
        assert {line["endpoint"] for line in transports} <= workers, (transports, workers)
    finally:
        hosts.stop()


def every_flag_exists():
    binaries = binaries_from_argv()
    texts = [help_of([binaries[name]]) for name in NAMES]
    verbs = set(re.findall(r"^  ([a-z][a-z-]*)$", texts[NAMES.index("skeinctl")], re.M))
    texts += [help_of([binaries["skeinctl"], verb]) for verb in sorted(verbs)]
    texts += [help_of([ROOT + "/deploy/local/" + name]) for name in ("up", "down", "ask", "restart")]
    texts += [help_of([ROOT + "/deploy/grafana/provision"])]
    known = OTHERS_FLAGS.union(*(FLAG.findall(text.replace("_", "-")) for text in texts))
    runbooks = ["docs/runbooks/" + name for name in sorted(os.listdir(ROOT + "/docs/runbooks"))]
    for page in ("README.md", "deploy/README.md", "docs/several_hosts.md", "docs/troubleshooting.md", "docs/glossary.md",
                 "docs/alerts.md", "docs/dashboards.md", *runbooks):
        ours = re.sub(r"\b(kubectl|curl) [^\n`]*", "", read(page))  # their flags are their own
        unknown = sorted(set(FLAG.findall(ours)) - known)
        assert not unknown, "%s names flags that no program has: %s" % (page, unknown)


def help_of(command):
    done = subprocess.run([*command, "--help"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return done.stdout


if __name__ == "__main__":
    run_tests(every_flag_exists, the_readme_does_as_it_says, several_hosts_work_as_the_page_says)
