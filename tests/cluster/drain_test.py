#!/usr/bin/env python3
"""Processes leave by choice while requests stream: a decode-worker that drains has its streams moved, and a rolling restart of every
process fails no request. SKEIN_RESTART_STREAMS says how many streams run during the restart."""
import os
import subprocess
import sys
import tempfile
import threading
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import continuation, emulated_model  # noqa: E402

FLEDGLING = "deploy/models/fledgling"
STEP_US = 10000
TOKENS = 300
STREAMS = int(os.environ.get("SKEIN_RESTART_STREAMS", "8"))


def prompt_of(number):
    return [(7 * number + k) % 1000 for k in range(20 + 3 * (number % 40))]


class Answer:
    """A streamed completion of a known answer. Gaps between its tokens are measured, and not judged."""

    def __init__(self, name, url, prompt, tokens):
        self.url, self.prompt, self.tokens = url, prompt, tokens
        self.got, self.gaps, self.ended = [], [], False
        self.body = {"model": name, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
                     "return_token_ids": True, "stream_options": {"include_usage": True}}

    def begun(self):
        return bool(self.got) or self.ended

    def stream(self):
        """What is wrong with it; None: nothing."""
        finish, usage, last = None, None, None
        try:
            for chunk in Cluster.stream(types.SimpleNamespace(url=self.url, ssl=None), "/v1/completions", self.body, timeout=120):
                if "error" in chunk:
                    return "%s after %d tokens" % (chunk["error"], len(self.got))
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    if choice.get("token_ids"):
                        now = time.monotonic()
                        self.gaps += [] if last is None else [now - last]
                        last = now
                        self.got += choice["token_ids"]
                    finish = choice.get("finish_reason") or finish
        except Exception as error:  # pylint: disable=broad-except
            return "%r after %d tokens" % (error, len(self.got))
        finally:
            self.ended = True
        if self.got != continuation(self.prompt, self.tokens):
            return "another answer: %s" % self.got
        if finish != "length" or usage["completion_tokens"] != self.tokens or usage["prompt_tokens"] != len(self.prompt):
            return "another end: %s, %s" % (finish, usage)
        return None


class Stream(threading.Thread):
    """One answer; `problem` is what was wrong with it."""

    def __init__(self, cluster, number, tokens=TOKENS):
        super().__init__()
        self.answer = Answer(cluster.name, cluster.url, prompt_of(number), tokens)
        self.problem = "not over"
        self.start()

    def run(self):
        self.problem = self.answer.stream()


def play(cluster, count, tokens=TOKENS):
    streams = [Stream(cluster, number, tokens) for number in range(count)]
    cluster.until(lambda: all(one.answer.begun() for one in streams), "streams run")
    return streams


def check(streams):
    for stream in streams:
        stream.join(120)
        assert stream.problem is None, stream.problem


def counted(cluster, name, router="router"):
    return cluster.metric(cluster.processes[router], name)


def moves(cluster):
    return counted(cluster, "skein_router_drain_moves_total")


def options(folder, **more):
    return dict(model=emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated"],
                decode_flags=["--emulated-decode-step-us=%d" % STEP_US], **more)


def cluster_of(folder, **more):
    return Cluster(binaries_from_argv(), **options(folder, **more))


def test_a_decode_worker_that_is_stopped_has_its_streams_moved_and_breaks_none():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        streams = play(cluster, 8)
        assert cluster.end("decode-1") == ""
        check(streams)
        assert moves(cluster) >= 1, "the one that left streamed nothing"
        assert counted(cluster, "skein_router_resumes_total") == moves(cluster), "a stream was lost instead of moved"
        cluster.assert_idle_and_whole()
        return None


def test_an_operators_drain_moves_streams_too():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        streams = play(cluster, 8)
        done = subprocess.run([cluster.binaries["skeinctl"], "drain", "--admin", cluster.processes["decode-0"].admin()[len("http://"):],
                               "--wait"], check=False, stdout=subprocess.PIPE, universal_newlines=True, timeout=120)
        assert done.returncode == 0 and "safe to delete" in done.stdout, done
        check(streams)
        assert moves(cluster) >= 1, "the drained one streamed nothing"
        assert counted(cluster, "skein_router_resumes_total") == moves(cluster), "a stream was lost instead of moved"
        cluster.assert_idle_and_whole()
        return None


def test_streams_of_the_only_decode_worker_stay_there():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, prefill=1, decode=1) as cluster:
        streams = play(cluster, 4)
        cluster.request("POST", "/drain?force=1", b"", base=cluster.processes["decode-0"].admin())
        check(streams)
        assert counted(cluster, "skein_router_resumes_total") == 0
        cluster.assert_idle_and_whole()
        return None


