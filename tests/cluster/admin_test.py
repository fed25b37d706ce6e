#!/usr/bin/env python3
"""The admin port of every process of a real cluster: probes, status, drains that orchestrator, worker and skeinctl agree on, waiting
for a model, and docs/admin.md.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, Process, binaries_from_argv, free_ports, run_tests  # noqa: E402
from emulated import emulated_model  # noqa: E402

MODEL = "deploy/models/fledgling"
DOCS = "docs/admin.md"


def up(**more):
    return Cluster(binaries_from_argv(), MODEL, **more)


def status(cluster, name):
    return cluster.get("/status", base=cluster.processes[name].admin())


def post(cluster, name, path):
    return json.loads(cluster.request("POST", path, base=cluster.processes[name].admin()))


def failure(call):
    try:
        call()
    except HttpFailure as found:
        return found
    raise AssertionError("it did not fail")


def state_at_orchestrator(cluster, name):
    instance = status(cluster, name)["instance"]
    return next((i["state"] for i in cluster.status()["instances"] if i["instance"] == instance), "gone")


def await_state(cluster, name, state):
    cluster.until(lambda: status(cluster, name)["state"] == state and state_at_orchestrator(cluster, name) == state,
                  "%s is %s for itself and the orchestrator" % (name, state), 20)


def restart_orchestrator(cluster):
    admin = os.path.join(cluster.folder, "orchestrator.admin")
    cluster.processes["orchestrator"] = Process(
        "orchestrator", [cluster.binaries["orchestrator"], "--port=" + cluster.orchestrator.split(":")[1], "--admin-port=0",
                         "--admin-port-file=" + admin], cluster.folder)
    cluster.until(lambda: status(cluster, "orchestrator")["state"] == "serving", "it is back")
    cluster.until(lambda: sum(i["state"] in ("serving", "drained") for i in cluster.status()["instances"]) == len(cluster.workers()),
                  "it has heard of every worker")


def drained_and_the_others_agree():
    with up(prefill=1, decode=2) as cluster:
        for name, process in cluster.processes.items():
            for path in ("/livez", "/startupz", "/readyz"):
                assert cluster.get(path, raw=True, base=process.admin()) == "ok\n", (name, path)
            shown = status(cluster, name)
            assert shown["state"] == "serving" and shown["reason"] == "" and not shown["safe_to_delete"], shown
            assert shown["role"].split("-")[0] == name.split("-")[0] and shown["in_flight"] == 0, shown
        refused = failure(lambda: post(cluster, "prefill-0", "/drain"))
        assert refused.code == 409 and "last prefill instance" in refused.body and "force=1" in refused.body, refused.body
        assert status(cluster, "prefill-0")["state"] == "serving"
        shown = post(cluster, "decode-1", "/drain?wait_s=20")
        assert shown["state"] == "drained" and shown["safe_to_delete"], shown
        await_state(cluster, "decode-1", "drained")
        not_ready = failure(lambda: cluster.get("/readyz", base=cluster.processes["decode-1"].admin()))
        assert not_ready.code == 503 and "drained" in not_ready.body, not_ready.body
        assert cluster.get("/livez", raw=True, base=cluster.processes["decode-1"].admin()) == "ok\n"
        assert failure(lambda: post(cluster, "decode-0", "/drain")).code == 409, "it is the last one now"

        cluster.kill("orchestrator")
        restart_orchestrator(cluster)
        await_state(cluster, "decode-1", "drained")  # it survived the restart and was reported
        done = subprocess.run([cluster.binaries["skeinctl"], "drain", str(status(cluster, "decode-1")["instance"]), "--undo",
                               "--orchestrator", cluster.orchestrator], check=False)
        assert done.returncode == 0
        await_state(cluster, "decode-1", "serving")

        cluster.kill("orchestrator")
        cluster.until(lambda: "waiting for the orchestrator " + cluster.orchestrator in status(cluster, "prefill-0")["reason"]
                      or status(cluster, "prefill-0")["state"] == "serving", "it may not have noticed yet")
        assert post(cluster, "decode-1", "/drain?wait_s=20")["safe_to_delete"], "it obeys without an orchestrator"
        restart_orchestrator(cluster)
        await_state(cluster, "decode-1", "drained")
        assert post(cluster, "decode-1", "/resume")["state"] == "serving"
        await_state(cluster, "decode-1", "serving")
        # The worker can undo an order of skeinctl.
        assert subprocess.run([cluster.binaries["skeinctl"], "drain", str(status(cluster, "decode-1")["instance"]),
                               "--orchestrator", cluster.orchestrator], check=False).returncode == 0
        await_state(cluster, "decode-1", "drained")
        post(cluster, "decode-1", "/resume")
        await_state(cluster, "decode-1", "serving")


def what_runs_goes_on_and_then_sigterm_ends_it_at_once():
    # The grace period is so long that a process that waited for it would not end within the test. The answer takes two
    # seconds, so it runs while its processes are asked.
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, MODEL), prefill=1, decode=1,
                    worker_flags=["--device=emulated", "--kv-gib=0.01", "--drain-grace-s=600"],
                    decode_flags=["--emulated-decode-step-us=5000"], router_flags=["--drain-grace-s=600"]) as cluster:
        body = {"model": cluster.name, "prompt": "The", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        chunks = cluster.stream("/v1/completions", body)
        next(chunks)
        assert status(cluster, "decode-0")["running"] == 1
        shown = post(cluster, "decode-0", "/drain?force=1")
        assert shown["state"] == "draining" and shown["in_flight"] == 1 and "1 running" in shown["reason"], shown
        answer = {}
        waiter = threading.Thread(target=lambda: answer.update(post(cluster, "decode-0", "/drain?force=1&wait_s=60")))
        waiter.start()
        assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "length", "the stream is whole"
        waiter.join()
        assert answer["safe_to_delete"] and answer["state"] == "drained", answer
        for name in ("decode-0", "router"):
            if name == "router":
                done = subprocess.run([cluster.binaries["skeinctl"], "drain", "--admin",
                                       cluster.processes[name].admin()[len("http://"):], "--wait", "--force", "--after-s=0.1"],
                                      check=False, stdout=subprocess.PIPE, universal_newlines=True)
                assert done.returncode == 0 and "safe to delete" in done.stdout, done
            process = cluster.processes.pop(name)
            process.popen.send_signal(signal.SIGTERM)
            assert process.popen.wait(100) == 0, process.tail()


def an_orchestrator_that_drains_takes_nothing_new():
    with up(prefill=1, decode=1) as cluster:
        assert failure(lambda: post(cluster, "orchestrator", "/drain")).code == 409
        assert post(cluster, "orchestrator", "/drain?force=1")["safe_to_delete"]
        body = {"model": cluster.name, "prompt": "The", "max_tokens": 2}
        assert failure(lambda: cluster.post("/v1/completions", body)).code == 503
        cluster.until(lambda: status(cluster, "router")["state"] == "waiting", "the router says so")
        assert "drains" in status(cluster, "router")["reason"], status(cluster, "router")
        assert post(cluster, "orchestrator", "/resume")["state"] == "serving"
        cluster.await_ready()
        cluster.post("/v1/completions", body)


def a_model_is_waited_for():
    folder = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "late")
    with up(prefill=1, decode=1) as cluster:
        name, model = cluster.name, os.path.abspath(MODEL)
        cluster.flags["prefill"] = ["--wait-for-model-s=100"]
        cluster.model = folder
        cluster.start_worker("prefill", 1)
        admin = cluster.processes["prefill-1"].admin()
        cluster.until(lambda: status(cluster, "prefill-1")["state"] == "waiting", "it waits")
        assert status(cluster, "prefill-1")["reason"] == "waiting for the model: %s: no such folder" % folder
        assert cluster.get("/livez", raw=True, base=admin) == "ok\n"
        for path in ("/startupz", "/readyz"):
            not_yet = failure(lambda p=path: cluster.get(p, base=admin))
            assert not_yet.code == 503 and "no such folder" in not_yet.body, not_yet.body
        os.mkdir(folder)
        for file in ("config.json", "tokenizer.json"):
            shutil.copy(os.path.join(model, file), folder)
        cluster.until(lambda: "safetensors" in status(cluster, "prefill-1")["reason"], "it says what is missing")
        for file in os.listdir(model):
            if not os.path.exists(os.path.join(folder, file)):
                shutil.copy(os.path.join(model, file), os.path.join(folder, file + ".part"))
                os.rename(os.path.join(folder, file + ".part"), os.path.join(folder, file))
        await_state(cluster, "prefill-1", "serving")
        assert cluster.get("/startupz", raw=True, base=admin) == "ok\n"
        text = cluster.processes["prefill-1"].text()
        assert text.count("waiting for the model") == 1 and "model folder complete" in text, text

        late = Process("late", [cluster.binaries["router"], "--orchestrator=" + cluster.orchestrator, "--port=0", "--admin-port=0",
                                "--admin-port-file=" + os.path.join(cluster.folder, "late.admin"), "--wait-for-model-s=100",
                                "--model=%s=%s.none" % (name, folder)], cluster.folder)
        cluster.until(lambda: "no such folder" in cluster.get("/status", base=late.admin())["reason"], "a router says so, too")
        late.popen.terminate()
        assert late.popen.wait(10) == 0, "and ends at once"


def the_page_has_every_endpoint():
    with open(DOCS, encoding="utf-8") as page:
        section = page.read().split("## Endpoints")[1].split("## Flags")[0]
    table, of_orchestrator = section.split("The orchestrator also has", 1)
    of_router = section.split("The router has", 1)[1].split("\n\n")[0]
    own = {"orchestrator": set(re.findall(r"`(GET /\S*)`", of_orchestrator.split("\n\n")[0])),
           "router": set(re.findall(r"`((?:GET|POST) /\S*)`", of_router))}
    documented = set(re.findall(r"`((?:GET|POST) /\S*)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    with up(prefill=1, decode=1) as cluster:
        for name, process in cluster.processes.items():
            others = documented if name.startswith(("prefill", "decode")) else documented - {"GET /debug/transports"}
            assert set(cluster.get("/", base=process.admin())["endpoints"]) == others | own.get(name, set()), name
            wrong = failure(lambda p=process: cluster.get("/drain", base=p.admin()))
            assert wrong.code == 405 and wrong.headers["Allow"] == "POST, OPTIONS", wrong.headers
            bad = failure(lambda n=name: post(cluster, n, "/drain?wait_s=soon"))
            assert bad.code == 400 and bad.error()["param"] == "wait_s" and "'soon'" in bad.error()["message"], bad.body


def the_groups_are_those_of_the_instances():
    with up(prefill=1, decode=2) as cluster:
        groups = cluster.get("/debug/groups", base=cluster.processes["orchestrator"].admin())["groups"]
        instances = cluster.status()["instances"]
        assert [g["role"] for g in groups] == ["prefill", "decode"], groups
        for group in groups:
            assert group["instances"] == sorted(i["instance"] for i in instances if i["role"] == group["role"]), (group, instances)
            assert group["model"] == cluster.name and group["node"] == instances[0]["node"], group
            formation, = group["formations"]
            assert formation["name"] == "independent" and formation["instances"] == group["instances"], group
            assert group["for_s"] >= 0 and group["why"], group


def decode_instances_of_a_node_make_their_communicators_and_requests_make_none():
    with up(prefill=1, decode=2) as cluster:
        orchestrator = cluster.processes["orchestrator"].admin()
        decode = lambda: next(g for g in cluster.get("/debug/groups", base=orchestrator)["groups"] if g["role"] == "decode")
        cluster.until(lambda: decode()["ready"] == 2, "both have made them")
        generation = decode()["generation"]
        assert generation > 0, decode()

        def made(name):
            text = cluster.get("/metrics", raw=True, base=cluster.processes[name].admin())
            return [re.search(r"skein_comm_%s_made_total\{[^}]*\} (\d+)" % what, text).group(1) for what in ("links", "groups")]

        before = [made(name) for name in ("decode-0", "decode-1")]
        assert all(links == "1" and groups != "0" for links, groups in before), before
        for _ in range(4):
            cluster.post("/v1/completions", {"model": cluster.name, "prompt": "The", "max_tokens": 2})
        assert [made(name) for name in ("decode-0", "decode-1")] == before
        cluster.start_worker("decode", 2)
        cluster.until(lambda: decode()["ready"] == 3 and decode()["generation"] > generation, "with the third, they make others")


def listening(pids):
    """The TCP ports on which these processes listen, from the kernel's tables."""
    inodes = set()
    for pid in pids:
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[len("socket:["):-1])
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="utf-8") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.add((fields[1].split(":")[0], int(fields[1].split(":")[1], 16)))
    return ports


