#!/usr/bin/env python3
"""skeinctl on a real cluster, as an operator uses it: health as an exit status while processes die, drain under load without a
failed request, recent and slowest requests, how requests ended, logs, finding the cluster.
"""
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import Clients  # noqa: E402
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"
HEALTHY, ERROR, USAGE, DEGRADED, CANNOT_SERVE, NOT_FOUND, NOT_IN_TIME = range(7)


def write_state(cluster):
    """The state file as deploy/local/up writes it."""
    role = {"orchestrator": "orchestrator", "router": "router"}
    processes = [{"name": n, "role": role.get(n, n.split("-")[0]), "pid": p.popen.pid, "log": p.log}
                 for n, p in cluster.processes.items()]
    with open(os.path.join(cluster.folder, "local.json"), "w", encoding="utf-8") as state:
        json.dump({"orchestrator": cluster.orchestrator, "url": cluster.url, "run_dir": cluster.folder, "processes": processes}, state)


def skeinctl(cluster, *arguments, state=True):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SKEIN_")}
    environment["SKEIN_RUN_DIR"] = cluster.folder if state else cluster.folder + "/nowhere"
    return subprocess.run([cluster.binaries["skeinctl"], *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=120, check=False, env=environment)


def json_of(cluster, *arguments):
    done = skeinctl(cluster, *arguments, "--format=json")
    assert done.returncode in (HEALTHY, DEGRADED, CANNOT_SERVE), done
    return json.loads(done.stdout)


def up(**more):
    return Cluster(binaries_from_argv(), MODEL, **more)


def await_health(cluster, code):
    cluster.until(lambda: skeinctl(cluster, "status").returncode == code, "skeinctl status ends with %d" % code, 60)


def complete(cluster, tokens=4, **more):
    return cluster.post("/v1/completions", {"model": cluster.name, "prompt": "The", "max_tokens": tokens, "ignore_eos": True, **more})


class Load(Clients):
    """Each sends one request after the other; every answer must be complete."""

    def turn(self, number):
        answer = complete(self.cluster, 24)
        assert answer["usage"]["completion_tokens"] == 24, answer


def the_exit_status_is_the_health():
    with up() as cluster:
        write_state(cluster)
        await_health(cluster, HEALTHY)  # two instances suffice for it
        cluster.until(lambda: len(json_of(cluster, "status")["instances"]) == 4, "all workers have registered")
        status = json_of(cluster, "status")
        assert len(status["routers"]) == 1, status
        assert {i["name"] for i in status["instances"]} == {"prefill-0", "prefill-1", "decode-0", "decode-1"}, status
        gone = next(i for i in status["instances"] if i["name"] == "decode-1")
        cluster.kill("decode-1")
        await_health(cluster, DEGRADED)
        shown = skeinctl(cluster, "status").stdout
        assert "was lost: its stream broke, and its address refuses connections" in shown and str(gone["instance"]) in shown, shown
        cluster.kill("decode-0")
        await_health(cluster, CANNOT_SERVE)
        assert "no serving decode instance" in skeinctl(cluster, "status").stdout
        for i in range(2):
            cluster.start_worker("decode", i)
        await_health(cluster, HEALTHY)
        cluster.until(lambda: [g["replaced"] for g in json_of(cluster, "status")["gone"]] == [True, True], "both are lost, and replaced")
        cluster.kill("router")
        await_health(cluster, CANNOT_SERVE)
        cluster.start_router()
        cluster.await_ready()
        await_health(cluster, HEALTHY)
        lines = skeinctl(cluster, "status", "--watch", "--interval-s=0.1", "--count=3").stdout.splitlines()
        assert len(lines) == 3 and all(" healthy: routers 1/1, prefill 2/2, decode 2/2" in line for line in lines), lines
        assert "healthy" in skeinctl(cluster, "top", "--once").stdout


def the_cluster_is_found_or_the_error_says_what_to_give():
    with up(prefill=1, decode=1) as cluster:
        lost = skeinctl(cluster, "status", state=False)
        assert lost.returncode == USAGE and "--orchestrator HOST:PORT" in lost.stderr, lost
        given = skeinctl(cluster, "status", "--orchestrator", cluster.orchestrator, state=False)
        assert given.returncode == HEALTHY, given
        silent = skeinctl(cluster, "status", "--orchestrator", "127.0.0.1:1")
        assert silent.returncode == CANNOT_SERVE and "does not answer" in silent.stderr, silent


def drained(cluster, name):
    return next(i["state"] for i in json_of(cluster, "status")["instances"] if i["name"] == name) == "drained"


def a_drain_under_load_fails_no_request():
    with up() as cluster:
        write_state(cluster)
        await_health(cluster, HEALTHY)
        with Load(cluster, 4) as load:
            cluster.until(lambda: load.answered >= 4, "the load runs")
            for name in ("decode-1", "prefill-0"):
                done = skeinctl(cluster, "drain", name, "--wait", "--timeout-s=60")
                assert done.returncode == 0 and "safe to stop" in done.stdout and "\r" not in done.stdout, done
                assert drained(cluster, name)
            before = load.answered
            cluster.until(lambda: load.answered >= before + 4, "the others serve")
            assert drained(cluster, "decode-1") and drained(cluster, "prefill-0"), "nothing new was placed there"
            last = skeinctl(cluster, "drain", "decode-0")
            assert last.returncode == ERROR and "last decode instance" in last.stderr, last
            process = cluster.processes.pop("decode-1")  # now it is stopped
            process.popen.terminate()
            assert process.popen.wait(60) == 0, process.tail()
            undone = skeinctl(cluster, "drain", "prefill-0", "--undo", "--wait")
            assert undone.returncode == 0, undone
            cluster.start_worker("decode", 1)
            write_state(cluster)
            cluster.until(lambda: len(json_of(cluster, "status")["instances"]) == 4, "it is back")
            before = load.answered
            cluster.until(lambda: load.answered >= before + 4, "all serve")
        assert not load.failures, load.failures
        await_health(cluster, HEALTHY)
        missing = skeinctl(cluster, "drain", "decode-9")
        assert missing.returncode == NOT_FOUND and "decode-0" in missing.stderr, missing
        cluster.assert_idle_and_whole()


def a_drained_router_takes_nothing_new():
    with up(prefill=1, decode=1) as cluster:
        write_state(cluster)
        await_health(cluster, HEALTHY)
        assert skeinctl(cluster, "drain", "router").returncode == ERROR, "it is the last one"
        done = skeinctl(cluster, "drain", "router", "--force", "--wait")
        assert done.returncode == 0 and "safe to stop" in done.stdout, done
        try:
            complete(cluster)
            raise AssertionError("a drained router answered")
        except HttpFailure as failure:
            assert failure.code == 503, failure
        assert skeinctl(cluster, "status").returncode == CANNOT_SERVE
        assert skeinctl(cluster, "drain", "router", "--undo", "--wait").returncode == 0
        complete(cluster)


def find(cluster, name, *arguments):
    return next((r for r in json_of(cluster, "requests", *arguments)["requests"] if name in r["names"]), None)


def requests_tell_how_they_ended():
    with up(prefill=1, decode=1) as cluster:
        write_state(cluster)
        cut = complete(cluster, 3)["id"]
        stopped = complete(cluster, 200, stop=[" "])["id"]
        chunks = cluster.stream("/v1/completions", {"model": cluster.name, "prompt": "The", "max_tokens": 3000, "ignore_eos": True})
        gone = next(chunks)["id"]
        chunks.close()
        for name, state in ((cut, "completed: max_tokens"), (stopped, "completed: stop string"), (gone, "client disconnected")):
            cluster.until(lambda n=name, s=state: (find(cluster, n) or {}).get("state") == s, "%s is %s" % (name, state), 20)
            shown = find(cluster, name)
            assert shown["ended"] and shown["output_tokens"] >= 1 and shown["first_token_s"] <= shown["ended_s"], shown
            text = skeinctl(cluster, "explain", name).stdout
            assert state in text and " now" not in text and "running" not in text, text
        assert find(cluster, cut)["output_tokens"] == 3
        slowest = json_of(cluster, "requests", "--slowest", "--limit=2")["requests"]
        assert len(slowest) == 2 and slowest[0]["ended_s"] >= slowest[1]["ended_s"], slowest
        assert cut in skeinctl(cluster, "requests").stdout
        unknown = skeinctl(cluster, "explain", "cmpl-nobody")
        assert unknown.returncode == NOT_FOUND and "skeinctl requests" in unknown.stderr, unknown
        assert skeinctl(cluster, "explain").returncode == USAGE
        assert skeinctl(cluster, "requests", "--limit=0").returncode == USAGE


def transports_tell_the_way_of_each_pair():
    with up(prefill=1, decode=2) as cluster:
        write_state(cluster)
        before = json_of(cluster, "transports")
        assert len(before["handoffs"]) == 2 and all(pair["transport"] is None for pair in before["handoffs"]), before
        assert "no handoff yet" in skeinctl(cluster, "transports").stdout
        complete(cluster, 3)
        moved = [pair for pair in json_of(cluster, "transports")["handoffs"] if pair["transport"]]
        assert len(moved) == 1, moved
        pair = moved[0]
        assert pair["transport"] == "mapped+ring" and pair["path"] == "direct" and pair["why_not_faster"] == "", pair
        assert pair["bytes"] > 0 and pair["gb_per_s"] > 0 and pair["error"] == "", pair
        assert "mapped+ring" in skeinctl(cluster, "transports").stdout

        def pairs():  # of decode instances that are a group
            return [group for group in json_of(cluster, "transports")["groups"] if group["role"] == "decode"]
        cluster.until(lambda: len(pairs()) == 2, "each decode instance tells the way of their group")
        assert all(group["instances"] == 2 and group["path"] == "host" and group["error"] == "" for group in pairs()), pairs()


def run_in_terminal(cluster, arguments, keys, until, **environment):
    """Runs it on its own terminal; returns exit status and output. Presses `keys` once `until` is shown; none: ctrl-C."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    shown = b""
    with subprocess.Popen([cluster.binaries["skeinctl"], *arguments, "--orchestrator", cluster.orchestrator], stdin=slave, stdout=slave,
                          stderr=slave, env=dict(os.environ, TERM="xterm", **environment)) as process:
        while until not in shown:
            shown += os.read(master, 65536)
        os.write(master, keys) if keys else process.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in shown:
            shown += os.read(master, 65536)
        code = process.wait(60)
    assert termios.tcgetattr(slave) == before, "the terminal is as it was"
    os.close(slave)
    os.close(master)
    return code, shown


def top_fills_a_terminal_and_leaves_it_as_it_was():
    with up(prefill=1, decode=1) as cluster:
        await_health_of = lambda: skeinctl(cluster, "status", "--orchestrator", cluster.orchestrator).returncode == HEALTHY  # noqa: E731
        cluster.until(await_health_of, "it is healthy")
        for verb in (["top"], ["status", "--watch"]):
            code, shown = run_in_terminal(cluster, [*verb, "--interval-s=0.2"], b"lq", b"q quits", NO_COLOR="")
            assert code == HEALTHY and shown.startswith(b"\x1b[?1049h") and b"\x1b[32mhealthy" in shown, shown
        code, shown = run_in_terminal(cluster, ["top", "--interval-s=0.2"], b"q", b"q quits", NO_COLOR="1")
        assert code == HEALTHY and b"\x1b[32m" not in shown and b"healthy" in shown, shown
        code, shown = run_in_terminal(cluster, ["top", "--interval-s=60"], b"", b"q quits", NO_COLOR="1")
        assert code == HEALTHY, "ctrl-C ends it at once and well"


def logs_are_one():
    with up(prefill=1, decode=1) as cluster:
        write_state(cluster)
        name = complete(cluster, 3)["id"]
        cluster.until(lambda: skeinctl(cluster, "logs", "--request", name).stdout != "", "the request is in the logs", 20)
        lines = [json.loads(line) for line in skeinctl(cluster, "logs", "--format=json").stdout.splitlines()]
        assert {line["process"] for line in lines} == {"orchestrator", "prefill-0", "decode-0", "router"}, lines
        times = [line["ts"] for line in lines]
        assert lines[0]["process"] == "orchestrator" and times == sorted(times), times
        only = skeinctl(cluster, "logs", "decode-0").stdout.splitlines()
        assert only and all(" decode-0 " in line for line in only), only
        instance = next(i for i in json_of(cluster, "status")["instances"] if i["role"] == "decode")
        assert skeinctl(cluster, "logs", str(instance["instance"])).stdout.splitlines()[:1] == only[:1]
        assert skeinctl(cluster, "logs", "nobody").returncode == NOT_FOUND
        environment = dict(os.environ, SKEIN_RUN_DIR=cluster.folder)
        with subprocess.Popen([cluster.binaries["skeinctl"], "logs", "decode-0", "--follow"], stdout=subprocess.PIPE, env=environment,
                              universal_newlines=True) as follow:
            assert follow.stdout.readline(), "it begins with what is there"
            with open(cluster.processes["decode-0"].log, "a", encoding="utf-8") as log:
                log.write('{"ts":"2099-01-01T00:00:00.000000Z","level":"info","role":"x","msg":"later"}\n')
            assert any("later" in line for line in iter(follow.stdout.readline, "")), "and goes on"
            follow.terminate()
            assert follow.wait(20) == 0


if __name__ == "__main__":
    tempfile.tempdir = os.environ.get("TEST_TMPDIR")
    run_tests(the_exit_status_is_the_health, the_cluster_is_found_or_the_error_says_what_to_give,
              a_drain_under_load_fails_no_request, a_drained_router_takes_nothing_new, requests_tell_how_they_ended, transports_tell_the_way_of_each_pair,
              top_fills_a_terminal_and_leaves_it_as_it_was, logs_are_one)
