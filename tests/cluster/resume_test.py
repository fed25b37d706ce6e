#!/usr/bin/env python3
"""Instances die or leave while they stream: every client gets the answer that it would have got, after a pause."""
import os
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import continuation, emulated_model  # noqa: E402

FLEDGLING = "deploy/models/fledgling"
STEP_US = 10000
TOKENS = 150
PROMPTS = [[7 * i + k for k in range(20 + 3 * i)] for i in range(16)]

# One of each kind of request whose later tokens depend on the earlier ones by more than the context: the generator's index,
# penalties, the tokens before which no stop token counts, stop strings that span tokens, and several choices.
SAMPLED = [
    {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0.9, "seed": 7, "logprobs": 2},
    {"prompt": "The fox said", "max_tokens": 400, "temperature": 1.0, "seed": 8, "n": 2, "ignore_eos": True},
    {"prompt": "A boat", "max_tokens": 400, "temperature": 0.8, "seed": 9, "presence_penalty": 1.2, "frequency_penalty": 0.7,
     "repetition_penalty": 1.1, "ignore_eos": True},
    {"prompt": "In the morning", "max_tokens": 400, "temperature": 0, "min_tokens": 390},
    {"prompt": "He went home", "max_tokens": 400, "temperature": 0.7, "seed": 10, "ignore_eos": True, "stop": ["zqx", "xqz"]},
]


class Stream(threading.Thread):
    """A streamed completion, choice by choice."""

    def __init__(self, cluster, body):
        super().__init__()
        self.cluster, self.body = cluster, dict(body, model=cluster.name, stream_options={"include_usage": True})
        self.texts, self.tokens, self.logprobs, self.finishes = {}, {}, {}, {}
        self.usage, self.problem = None, None

    def run(self):
        try:
            for chunk in self.cluster.stream("/v1/completions", self.body, timeout=120):
                if "error" in chunk:
                    self.problem = chunk["error"]
                    return
                self.usage = chunk.get("usage") or self.usage
                for choice in chunk["choices"]:
                    index = choice["index"]
                    self.texts[index] = self.texts.get(index, "") + choice["text"]
                    self.tokens.setdefault(index, []).extend(choice.get("token_ids") or [])
                    if choice.get("logprobs"):
                        self.logprobs.setdefault(index, []).extend(choice["logprobs"]["token_logprobs"])
                    if choice.get("finish_reason"):
                        assert index not in self.finishes, self.finishes
                        self.finishes[index] = choice["finish_reason"]
        except Exception as error:  # pylint: disable=broad-except
            self.problem = error

    def count(self):
        return sum(len(one) for one in self.tokens.values())

    def answer(self):
        assert self.problem is None, (self.problem, self.count())
        return self.texts, self.tokens, self.logprobs, self.finishes, self.usage


def play(cluster, bodies):
    streams = [Stream(cluster, body) for body in bodies]
    for stream in streams:
        stream.start()
    return streams


def await_tokens(cluster, streams, least):
    cluster.until(lambda: all(one.count() >= least or not one.is_alive() for one in streams), "streams run")
    assert all(one.is_alive() for one in streams), "a stream ended before the fault"


def resumes(cluster):
    return cluster.metric(cluster.processes["router"], "skein_router_resumes_total")


def kept_tokens(cluster):
    """Prompt tokens that were not computed again."""
    return sum(cluster.metric(process, "skein_prompt_tokens_kept_total")
               for process in cluster.workers() if process.name.startswith("prefill"))


