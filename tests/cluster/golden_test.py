#!/usr/bin/env python3
"""Greedy continuation of stories260K through the whole cluster over REST: 200 golden ids, however the prompt is cut."""
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests, shared  # noqa: E402

BOS = 1


def golden():
    return json.load(open(shared("models", "stories260K", "golden_greedy.json"), encoding="utf-8"))["greedy_ids"]


def continue_greedily(cluster, prompt, count):
    answer = cluster.post("/v1/completions", {"model": cluster.name, "prompt": prompt, "max_tokens": count,
                                              "temperature": 0, "ignore_eos": True, "return_token_ids": True})
    assert answer["usage"]["completion_tokens"] == count, answer["usage"]
    return answer["choices"][0]["token_ids"]


def check(cluster):
    ids = golden()
    # From the beginning, and from prompts of many lengths (full and partial blocks).
    assert continue_greedily(cluster, [BOS], 200) == ids
    for cut in (1, 14, 15, 16, 31, 100):
        assert continue_greedily(cluster, [BOS] + ids[:cut], 200 - cut) == ids[cut:], cut
    cluster.assert_idle_and_whole()


def batch_of_32(cluster):
    ids = golden()
    cuts = [i * 3 for i in range(32)]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda cut: continue_greedily(cluster, [BOS] + ids[:cut], 200 - cut), cuts))
    for cut, answer in zip(cuts, answers):
        assert answer == ids[cut:], cut
    cluster.assert_idle_and_whole()


def in_one_go_and_in_a_batch():
    model = shared("models", "stories260K")
    if not model:
        return "skip: needs ../shared"
    with Cluster(binaries_from_argv(), model) as cluster:
        check(cluster)
        batch_of_32(cluster)


def in_chunks_and_in_a_batch():
    model = shared("models", "stories260K")
    if not model:
        return "skip: needs ../shared"
    with Cluster(binaries_from_argv(), model, prefill_flags=["--max-slice-tokens=7"]) as cluster:
        check(cluster)
        batch_of_32(cluster)


def with_one_of_each_and_odd_blocks():
    model = shared("models", "stories260K")
    if not model:
        return "skip: needs ../shared"
    with Cluster(binaries_from_argv(), model, prefill=1, decode=1, worker_flags=["--block-tokens=5"]) as cluster:
        check(cluster)


if __name__ == "__main__":
    run_tests(in_one_go_and_in_a_batch, in_chunks_and_in_a_batch, with_one_of_each_and_odd_blocks)
