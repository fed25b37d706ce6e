#!/usr/bin/env python3
"""Decode-workers with a real model, bound as one group by hand, answer the sample of questions whose right answers are known, as each alone
does before and after; their collectives take the way that their devices have.
"""
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, device_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"
PATHS = ("ipc", "nccl", "host")


def group_of(cluster):
    groups = json.loads(cluster.skeinctl("formation", "--format=json"))["groups"]
    return next((group for group in groups if group["role"] == "decode"), None)


def decoders(cluster):
    return [p for p in cluster.workers() if p.name.startswith("decode")]


def steps_together(cluster):
    """Of each decode-worker, in any mode of a group of four."""
    return [sum(cluster.metric(p, "skein_engine_steps_total", 'mode="%s",model_name="fledgling",ranks="4"' % mode) for mode in ("tp", "sp"))
            for p in decoders(cluster)]


def bytes_by_path(cluster, process):
    return {path: cluster.metric(process, "skein_comm_bytes_total", 'path="%s",ranks="4"' % path) for path in PATHS}


def answers_are_right(cluster, pool, items):
    def answer_of(item):
        body = {"model": "fledgling", "messages": item["messages"], "temperature": 0, "max_tokens": 120}
        return cluster.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]

    for item, text in zip(items, pool.map(answer_of, items)):
        assert text == item["expected"], (item, text)


def a_bound_group_answers_as_each_instance_alone():
    with open(os.path.join(MODEL, "eval_sample.json"), encoding="utf-8") as f:
        items = json.load(f)["items"][::3]
    with Cluster(binaries_from_argv(), MODEL, prefill=1, decode=4, worker_flags=["--node=a"]) as cluster, \
            concurrent.futures.ThreadPoolExecutor(8) as pool:
        cluster.until(lambda: (group_of(cluster) or {}).get("ready") == 4, "the group has its communicators")
        answers_are_right(cluster, pool, items)
        assert steps_together(cluster) == [0] * 4, steps_together(cluster)
        name = group_of(cluster)["name"]
        cluster.skeinctl("bind", "--group", name, "--size", "4")
        answers_are_right(cluster, pool, items)
        for process in decoders(cluster):
            taken = {path for path, moved in bytes_by_path(cluster, process).items() if moved > 0}
            # Workers on one GPU open each other's memory; without GPUs only the host path exists.
            assert taken == {"ipc" if device_from_argv() else "host"}, bytes_by_path(cluster, process)
        cluster.skeinctl("release", "--group", name)
        # The other members may hear of the last step's end after the lead.
        cluster.until(lambda: len(set(steps_together(cluster))) == 1, "each member has run as many steps")
        steps = steps_together(cluster)
        assert min(steps) > 0, steps
        answers_are_right(cluster, pool, items)
        assert steps_together(cluster) == steps, (steps, steps_together(cluster))
        cluster.assert_idle_and_whole()


if __name__ == "__main__":
    run_tests(a_bound_group_answers_as_each_instance_alone)