def every_port_is_named_by_a_flag():
    first = free_ports(10)
    before = os.environ.get("UCX_TLS", "")
    os.environ["UCX_TLS"] = "self,tcp"  # as between hosts
    try:
        with up(prefill=0, decode=0) as cluster:
            cluster.flags["prefill"] = ["--port=%d" % first, "--data-port=%d" % (first + 1), "--data-host=127.0.0.1"]
            cluster.flags["decode"] = ["--port=%d" % (first + 3), "--data-port=%d" % (first + 4), "--data-host=127.0.0.1"]
            cluster.start_worker("prefill", 0)
            cluster.start_worker("decode", 0)
            cluster.await_ready()
            cluster.post("/v1/completions", {"model": cluster.name, "prompt": "The", "max_tokens": 2})  # with a handoff over tcp
            for name, named in (("prefill-0", {first, first + 1, first + 2}), ("decode-0", {first + 3, first + 4})):
                process = cluster.processes[name]
                ports = listening([process.popen.pid])
                admin = int(process.admin().rsplit(":", 1)[1])
                assert {port for _, port in ports} == named | {admin}, (name, ports)
                assert all(address.endswith("0100007F") for address, _ in ports), "on loopback only: %s" % ports
            taken = subprocess.run([cluster.binaries["decode_worker"], "--model=" + MODEL, "--data-port=%d" % (first + 4),
                                    "--admin-port=0", "--kv-gib=0.02"], check=False, stderr=subprocess.PIPE, universal_newlines=True)
            assert taken.returncode == 2 and "--data-port: with port %d" % (first + 4) in taken.stderr, taken
            nowhere = subprocess.run([cluster.binaries["decode_worker"], "--model=" + MODEL, "--data-host=192.0.2.77", "--admin-port=0"],
                                     check=False, stderr=subprocess.PIPE, universal_newlines=True)
            assert nowhere.returncode == 2 and "--data-host: '192.0.2.77' is not an address of this machine" in nowhere.stderr, nowhere
    finally:
        os.environ["UCX_TLS"] = before or "all"


