#!/usr/bin/env python3
"""KV that comes through staging buffers (--handoff=staging) gives the same answers as one-sided writes: the golden ids of a real
model, plans of several writers, buffers fewer than requests and far smaller than a prompt, and writers that die holding one.
"""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests, shared  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model, fast_profile  # noqa: E402

BOS = 1
TOKENIZER = "deploy/models/fledgling"
# A block of stories260K has a few KiB per layer, so parts have a few blocks.
STAGING = ["--handoff=staging", "--handoff-staging-buffers=2", "--handoff-staging-bytes=65536"]


def golden_ids_through_two_buffers():
    model = shared("models", "stories260K")
    if not model:
        return "skip: needs ../shared"
    ids = json.load(open(shared("models", "stories260K", "golden_greedy.json"), encoding="utf-8"))["greedy_ids"]

    def check(cut):
        answer = cluster.post("/v1/completions", {"model": cluster.name, "prompt": [BOS] + ids[:cut], "max_tokens": 200 - cut,
                                                  "temperature": 0, "ignore_eos": True, "return_token_ids": True})
        assert answer["choices"][0]["token_ids"] == ids[cut:], cut

    with Cluster(binaries_from_argv(), model, prefill_flags=["--max-slice-tokens=16"], decode_flags=STAGING) as cluster:
        check(0)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(check, [i * 12 for i in range(16)]))
        idle_and_whole(cluster)


def idle_and_whole(cluster):
    """Also checks that every staging buffer is free again."""
    cluster.assert_idle_and_whole()
    decode = [p for n, p in cluster.processes.items() if n.startswith("decode")]

    def free():
        return all(cluster.metric(p, "skein_handoff_backends", 'state="held"') == 0 for p in decode)
    cluster.until(free, "all staging buffers are free", 20)
    assert all(cluster.metric(p, "skein_handoff_backends", 'state="free"') > 0 for p in decode)


def sp_cluster(folder, *orchestrator_flags, speed=1):
    """Emulated instances whose prompts are computed, and written, by up to four."""
    profile = "--profile=" + fast_profile(folder, speed)
    workers = ["--device=emulated", "--kv-gib=0.01", "--max-batch-tokens=262144"]
    return Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=4, decode=2, worker_flags=workers,
                   prefill_flags=[profile, "--max-slice-tokens=262144"], orchestrator_flags=[profile, *orchestrator_flags],
                   decode_flags=["--handoff=staging", "--handoff-staging-buffers=2", "--handoff-staging-bytes=4096"])


def prompt_of(length, seed):
    draw = random.Random(seed)
    return [draw.randrange(VOCAB) for _ in range(length)]


def several_writers(policy):
    with tempfile.TemporaryDirectory() as folder, \
            sp_cluster(folder, "--policy=" + policy, "--node-size=2", speed=20) as cluster:
        prompts = [prompt_of(length, seed) for seed, length in enumerate([9000, 12000, 5, 300, 8001, 4096, 7, 6345])]
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            for prompt, answer in zip(prompts, pool.map(lambda p: complete(cluster, p, 4), prompts)):
                assert answer == continuation(prompt, 4), len(prompt)
        assert cluster.metric(cluster.processes["orchestrator"], "skein_spanning_plans_total") > 0
        idle_and_whole(cluster)


def of_all_instances_at_once():
    several_writers("fixed4")


def of_random_plans():
    several_writers("random")


def a_writer_that_dies_frees_its_buffer():
    """It is killed while writers hold and wait for buffers: its plans are replaced, and the others' answers are correct."""
    with tempfile.TemporaryDirectory() as folder, sp_cluster(folder, "--policy=greedy", speed=4) as cluster:
        prompts = [prompt_of(6000 + 1000 * i, i) for i in range(6)]
        decode = [p for n, p in cluster.processes.items() if n.startswith("decode")]

        def held():
            return sum(cluster.metric(p, "skein_handoff_backends", 'state="held"') for p in decode)
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            answers = [pool.submit(complete, cluster, p, 4) for p in prompts]
            cluster.until(lambda: held() > 0, "a buffer is held")
            cluster.kill("prefill-3")
            for prompt, answer in zip(prompts, answers):
                try:
                    assert answer.result() == continuation(prompt, 4), len(prompt)
                except HttpFailure as failure:  # a plan is replaced a bounded number of times
                    assert failure.code == 503, failure
        assert sum(a.exception() is None for a in answers) > 0
        prompt = prompt_of(5000, 99)
        assert complete(cluster, prompt, 4) == continuation(prompt, 4)
        idle_and_whole(cluster)


def wrong_flags_are_named():
    decode = binaries_from_argv()["decode_worker"]
    emulated = ["--device=emulated", "--served-name=m", "--emulated-vocab-size=10", "--kv-gib=0.001"]
    for flags, words in ((["--handoff=twosided"], "error: --handoff: 'twosided'"),
                         (["--handoff=staging", "--handoff-staging-bytes=1"], "error: --handoff-staging-bytes: 1 is less"),
                         (["--handoff-staging-buffers=0"], "error: --handoff-staging-buffers: '0'")):
        done = subprocess.run([decode, *emulated, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, timeout=120, check=False)
        assert done.returncode == 2 and words in done.stdout, (flags, done)


if __name__ == "__main__":
    run_tests(golden_ids_through_two_buffers, of_all_instances_at_once, of_random_plans,
              a_writer_that_dies_frees_its_buffer, wrong_flags_are_named)
