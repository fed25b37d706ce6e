#!/usr/bin/env python3
"""64 concurrent streams for a minute with random disconnects: every finished answer equals its single-stream answer,
no block is lost, memory is flat. Seeded; SKEIN_SOAK_SECONDS changes the length."""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests, shared  # noqa: E402

STREAMS = 64
SECONDS = float(os.environ.get("SKEIN_SOAK_SECONDS", "60"))
PROMPTS = ["Once upon a time", "One day, a little girl named Lily", "Tom had a red ball.", "The cat sat on the mat and",
           "There was a big dog", "Mom said", "In the park, Ben saw", "\"Hello,\" said the bird."]


def body_of(cluster, choice):
    return {"model": cluster.name, "prompt": PROMPTS[choice % len(PROMPTS)], "max_tokens": 20 + 15 * (choice % 5),
            "temperature": 0.8 if choice % 2 else 0, "seed": choice}


def text_of(stream):
    return "".join(c["text"] for chunk in stream for c in chunk["choices"])


class Client(threading.Thread):
    def __init__(self, cluster, expected, seed, end):
        super().__init__()
        self.cluster, self.expected, self.end = cluster, expected, end
        self.random = random.Random(seed)
        self.finished = self.dropped = 0
        self.problem = None

    def run(self):
        try:
            while time.monotonic() < self.end and self.problem is None:
                self.one()
        except Exception as error:  # pylint: disable=broad-except
            self.problem = repr(error)

    def one(self):
        choice = self.random.randrange(len(self.expected))
        stream = self.cluster.stream("/v1/completions", body_of(self.cluster, choice))
        if self.random.random() < 0.4:
            for _ in range(self.random.randrange(12)):
                if next(stream, None) is None:
                    break
            stream.close()
            self.dropped += 1
            return
        text = text_of(stream)
        if text != self.expected[choice]:
            self.problem = "choice %d: %r instead of %r" % (choice, text, self.expected[choice])
        self.finished += 1


def soak(cluster, expected, seconds, seed):
    end = time.monotonic() + seconds
    clients = [Client(cluster, expected, seed + i, end) for i in range(STREAMS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    problems = [c.problem for c in clients if c.problem]
    assert not problems, problems[:3]
    return sum(c.finished for c in clients), sum(c.dropped for c in clients)


def memory_kib(cluster):
    return {name: process.rss_kib() for name, process in cluster.processes.items()}


def every_finished_answer_is_right_and_nothing_leaks():
    model = shared("models", "stories260K")
    if not model:
        return "skip: needs ../shared"
    # AddressSanitizer keeps 256 MiB of freed memory by default, far more than the warm-up frees; a
    # smaller limit is reached by then.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
    with Cluster(binaries_from_argv(), model) as cluster:
        expected = [text_of(cluster.stream("/v1/completions", body_of(cluster, c))) for c in range(40)]
        # The first third warms up allocators and thread pools; after it memory must not grow.
        soak(cluster, expected, SECONDS / 3, 1)
        cluster.assert_idle_and_whole()
        before = memory_kib(cluster)
        finished, dropped = soak(cluster, expected, SECONDS * 2 / 3, 1000)
        cluster.assert_idle_and_whole()
        after = memory_kib(cluster)
        print("finished %d, dropped %d; memory KiB before %s after %s" % (finished, dropped, before, after))
        assert finished >= STREAMS and dropped >= STREAMS / 4
        for name, kib in before.items():
            assert after[name] < kib * 1.15 + 8192, (name, kib, after[name])


def a_disconnect_frees_its_blocks_at_once():
    model = shared("models", "stories260K")
    if not model:
        return "skip: needs ../shared"
    with Cluster(binaries_from_argv(), model, prefill=1, decode=1) as cluster:
        stream = cluster.stream("/v1/completions", {"model": cluster.name, "prompt": "Once upon a time",
                                                    "max_tokens": 480, "ignore_eos": True, "temperature": 0})
        next(stream)
        assert cluster.held_blocks() > 0
        stream.close()
        # The decode instance cancelled the request long before its 480 tokens: fewer steps than
        # tokens ran.
        cluster.assert_idle_and_whole()
        decode = cluster.processes["decode-0"]
        assert cluster.metric(decode, "skein_output_tokens_computed_total") < 480


if __name__ == "__main__":
    run_tests(a_disconnect_frees_its_blocks_at_once, every_finished_answer_is_right_and_nothing_leaks)
