#!/usr/bin/env python3
"""Benches leave no process behind, however they end, and do not drop a failure."""
import asyncio
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import bound, run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LIMIT_S = 60  # for what takes no time

# A bench whose "router" does not end by SIGTERM. Says its id, and later how it ended.
BENCH = """
import signal, sys, time
sys.path.insert(0, %r)
from cluster import Cluster, Process, end_by_sigterm

STUBBORN = "trap 'echo asked to end' TERM; echo runs; while :; do sleep 0.1; done"
end_by_sigterm()
cluster = Cluster({}, "model", prefill=0, decode=0)
cluster.start = lambda: None
try:
    with cluster:
        router = cluster.processes["router"] = Process("router", ["sh", "-c", STUBBORN], sys.argv[1])
        while router.text() != "runs\\n":
            time.sleep(0.01)
        print(router.popen.pid, flush=True)
        if sys.argv[2] == "measures":
            time.sleep(600)
finally:
    print(router.popen.returncode, flush=True)
""" % os.path.join(ROOT, "tests/cluster")

# bench/gateway/run of a checkout whose processes outlive it.
OTHER_RUN = """
import os, subprocess, time
def build():
    return {}, "client"
def main():
    cluster = subprocess.Popen(["sleep", "600"])
    try:
        with open("pid.part", "w") as file:
            file.write(str(cluster.pid))
        os.rename("pid.part", "pid")
        time.sleep(600)
    finally:
        cluster.kill()
"""


def has_ended(pidfd):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * LIMIT_S))


@contextlib.contextmanager
def bench(folder, does):
    """A running BENCH and its router, as a descriptor."""
    with subprocess.Popen(bound([sys.executable, "-c", BENCH, folder, does]), stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "TEST_TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}) as process:
        try:
            yield process, os.pidfd_open(int(process.stdout.readline()))
        finally:
            process.kill()


def a_killed_bench_leaves_no_process():
    with tempfile.TemporaryDirectory() as folder, bench(folder, "measures") as (process, router):
        process.kill()
        process.wait()
        assert has_ended(router), "the router outlives the bench"


def sigterm_ends_a_bench_and_its_processes_first():
    with tempfile.TemporaryDirectory() as folder, bench(folder, "measures") as (process, router):
        process.terminate()
        assert process.stdout.read() == "%d\n" % -signal.SIGKILL, "the bench ended before its router"
        assert process.wait() == 128 + signal.SIGTERM
        assert has_ended(router)


def sigterm_while_a_cluster_stops_ends_what_does_not_stop():
    with tempfile.TemporaryDirectory() as folder, bench(folder, "stops") as (process, router):
        end = time.monotonic() + LIMIT_S
        while "asked to end" not in open(os.path.join(folder, "router.log"), encoding="utf-8").read():
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert process.stdout.read() == "%d\n" % -signal.SIGKILL, "the bench forgot the router that it was stopping"
        assert process.wait() == 128 + signal.SIGTERM
        assert has_ended(router)


def a_killed_compare_ends_the_other_checkouts_cluster():
    for how in (signal.SIGKILL, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "bench/gateway"))
            with open(os.path.join(folder, "bench/gateway/run"), "w", encoding="utf-8") as run:
                run.write(OTHER_RUN)
            note = os.path.join(folder, "pid")
            with subprocess.Popen(bound([os.path.join(ROOT, "bench/gateway/compare"), "--before", folder]),
                                  env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}) as compare:
                end = time.monotonic() + LIMIT_S
                while not os.path.exists(note):
                    assert time.monotonic() < end and compare.poll() is None, "the other checkout's run does not start"
                    time.sleep(0.01)
                with open(note, encoding="utf-8") as file:
                    cluster = os.pidfd_open(int(file.read()))
                compare.send_signal(how)
            assert has_ended(cluster), "the cluster outlives %s of compare" % how.name


def each_bench_starts_processes_that_end_with_it():
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", "bench"], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = 0
    for path in listing.splitlines():
        with open(os.path.join(ROOT, path), "rb") as file:
            text = file.read().decode(errors="replace")
        if not text.startswith("#!/usr/bin/env python3"):
            continue
        found += len(started(text))
        assert may_not_outlive(text) or path == "bench/gateway/compare", "%s starts a process that may outlive it" % path
        if re.search(r"\bCluster\b", text):
            assert "end_by_sigterm()" in text, path
    assert found >= 6, found


