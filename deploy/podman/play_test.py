#!/usr/bin/env python3
"""The pod that deploy/podman/play makes of the demo overlay, without podman."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "cluster"))
sys.dont_write_bytecode = True
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

PLAY = os.path.join(HERE, "play")
LOADER = importlib.machinery.SourceFileLoader("play", PLAY)
play = importlib.util.module_from_spec(importlib.util.spec_from_loader("play", LOADER))
LOADER.exec_module(play)


def one_container_for_each_role_in_one_network():
    spec = play.pod_of(play.render(), "", 8765)["spec"]
    assert [c["name"] for c in spec["containers"]] == ["orchestrator", "prefill", "decode", "router"], spec
    assert spec["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["orchestrator"]}]
    published = [p for c in spec["containers"] for p in c.get("ports", [])]
    assert published == [{"containerPort": 8000, "hostPort": 8765, "hostIP": "127.0.0.1"}], published
    volumes = [v["name"] for v in spec["volumes"]]
    assert len(set(volumes)) == len(volumes)
    for container in spec["containers"]:
        assert not set(container) & {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}, container
        assert all("$(" not in e["value"] for e in container["env"]), container["env"]
        assert all(m["name"] in volumes for m in container["volumeMounts"]), container


def each_listens_on_ports_of_its_own():
    ports = [a for c in play.pod_of(play.render(), "", 1)["spec"]["containers"] for a in c["args"] if "port=" in a]
    numbers = [a.split("=")[1] for a in ports]
    assert len(set(numbers)) == len(numbers), ports


def bad_arguments_are_refused():
    for given, said in ((["--port", "0"], "--port: 0 is not between 1 and 65535"), (["--port", "x"], "invalid int value: 'x'"), (["up"], "unrecognized arguments: up")):
        done = subprocess.run([PLAY, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, (given, done)


if __name__ == "__main__":
    run_tests(one_container_for_each_role_in_one_network, each_listens_on_ports_of_its_own, bad_arguments_are_refused)
