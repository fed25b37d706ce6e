#!/usr/bin/env python3
"""Workers and the orchestrator leave, fail and return while requests run: nothing hangs, nothing is lost silently,
every request ends exactly once, every block is free afterwards."""
import os
import pathlib
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, Process, binaries_from_argv, run_tests, shared  # noqa: E402

PROMPT = "Once upon a time"


class Stream(threading.Thread):
    """One streamed completion; `text` on success, `error` when the cluster reported a failure."""

    def __init__(self, cluster, tokens=300, seed=0):
        super().__init__()
        self.cluster = cluster
        self.body = {"model": cluster.name, "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True,
                     "temperature": 0.7, "seed": seed}
        self.started = threading.Event()
        self.text, self.error, self.reason = "", None, None
        self.start()

    def run(self):
        try:
            for chunk in self.cluster.stream("/v1/completions", self.body):
                if "error" in chunk:
                    assert self.error is None, "two errors"
                    self.error = chunk["error"]
                    continue
                for choice in chunk["choices"]:
                    self.text += choice["text"]
                    self.reason = choice["finish_reason"] or self.reason
                self.started.set()
        except HttpFailure as failure:
            self.error = failure.error()
        except (AssertionError, OSError) as problem:
            # A stream that ends after an error event reported its failure; one that ends without is
            # a fault.
            self.error = self.error or {"message": "broken: %r" % problem, "type": "broken"}
        self.started.set()


def model_or_skip():
    return shared("models", "stories260K")


def expected_texts(cluster, count, tokens=300):
    streams = [Stream(cluster, tokens, seed) for seed in range(count)]
    for stream in streams:
        stream.join()
        assert stream.error is None, stream.error
    return [s.text for s in streams]


def leave(cluster, name):
    """Sends SIGTERM; the process must end in time with exit code 0."""
    process = cluster.processes.pop(name)
    process.popen.send_signal(signal.SIGTERM)
    return process


def finish(streams, expected):
    for stream, text in zip(streams, expected):
        stream.join()
        assert stream.error is None, stream.error
        assert stream.text == text


def a_draining_decode_worker_breaks_no_stream():
    """They move to the other one, and go on as they would have."""
    if not model_or_skip():
        return "skip: needs ../shared"
    with Cluster(binaries_from_argv(), model_or_skip(), worker_flags=["--reproducible=on"]) as cluster:
        expected = expected_texts(cluster, 12)
        streams = [Stream(cluster, 300, seed) for seed in range(12)]
        for stream in streams:
            stream.started.wait()
        leaving = leave(cluster, "decode-0")
        finish(streams, expected)
        assert leaving.popen.wait(30) == 0, leaving.tail()
        assert expected_texts(cluster, 2) == expected[:2]
        cluster.assert_idle_and_whole()


def a_draining_prefill_worker_leaves_when_its_kv_was_taken():
    if not model_or_skip():
        return "skip: needs ../shared"
    with Cluster(binaries_from_argv(), model_or_skip(), prefill_flags=["--max-slice-tokens=2"]) as cluster:
        expected = expected_texts(cluster, 24, 20)
        streams = [Stream(cluster, 20, seed) for seed in range(24)]
        leaving = leave(cluster, "prefill-1")
        finish(streams, expected)
        assert leaving.popen.wait(30) == 0, leaving.tail()
        assert expected_texts(cluster, 2, 20) == expected[:2]
        cluster.assert_idle_and_whole()


def dead(role, how=signal.SIGKILL):
    """One of two workers ends: its requests go on elsewhere as they would have here; and it can return."""
    with Cluster(binaries_from_argv(), model_or_skip(), worker_flags=["--reproducible=on"]) as cluster:
        expected = expected_texts(cluster, 16)
        streams = [Stream(cluster, 300, seed) for seed in range(16)]
        for stream in streams:
            stream.started.wait()
        cluster.kill(role + "-0", how)
        finish(streams, expected)
        cluster.until(lambda: len(cluster.status()["instances"]) == 3, "the dead instance is gone", 20)
        assert expected_texts(cluster, 4) == expected[:4]
        cluster.start_worker(role, 0)
        cluster.until(lambda: len(cluster.status()["instances"]) == 4, "it is back", 20)
        assert expected_texts(cluster, 4) == expected[:4]
        cluster.assert_idle_and_whole()


def a_killed_decode_worker_fails_no_request():
    return dead("decode") if model_or_skip() else "skip: needs ../shared"


def a_prefill_worker_that_aborts_does_not_stop_running_streams():
    """Ends like a worker whose GPU failed (engine/cuda/device/cuda_check.h)."""
    return dead("prefill", signal.SIGABRT) if model_or_skip() else "skip: needs ../shared"


def running_streams_outlive_the_orchestrator():
    if not model_or_skip():
        return "skip: needs ../shared"
    state = tempfile.TemporaryDirectory()
    generation = pathlib.Path(state.name) / "generation"
    with state, Cluster(binaries_from_argv(), model_or_skip(), orchestrator_flags=["--state-dir=" + state.name]) as cluster:
        expected = expected_texts(cluster, 4)
        streams = [Stream(cluster, 300, seed) for seed in range(4)]
        for stream in streams:
            stream.started.wait()
        cluster.kill("orchestrator")
        first = int(generation.read_text())
        generation.unlink()  # the next one learns the number from who refuses it
        finish(streams, expected)
        try:
            cluster.post("/v1/completions", {"model": cluster.name, "prompt": PROMPT, "max_tokens": 1})
            raise AssertionError("answered without an orchestrator")
        except HttpFailure as failure:
            assert failure.code in (503, 504), failure
        admin = os.path.join(cluster.folder, "orchestrator.admin")
        cluster.processes["orchestrator"] = Process(
            "orchestrator", [cluster.binaries["orchestrator"], "--port=" + cluster.orchestrator.split(":")[1],
                             "--admin-port=0", "--admin-port-file=" + admin, "--state-dir=" + state.name], cluster.folder)
        # Workers and router find the new orchestrator independently, so there are two things to
        # wait for.
        cluster.until(lambda: len(cluster.status()["instances"]) == 4, "all workers registered anew", 30)
        cluster.until(lambda: len(cluster.status()["routers"]) == 1, "the router has found it", 30)
        assert int(generation.read_text()) > first
        assert expected_texts(cluster, 4) == expected
        cluster.assert_idle_and_whole()


if __name__ == "__main__":
    run_tests(a_draining_decode_worker_breaks_no_stream,
              a_draining_prefill_worker_leaves_when_its_kv_was_taken,
              a_killed_decode_worker_fails_no_request,
              a_prefill_worker_that_aborts_does_not_stop_running_streams,
              running_streams_outlive_the_orchestrator)
