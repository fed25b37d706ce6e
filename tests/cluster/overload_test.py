#!/usr/bin/env python3
"""Far more requests at once than the instances hold: each is answered completely and correctly, or refused with 429 before any work.

Emulated workers. bench/emulated/overload plays larger bursts.
"""
import asyncio
import collections
import json
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, continuation, emulated_model, fast_profile  # noqa: E402

TOKENIZER = "deploy/models/fledgling"
TOKENS = 4


async def ask(url, model, prompt, start):
    """(status, headers, body) of one completion, on its own connection."""
    host, port = url[len("http://"):].split(":")
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True,
                       "temperature": 0, "return_token_ids": True}).encode()
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await start.wait()  # all are connected
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: skein\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head, _, text = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}, text


async def burst(cluster, prompts):
    start = asyncio.Event()
    asked = [asyncio.ensure_future(ask(cluster.url, cluster.name, prompt, start)) for prompt in prompts]
    await asyncio.sleep(0)
    start.set()
    return await asyncio.gather(*asked)


def check(prompt, status, headers, text):
    """429 says when to retry and that no work was done; 200 has the complete, correct answer."""
    if status == 429:
        assert int(headers["retry-after"]) >= 1, headers
        assert headers["x-skein-dropped-reason"] == "rejected-saturated", headers
        return
    assert status == 200, (status, text)
    ids = json.loads(text)["choices"][0]["token_ids"]
    assert ids == continuation(prompt, TOKENS), (len(prompt), ids)


def play(binaries, count, max_requests, policy=None):
    """Sends `count` requests at once to 2 + 2 workers with `max_requests` each; returns the answers by status, and the orchestrator's counts."""
    draw = random.Random(count)
    prompts = [[draw.randrange(VOCAB) for _ in range(draw.randint(1, 60))] for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        profile = fast_profile(folder, 100)
        flags = ["--policy=" + policy, "--profile=" + profile] if policy else []
        with Cluster(binaries, emulated_model(folder, TOKENIZER),
                     worker_flags=["--device=emulated", "--kv-gib=0.01", "--max-requests=%d" % max_requests],
                     prefill_flags=["--profile=" + profile], orchestrator_flags=flags) as cluster:
            answers = asyncio.run(burst(cluster, prompts))
            for prompt, answer in zip(prompts, answers):
                check(prompt, *answer)
            counts = collections.Counter(status for status, _, _ in answers)
            orchestrator = cluster.processes["orchestrator"]
            metrics = {name: cluster.metric(orchestrator, *name.split(" ")) for name in (
                "skein_requests_submitted_total", "skein_requests_refused_total", "skein_requests_failed_total",
                'skein_degraded_total reason="parked"', 'skein_degraded_total reason="replanned"')}
            assert metrics["skein_requests_submitted_total"] == counts[200], (counts, metrics)
            assert metrics["skein_requests_failed_total"] == 0, metrics
            cluster.assert_idle_and_whole()
            return counts, metrics


def more_than_they_hold(policy=None):
    counts, metrics = play(binaries_from_argv(), 200, 4, policy)  # 16 at a time
    assert counts[200] >= 16 and counts[429] > 0, counts
    return metrics


def without_a_profile():
    metrics = more_than_they_hold()
    assert metrics['skein_degraded_total reason="parked"'] > 0, metrics


def with_tetris():
    metrics = more_than_they_hold("tetris")
    assert metrics['skein_degraded_total reason="parked"'] > 0, metrics


def with_rolling():
    more_than_they_hold("rolling")


if __name__ == "__main__":
    run_tests(without_a_profile, with_tetris, with_rolling)