class TwoRouters(Cluster):
    """Its second router is named router2. Both have the same flags."""

    def start_router(self):
        self.urls = {}
        for name in ("router2", "router"):
            self.start_one(name)
        self.url = self.urls["router"]

    def start_one(self, name):
        port = self.port_file(name)
        self.run(name, "router", ["--orchestrator=" + self.orchestrator, "--port=0", "--port-file=" + port,
                                  "--model=%s=%s" % (self.name, self.model)])
        self.urls[name] = "http://127.0.0.1:" + self.await_file(port, name)

    def start_orchestrator(self):
        self.run("orchestrator", "orchestrator", ["--port=" + self.orchestrator.split(":")[1]])

    def await_whole(self):
        self.until(lambda: self.serving() == sum(self.counts.values()), "each worker serves")
        for url in self.urls.values():
            self.url = url
            self.await_ready()

    def stop(self):
        bad = self.end("router2")
        assert not bad, bad
        super().stop()


class Load:
    """Clients that send one streamed request after the other, to the routers that are open to them, until stopped."""

    def __init__(self, cluster, clients):
        self.cluster, self.lock, self.stopped = cluster, threading.Lock(), False
        self.open = dict(cluster.urls)
        self.current = [None] * clients
        self.answers, self.problems, self.gaps = 0, [], []
        self.threads = [threading.Thread(target=self.client, args=(number,)) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def client(self, number):
        turn = number
        while not self.stopped:
            with self.lock:
                urls = list(self.open.values())
                answer = Answer(self.cluster.name, urls[turn % len(urls)], prompt_of(number + turn), TOKENS)
                self.current[number] = answer
            problem = answer.stream()
            with self.lock:
                self.answers += 1
                self.problems += [] if problem is None else [problem]
                self.gaps += answer.gaps
            turn += 1

    def running(self, url=None):
        """How many answers have begun and not ended, at this router or at all."""
        with self.lock:
            return sum(one is not None and bool(one.got) and not one.ended and url in (None, one.url) for one in self.current)

    def await_streams(self):
        self.cluster.until(lambda: self.running() >= len(self.current) / 2 or self.problems, "streams run")
        assert not self.problems, self.problems

    def leave(self, name):
        """No client sends anything new to this router, and what was sent there has begun."""
        with self.lock:
            url = self.open.pop(name)
            before = [one for one in self.current if one is not None and one.url == url]
        self.cluster.until(lambda: all(one.begun() for one in before), "the requests of %s have begun" % name)

    def come(self, name):
        with self.lock:
            self.open[name] = self.cluster.urls[name]

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join(120)


def restart(cluster, load, name):
    load.await_streams()
    if name in cluster.urls:
        load.leave(name)
    bad = cluster.end(name)
    assert not bad, bad
    if name in cluster.urls:
        cluster.start_one(name)
    elif name == "orchestrator":
        cluster.start_orchestrator()
    else:
        role, index = name.split("-")
        cluster.start_worker(role, int(index))
    cluster.await_whole()
    if name in cluster.urls:
        load.come(name)


def test_a_rolling_restart_of_every_process_fails_no_request():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as state, \
            TwoRouters(binaries_from_argv(), **options(
                folder, orchestrator_flags=["--state-dir=" + state, "--instance-lease-s=10"])) as cluster:
        cluster.await_whole()
        load = Load(cluster, STREAMS)
        try:
            for name in ("decode-0", "decode-1"):
                restart(cluster, load, name)
            moved = sum(counted(cluster, "skein_router_drain_moves_total", name) for name in cluster.urls)
            assert moved >= 1, "no decode-worker that left had streams"
            for name in ("prefill-0", "prefill-1", "orchestrator", "router", "router2"):
                restart(cluster, load, name)
            load.await_streams()
        finally:
            load.stop()
        gaps = sorted(load.gaps)
        print("%d answers to %d clients, %d failed; %d streams moved; gaps between tokens: p50 %.3f s, p99 %.3f s, longest %.3f s" % (
            load.answers, STREAMS, len(load.problems), moved, gaps[len(gaps) // 2], gaps[len(gaps) * 99 // 100], gaps[-1]), flush=True)
        assert not load.problems, load.problems
        assert load.answers >= STREAMS, load.answers
        cluster.assert_idle_and_whole()
        return None


run_tests(test_a_decode_worker_that_is_stopped_has_its_streams_moved_and_breaks_none,
          test_an_operators_drain_moves_streams_too,
          test_streams_of_the_only_decode_worker_stay_there,
          test_a_rolling_restart_of_every_process_fails_no_request)
