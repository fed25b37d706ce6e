#!/usr/bin/env python3
"""Processes known by DNS names, as behind headless services: a restarted one keeps its name and has a new address.

Runs in a mount namespace with an /etc/hosts of its own; is skipped where there is none to be had.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, Process, binaries_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"
MARK = "SKEIN_NAMES_TEST_HOSTS"


def hosts(**addresses):
    with open(os.environ[MARK], "w", encoding="utf-8") as file:  # in place, because it is mounted
        file.write("127.0.0.1 localhost\n" + "".join("%s %s.test\n" % (a, n) for n, a in addresses.items()))


def start_orchestrator(cluster, address, port):
    admin = os.path.join(cluster.folder, "orchestrator.admin")
    cluster.processes["orchestrator"] = Process(
        "orchestrator", [cluster.binaries["orchestrator"], "--host=" + address, "--port=%s" % port, "--admin-host=127.0.0.1",
                         "--admin-port=0", "--port-file=" + cluster.port_file("orchestrator"), "--admin-port-file=" + admin],
        cluster.folder)
    return cluster.await_file(cluster.port_file("orchestrator"), "orchestrator")


def start_decode(cluster, address, port):
    cluster.flags["decode"] = ["--host=" + address, "--advertise=decode.test", "--admin-host=127.0.0.1", "--port=%s" % port,
                               "--port-file=" + cluster.port_file("decode")]
    cluster.start_worker("decode", 0)
    return cluster.await_file(cluster.port_file("decode"), "decode")


def names_are_looked_up_again():
    if MARK not in os.environ:
        return "skip: no mount namespace is to be had"
    cluster = Cluster(binaries_from_argv(), MODEL, prefill=1, decode=1)
    body = {"model": cluster.name, "prompt": "The", "max_tokens": 3, "temperature": 0}

    def answers():
        try:
            return cluster.post("/v1/completions", body)["choices"][0]["text"] != ""
        except (HttpFailure, OSError):
            return False
    try:
        hosts(orchestrator="127.0.0.2", decode="127.0.0.2")
        port = start_orchestrator(cluster, "127.0.0.2", 0)
        cluster.orchestrator = "orchestrator.test:" + port
        cluster.start_worker("prefill", 0)
        decode_port = start_decode(cluster, "127.0.0.2", 0)
        cluster.start_router()
        cluster.await_ready()
        cluster.until(answers, "it answers", 10)
        cluster.kill("decode-0")
        hosts(orchestrator="127.0.0.2", decode="127.0.0.3")
        start_decode(cluster, "127.0.0.3", decode_port)
        cluster.until(answers, "it answers with decode at another address", 15)
        cluster.kill("orchestrator")
        hosts(orchestrator="127.0.0.3", decode="127.0.0.3")
        start_orchestrator(cluster, "127.0.0.3", port)
        cluster.until(answers, "it answers with the orchestrator at another address", 15)
        cluster.stop()
    except BaseException:
        cluster.dump()
        cluster.kill_all()
        raise
    return None


def in_namespace():
    """Runs this test again with its own hosts file; returns if that is impossible."""
    if MARK in os.environ:
        return
    path = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "hosts")
    open(path, "w", encoding="utf-8").close()
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        mount = [*unshare, "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', path]
        if subprocess.run([*mount, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            sys.exit(subprocess.run([*mount, sys.executable, *sys.argv], check=False, env=dict(os.environ, **{MARK: path})).returncode)


if __name__ == "__main__":
    tempfile.tempdir = os.environ.get("TEST_TMPDIR")
    in_namespace()
    run_tests(names_are_looked_up_again)