def started(text):
    """What follows the bracket of each call that starts a process and does not wait for it."""
    return re.findall(r"\b(?:Popen|create_subprocess_\w+)\(\s*(.{0,6})", text)


def may_not_outlive(text):
    return all(argument == "bound(" for argument in started(text))


def a_process_that_may_outlive_its_bench_is_seen():
    for text in ('subprocess.Popen(["x"])', "subprocess.Popen(\n    command)", "Popen(('x',))", "subprocess.Popen(boundary)",
                 'subprocess.Popen(bound(one)); subprocess.Popen("x", shell=True)', "asyncio.create_subprocess_exec('x')"):
        assert not may_not_outlive(text), text
    for text in ("subprocess.Popen(bound([1]))", "subprocess.Popen(\n        bound(command))", "subprocess.run(['x'])"):
        assert may_not_outlive(text), text


def module(path):
    loader = importlib.machinery.SourceFileLoader("bench_script", os.path.join(ROOT, path))
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_script", loader))
    loader.exec_module(found)
    return found


def a_client_that_fails_fails_the_bench():
    class Chats:
        def body(self, *_):
            raise RuntimeError("no such chat")
    load = module("bench/serving/kv").Load(types.SimpleNamespace(url="http://127.0.0.1:1"), Chats(), [(1, 1)], 1)
    try:
        asyncio.run(load.run(2, 0, 0, lambda: None))
    except RuntimeError as error:
        assert str(error) == "no such chat"
    else:
        raise AssertionError("the client's failure was dropped")


# node-llama-cpp, as far as llama_server.mjs uses it: each token is the next number.
PEER = """
export const LlamaLogLevel = {error: 0};
const sequence = () => ({clearHistory: async () => {}, async *evaluate(prompt) { for (let i = 0;; ++i) yield i; }});
const context = {currentThreads: 1, getSequence: sequence};
const model = {createContext: async () => context, detokenize: (tokens) => tokens.join()};
export const getLlama = async () => ({loadModel: async () => model});
"""
BODY = b'{"prompt": [1], "max_tokens": 2}'


def figures_of_decode_are_counted_as_the_simulator_counts_them():
    sys.path.insert(0, os.path.join(ROOT, "bench/emulated"))
    found = module("bench/emulated/decode_figures.py")
    assert found.most_in_window([]) == 0
    assert found.most_in_window([0, 0, 0, 4, 4, 5, 9, 9], 5) == 5, "(t - 5, t]"
    outcome = types.SimpleNamespace(times_s=[1.0, 1.75, 2.25, 2.75])
    one = found.of_outcome(outcome, "burst", 0.25)
    assert (one.phase, one.tpot_s, one.first_gap_s, one.queue_s) == ("burst", 1.75 / 3, 0.75, 0.25), one
    assert found.queue_of_logs(['{"msg":"bound"}\n{"msg":"decode began","id":"cmpl-1","decode_queue_us":250000}\n', ""]) == {
        "cmpl-1": 0.25}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "decoded.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("request,first_token_s,decode_start_s,second_token_s,last_token_s\n0,1.0,1.25,1.75,2.75\n")
        assert found.of_simulation(path, [4], ["burst"]) == [found.Decoded("burst", 1.75 / 3, 0.75, 0.25)]
    named = found.figures([one], ("quiet", "burst"))
    assert named["burst TPOT P90"] == 1.75 / 3 and named["quiet gap 1 P50"] == 0 and named["burst queue P50"] == 0.25, named
    assert found.medians([{"peak": 1}, {"peak": 5}, {"peak": 2}]) == {"peak": 2}
    assert found.shares({"own": 1, "tp": 2, "sp_tp": 1}) == {"own": 0.25, "tp": 0.5, "sp": 0, "sp_tp": 0.25}
    load = module("bench/emulated/formation_load")
    requests, phases = load.load(types.SimpleNamespace(
        seed=1, output_tokens="20-40", prompt_tokens="50-200", quiet_rate=1, quiet_s=20, burst_rate=9, burst_s=10, rest_s=5))
    assert len(requests) == len(phases) and set(phases) == {"warm", "quiet", "burst"}
    assert [request.at_s for request in requests] == sorted(request.at_s for request in requests)
    assert all(request.output_tokens > 1 for request in requests), "each has a time per token"
    assert len({request.seed for request in requests}) == len(requests)


def tokens_that_end_within_a_character_are_not_whole():
    sys.path.insert(0, os.path.join(ROOT, "bench/emulated"))
    whole = module("bench/emulated/streams.py").whole_tokens
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump({"model": {"vocab": {"\u0120the": 0, "\u00e5": 1, "a\u010a": 2, "\u00c3": 3}}}, file)  # " the", E5, "a\n", C3
        assert whole(folder) == {0, 2}


