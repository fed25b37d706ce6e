#!/usr/bin/env python3
"""Prompts computed by several prefill-workers with a real model get the same answers as from one: the sample of questions whose
right answers are known, under plans of every kind.
"""
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, device_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"


def bytes_by_path(cluster):
    """Bytes exchanged in ring steps, by path, over all prefill-workers."""
    workers = [p for p in cluster.workers() if p.name.startswith("prefill")]
    return {path: sum(cluster.metric(p, "skein_comm_bytes_total", 'path="%s"' % path) for p in workers)
            for path in ("ipc", "nccl", "host")}


def tensor_steps(cluster):
    """Steps that each prefill-worker ran together with three others, with the dense part shared."""
    return [cluster.metric(p, "skein_engine_steps_total", 'mode="ring_tp",model_name="fledgling",ranks="4"')
            for p in cluster.workers() if p.name.startswith("prefill")]


def right_answers(policy, node_size=2, tp=1):
    """With `tp`, neighbours share the dense part of the chunks that they compute."""
    with open(os.path.join(MODEL, "eval_sample.json"), encoding="utf-8") as f:
        items = json.load(f)["items"]
    flags = ["--profile=llama3-8b-a100", "--node-size=%d" % node_size, "--policy=" + policy]
    if tp > 1:
        flags.append("--prefill-tp=%d" % tp)
    with Cluster(binaries_from_argv(), MODEL, prefill=4, decode=1, orchestrator_flags=flags) as cluster:
        def ask(item):
            body = {"model": "fledgling", "messages": item["messages"], "temperature": 0, "max_tokens": 300}
            return cluster.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for item, text in zip(items, pool.map(ask, items)):
                assert text == item["expected"] or item["kind"] == "story", (item, text)
        sp_plans = cluster.metric(cluster.processes["orchestrator"], "skein_spanning_plans_total")
        assert sp_plans > len(items) / 4, sp_plans
        # Workers on one GPU open each other's memory; without GPUs only the host path exists.
        taken = {path for path, moved in bytes_by_path(cluster).items() if moved > 0}
        assert taken == {"ipc" if device_from_argv() else "host"}, bytes_by_path(cluster)
        cluster.assert_idle_and_whole()
        steps = tensor_steps(cluster)
        if tp == 1:
            assert steps == [0] * 4, steps
        else:
            assert min(steps) > 0 and min(steps) == max(steps), steps
            shared = sum(cluster.metric(p, "skein_comm_bytes_total", 'ranks="%d"' % tp) for p in cluster.workers())
            assert shared > 0, "all plans are of four instances, so only tensor groups are smaller"


def plans_of_every_kind():
    right_answers("random")


def all_instances_at_once():
    right_answers("fixed4")


def neighbours_share_the_dense_part():
    right_answers("fixed4", node_size=4, tp=2)


if __name__ == "__main__":
    run_tests(plans_of_every_kind, all_instances_at_once, neighbours_share_the_dense_part)