def bodies_of(prompts):
    return [{"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
            for prompt in prompts]


def check(streams):
    for stream in streams:
        stream.join(60)
        _, tokens, _, finishes, usage = stream.answer()
        assert tokens == {0: continuation(stream.body["prompt"], TOKENS)}, (stream.body["prompt"], tokens)
        assert finishes == {0: "length"}, finishes
        assert usage["prompt_tokens"] == len(stream.body["prompt"]) and usage["completion_tokens"] == TOKENS, usage


def cluster_of(folder, **more):
    return Cluster(binaries_from_argv(), emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated"],
                   decode_flags=["--emulated-decode-step-us=%d" % STEP_US, "--drain-grace-s=0.2"], **more)


def test_no_stream_breaks_when_a_decode_worker_is_killed():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        streams = play(cluster, bodies_of(PROMPTS))
        await_tokens(cluster, streams, 30)
        cluster.kill("decode-0")
        cluster.start_worker("decode", 0)
        check(streams)
        assert resumes(cluster) >= 1, "the killed one streamed nothing"
        assert kept_tokens(cluster) >= 20, "prompts of lost streams were computed again"
        cluster.assert_idle_and_whole()
        return None


def test_no_stream_breaks_when_the_only_decode_worker_is_killed_and_comes_back():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder, prefill=1, decode=1) as cluster:
        streams = play(cluster, bodies_of(PROMPTS[:6]))
        await_tokens(cluster, streams, 20)
        cluster.kill("decode-0")
        cluster.start_worker("decode", 0)
        check(streams)
        assert resumes(cluster) >= 6, resumes(cluster)
        cluster.assert_idle_and_whole()
        return None


def test_no_stream_breaks_when_a_decode_worker_leaves():
    """Its grace is shorter than its streams."""
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        streams = play(cluster, bodies_of(PROMPTS))
        await_tokens(cluster, streams, 30)
        assert cluster.end("decode-1") == ""
        check(streams)
        assert resumes(cluster) >= 1, "the one that left streamed nothing"
        cluster.assert_idle_and_whole()
        return None


def test_no_request_fails_when_prefill_workers_are_killed():
    with tempfile.TemporaryDirectory() as folder, cluster_of(folder) as cluster:
        streams = play(cluster, bodies_of(PROMPTS))
        cluster.kill("prefill-0")
        cluster.start_worker("prefill", 0)
        more = play(cluster, bodies_of([[9, *prompt] for prompt in PROMPTS]))
        cluster.kill("prefill-1")
        cluster.start_worker("prefill", 1)
        check(streams + more)
        cluster.assert_idle_and_whole()
        return None


def test_sampled_answers_go_on_as_they_would_have():
    """Real weights, with reproducible sums: every text, logprob and finish reason is that of the request alone."""
    flags = ["--reproducible=on"]
    with Cluster(binaries_from_argv(), FLEDGLING, prefill=1, decode=2, worker_flags=flags) as cluster:
        bodies = [dict(body, return_token_ids=True) for body in SAMPLED]
        alone = []
        for body in bodies:
            stream, = play(cluster, [body])
            stream.join(60)
            alone.append(stream.answer())
        for victim in ("decode-0", "decode-1"):
            # Streams of unlike length: the fault meets those that still run. More of them make it last.
            streams = play(cluster, bodies * 3)
            cluster.until(lambda some=streams: sum(one.count() for one in some) >= 100 * len(some), "streams run")
            cluster.kill(victim, signal.SIGKILL)
            cluster.start_worker("decode", int(victim[-1]))
            for i, stream in enumerate(streams):
                stream.join(60)
                assert stream.answer() == alone[i % len(alone)], (stream.body, stream.answer(), alone[i % len(alone)])
            cluster.until(lambda: cluster.serving() == 3, "it is back")
        assert resumes(cluster) >= 2, resumes(cluster)
        assert kept_tokens(cluster) > 0, "prompts of lost streams were computed again"
        cluster.assert_idle_and_whole()
        return None


run_tests(test_no_stream_breaks_when_a_decode_worker_is_killed,
          test_no_stream_breaks_when_the_only_decode_worker_is_killed_and_comes_back,
          test_no_stream_breaks_when_a_decode_worker_leaves,
          test_no_request_fails_when_prefill_workers_are_killed,
          test_sampled_answers_go_on_as_they_would_have)
