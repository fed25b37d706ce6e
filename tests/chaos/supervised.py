"""A real cluster whose processes are started again when they end badly, as systemd does, while `skeinctl chaos` breaks them. One that
ended well stays away until `skeinctl chaos` asks for it, by the program that the process has in its environment.

    with Supervised(binaries_from_argv(), model=DIR, ...) as cluster:
        code, result = cluster.chaos("kill-decode", "--streams=6")

Orchestrator and router have fixed ports, so that clients and workers find the next one. Everything ends with this process.
"""
import json
import os
import subprocess
import time

from cluster import Cluster, bound, free_ports

LIMIT_S = 900
ENDED_WITHIN_S = 1
RESTART = """#!/bin/sh
# Asks for a process to be started again: restart NAME
: >"${0%/*}/$1.wanted"
"""


class Supervised(Cluster):
    def __init__(self, *arguments, restart_after_s=0.2, **more):
        super().__init__(*arguments, **more)
        first = free_ports(2)
        self.ports = {"orchestrator": first, "router": first + 1}
        self.restart_after_s = restart_after_s  # of one that ended badly
        self.restart = os.path.join(self.folder, "restart")
        with open(self.restart, "w", encoding="utf-8") as file:
            file.write(RESTART)
        os.chmod(self.restart, 0o755)
        self.commands = {}      # by name: what run() was called with
        self.ended = {}         # by name: when its end was noticed
        self.restarts = 0

    def run(self, name, binary, arguments):
        port = self.ports.get(name, 0)
        arguments = ["--port=%d" % port if one == "--port=0" else one for one in arguments]
        self.commands[name] = (binary, arguments)
        self.environments.setdefault(name, {})["SKEIN_UP"] = "%s %s" % (name, self.folder)  # as deploy/local/up tells it
        super().run(name, binary, arguments)

    def restart_ended(self, everyone=False):
        """Starts processes again that are asked for, or ended badly restart_after_s ago. On the main thread: a process ends with its
        thread."""
        now = time.monotonic()
        for name, process in list(self.processes.items()):
            wanted = os.path.join(self.folder, name + ".wanted")
            asked = os.path.exists(wanted)
            ended = process.popen.poll() is not None
            badly = ended and process.popen.returncode != 0 and now >= self.ended.setdefault(name, now) + self.restart_after_s
            # The last threads of a process may still run when its end is seen. What runs on was started by itself before.
            if asked and (ended or time.time() > os.path.getmtime(wanted) + ENDED_WITHIN_S):
                os.remove(wanted)
            if not ended or not (asked or badly or everyone):
                continue
            self.ended.pop(name, None)
            self.restarts += 1
            self.run(name, *self.commands[name])

    def chaos(self, *arguments, limit_s=LIMIT_S, each=lambda: None):
        """Runs `skeinctl chaos` with these arguments; its exit code and what it wrote as JSON (None: nothing). `each` is called
        again and again meanwhile."""
        result = os.path.join(self.folder, "chaos.json")
        if os.path.exists(result):
            os.remove(result)
        command = [self.binaries["skeinctl"], "chaos", "--orchestrator", self.orchestrator, "--url", self.url, "--yes",
                   "--out", result, *arguments]
        end = time.monotonic() + limit_s
        environment = {**os.environ, **self.environments.get("skeinctl", {})}
        with subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, env=environment) as played:
            try:
                while played.poll() is None:
                    assert time.monotonic() < end, "skeinctl chaos did not end within %d s" % limit_s
                    self.restart_ended()
                    each()
                    time.sleep(0.02)
            finally:
                played.kill()
        self.restart_ended(everyone=True)
        if not os.path.exists(result):
            return played.returncode, None
        with open(result, encoding="utf-8") as file:
            return played.returncode, json.load(file)