def full_pipe():
    """(reading end, writing end) of a pipe that takes not one byte more; a write to it blocks."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(writing, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(writing, True)
    return reading, writing


def a_log_that_nobody_reads_stops_no_worker():
    reading, writing = full_pipe()
    try:
        with up(prefill=0, decode=0) as cluster:
            cluster.stderr = {"prefill-0": writing, "decode-0": writing}
            cluster.start_worker("prefill", 0)
            cluster.start_worker("decode", 0)
            cluster.await_ready()
            answer = cluster.post("/v1/completions", {"model": cluster.name, "prompt": "The", "max_tokens": 2, "ignore_eos": True})
            assert answer["usage"]["completion_tokens"] == 2, answer
    finally:
        os.close(reading)
        os.close(writing)


def requests_are_answered_while_the_invariants_are_asked_for():
    with up(prefill=1, decode=1) as cluster, ThreadPoolExecutor(4) as pool:
        base = cluster.processes["orchestrator"].admin()
        asked = [pool.submit(cluster.get, "/debug/invariants", base=base) for _ in range(100)]
        body = {"model": cluster.name, "prompt": "The", "max_tokens": 2, "ignore_eos": True}
        for _ in range(3):
            assert cluster.post("/v1/completions", body)["usage"]["completion_tokens"] == 2
        assert all(one.result() == {"ok": True} for one in asked)


if __name__ == "__main__":
    tempfile.tempdir = os.environ.get("TEST_TMPDIR")
    run_tests(drained_and_the_others_agree, what_runs_goes_on_and_then_sigterm_ends_it_at_once,
              an_orchestrator_that_drains_takes_nothing_new, a_model_is_waited_for, every_port_is_named_by_a_flag,
              the_page_has_every_endpoint, the_groups_are_those_of_the_instances,
              decode_instances_of_a_node_make_their_communicators_and_requests_make_none,
              a_log_that_nobody_reads_stops_no_worker, requests_are_answered_while_the_invariants_are_asked_for)
