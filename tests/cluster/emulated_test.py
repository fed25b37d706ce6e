#!/usr/bin/env python3
"""Emulated workers: the real binaries and messages, KV that carries tags. A lost, stale or misplaced block changes the answer."""
import concurrent.futures
import json
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model, fast_profile  # noqa: E402

TOKENIZER = "deploy/models/fledgling"
EMULATED = ["--device=emulated", "--kv-gib=0.01"]


def prompts(count, longest, seed=1):
    draw = random.Random(seed)
    return [[draw.randrange(VOCAB) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def check(cluster, asked, tokens, **shape):
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda prompt: complete(cluster, prompt, tokens), asked))
    for prompt, answer in zip(asked, answers):
        assert answer == continuation(prompt, tokens, **shape), (len(prompt), answer)
    cluster.assert_idle_and_whole()


def answers_are_the_continuation():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), worker_flags=EMULATED) as cluster:
        check(cluster, prompts(24, 1500), 12)


def of_several_layers_and_heads_and_in_chunks():
    flags = EMULATED + ["--emulated-layers=3", "--emulated-kv-heads=2", "--emulated-head-dim=8", "--block-tokens=5"]
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), worker_flags=flags,
                    prefill_flags=["--max-slice-tokens=33"]) as cluster:
        check(cluster, prompts(12, 300), 9, layers=3, heads=2, words=2)


def sixteen_and_four_start_and_answer():
    flags = EMULATED + ["--max-batch-tokens=262144"]
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=16, decode=4, worker_flags=flags,
                    prefill_flags=["--profile=llama3-8b-a100", "--max-slice-tokens=262144"],
                    decode_flags=["--emulated-decode-step-us=20000"]) as cluster:
        check(cluster, prompts(32, 3000) + prompts(1, 1, seed=2) + [[7] * 40000], 3)


def a_worker_whose_kv_has_another_shape_is_refused_and_ends():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), worker_flags=EMULATED) as cluster:
        cluster.flags["decode"].append("--block-tokens=32")
        cluster.start_worker("decode", 2)
        other = cluster.processes.pop("decode-2")
        assert other.popen.wait(60) == 1, other.tail()
        assert "error: the orchestrator refuses this worker: model %s: block_tokens: this worker 32, " \
            "its instances" % cluster.name in other.text(), other.tail()
        check(cluster, prompts(4, 100), 4)


def workers_that_come_back_with_another_shape_are_taken():
    """Killed workers count until their lease expires; until then new ones are refused and retry."""
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), worker_flags=EMULATED,
                    orchestrator_flags=["--instance-lease-s=5"]) as cluster:
        workers = [(role, index) for role in ("prefill", "decode") for index in range(cluster.counts[role])]
        for role, index in workers:
            cluster.kill("%s-%d" % (role, index))
        for role in ("prefill", "decode"):
            cluster.flags[role].append("--block-tokens=32")
        for role, index in workers:
            cluster.start_worker(role, index)
        pids = {process.popen.pid for process in cluster.workers()}
        cluster.until(lambda: {i["pid"] for i in cluster.status()["instances"] if i["serving"]} == pids, "all are taken")
        cluster.await_ready()
        check(cluster, prompts(4, 100), 4)


def sp_plans(policy):
    """Prompts on growing sets of instances: blocks move, and every rank checks the blocks it receives."""
    with tempfile.TemporaryDirectory() as folder:
        profile = fast_profile(folder, 50)
        with Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=6, decode=2,
                     worker_flags=EMULATED + ["--max-batch-tokens=4096"], prefill_flags=["--profile=" + profile],
                     orchestrator_flags=["--policy=" + policy, "--profile=" + profile]) as cluster:
            check(cluster, prompts(24, 6000), 4)
            plans = cluster.metric(cluster.processes["orchestrator"], "skein_spanning_plans_total")
            assert plans > 0, plans


def sp_plans_of_tetris():
    sp_plans("tetris")


def sp_plans_that_roll():
    sp_plans("rolling")


def random_sp_plans():
    sp_plans("random")


def a_request_that_cannot_be_sampled_harms_no_other():
    """A vocabulary so small that a client can name all of it as stop tokens, and forbid them with min_tokens."""
    vocab = 64
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER, vocab=vocab), worker_flags=EMULATED) as cluster:
        draw = random.Random(3)
        asked = [[draw.randrange(vocab) for _ in range(draw.randint(1, 300))] for _ in range(40)]

        def refusal(_):
            try:
                return cluster.post("/v1/completions", {
                    "model": cluster.name, "prompt": [1, 2, 3], "max_tokens": 5, "min_tokens": 1, "ignore_eos": True,
                    "stop_token_ids": list(range(vocab))})
            except HttpFailure as failure:
                return failure.code, failure.error()["message"]

        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            bad = pool.map(refusal, range(10))
            good = pool.map(lambda prompt: complete(cluster, prompt, 8), asked)
            for prompt, answer in zip(asked, good):
                assert answer == continuation(prompt, 8, vocab=vocab), (len(prompt), answer)
            for code, message in bad:
                assert code == 400 and "no token to sample" in message, (code, message)
        cluster.assert_idle_and_whole()


if __name__ == "__main__":
    run_tests(answers_are_the_continuation, of_several_layers_and_heads_and_in_chunks,
              sixteen_and_four_start_and_answer, a_worker_whose_kv_has_another_shape_is_refused_and_ends,
              workers_that_come_back_with_another_shape_are_taken,
              sp_plans_of_tetris, sp_plans_that_roll,
              random_sp_plans, a_request_that_cannot_be_sampled_harms_no_other)