def formations_of_a_load_have_profiles_and_modes():
    sys.path.insert(0, os.path.join(ROOT, "bench/emulated"))
    load = module("bench/emulated/formation_load")
    options = types.SimpleNamespace(gains="2:1.6,4:2.1,8:2.5", shift_tokens=0, shift_tp=1, step_us=120000, sequence_us=16000, decode=8)
    assert load.shift_tokens(options) == 18  # TP takes 163 ms with 18 tokens and 170 with 19, SP 168
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        for formation in ("shift", "bound(8)"):
            with open(load.profile(options, folder, formation), encoding="utf-8") as file:
                rows[formation] = json.load(file)["formations"]
    assert rows["shift"][2] == {"instances": 8, "gain": 2.5, "shift_tokens": 18, "shift_tp": 1}, rows
    assert rows["bound(8)"][2] == {"instances": 8, "gain": 2.5}, rows
    options.shift_tokens = 7
    assert load.shift_tokens(options) == 7
    assert [load.modes(options, one) for one in ("independent", "bound(2)", "shift", "hybrid", "auto")] == [
        ["own"], ["tp"], ["tp", "sp"], ["own", "tp"], ["own", "tp"]]
    options.gains = ""
    assert load.modes(options, "auto") == ["own"] and load.gains(options) == {}


@contextlib.contextmanager
def llama_server():
    """bench/serving/llama_server.mjs on PEER, with one sequence: its process and its port."""
    with tempfile.TemporaryDirectory() as folder:
        package = os.path.join(folder, "node-llama-cpp", "dist")
        os.makedirs(package)
        with open(os.path.join(folder, "node-llama-cpp", "package.json"), "w", encoding="utf-8") as file:
            file.write('{"type": "module"}')
        with open(os.path.join(package, "index.js"), "w", encoding="utf-8") as file:
            file.write(PEER)
        note = os.path.join(folder, "port")
        with subprocess.Popen(bound(["node", os.path.join(ROOT, "bench/serving/llama_server.mjs"), folder, "model", "1", "1", "64",
                                     note])) as server:
            try:
                end = time.monotonic() + LIMIT_S
                while not os.path.exists(note):
                    assert time.monotonic() < end and server.poll() is None, "llama_server.mjs does not start"
                    time.sleep(0.01)
                with open(note, encoding="utf-8") as file:
                    yield server, int(file.read())
            finally:
                server.kill()


def post(port, length, body):
    """A connection on which a request of this length was sent with this part of its body."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % length + body)
    return connection


def answer_on(connection):
    text = b""
    while not text.endswith(b"\r\n0\r\n\r\n"):
        part = connection.recv(1 << 16)
        assert part, text
        text += part
    return text


def the_peers_server_survives_a_client_that_leaves_in_its_request():
    if not shutil.which("node"):
        return "skip: node is not installed"
    with llama_server() as (server, port):
        for _ in range(3):
            post(port, len(BODY), BODY[:5]).close()
        with post(port, len(BODY), BODY) as connection:
            answer = answer_on(connection)
        assert b'"finish_reason":"length"' in answer and b"data: [DONE]" in answer, answer
        assert server.poll() is None
    return None


def the_peers_server_keeps_idle_connections():
    """Node tells in each answer after how many idle seconds it closes the connection, if it does."""
    if not shutil.which("node"):
        return "skip: node is not installed"
    with llama_server() as (_, port), post(port, len(BODY), BODY) as connection:
        head = answer_on(connection).split(b"\r\n\r\n")[0].lower()
        assert b"connection: keep-alive" in head and b"timeout" not in head, head
    return None


if __name__ == "__main__":
    run_tests(a_killed_bench_leaves_no_process, sigterm_ends_a_bench_and_its_processes_first,
              sigterm_while_a_cluster_stops_ends_what_does_not_stop, a_killed_compare_ends_the_other_checkouts_cluster,
              each_bench_starts_processes_that_end_with_it, a_process_that_may_outlive_its_bench_is_seen,
              a_client_that_fails_fails_the_bench, figures_of_decode_are_counted_as_the_simulator_counts_them,
              tokens_that_end_within_a_character_are_not_whole, formations_of_a_load_have_profiles_and_modes,
              the_peers_server_survives_a_client_that_leaves_in_its_request, the_peers_server_keeps_idle_connections)
