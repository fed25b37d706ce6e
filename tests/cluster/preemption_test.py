#!/usr/bin/env python3
"""Decode instances with little KV memory: blocks are taken as tokens come, requests are preempted and recomputed, and each answer is
that of its request alone."""
import concurrent.futures
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model  # noqa: E402

FLEDGLING = "deploy/models/fledgling"
LAYERS = 8
BLOCK_BYTES = LAYERS * 256  # of an emulated worker: a layer of its default shape has 256
BLOCK_TOKENS = 16
EMULATED = ["--device=emulated", "--emulated-layers=%d" % LAYERS]


def kv(blocks):
    return "--kv-gib=%.12f" % ((blocks + 1.5) * BLOCK_BYTES / 2**30)  # one is for probes; rounded down


def preemptions(cluster):
    return sum(cluster.metric(process, "vllm:num_preemptions_total")
               for name, process in cluster.processes.items() if name.startswith("decode"))


def answers_that_outgrow_the_cache_are_those_of_each_alone():
    draw = random.Random(3)
    asked = [([draw.randrange(VOCAB) for _ in range(draw.randint(1, 100))], draw.randint(200, 400)) for _ in range(24)]
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, FLEDGLING), worker_flags=EMULATED,
                    decode_flags=[kv(64), "--emulated-decode-step-us=1000"]) as cluster:
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda one: complete(cluster, *one), asked))
        for (prompt, count), answer in zip(asked, answers):
            assert answer == continuation(prompt, count, layers=LAYERS), (len(prompt), count)
        assert preemptions(cluster) > 0
        orchestrator = cluster.processes["orchestrator"]
        assert cluster.metric(orchestrator, "skein_degraded_total", 'reason="preempted"') > 0
        cluster.assert_idle_and_whole()


def what_can_never_fit_is_refused_at_once_with_both_numbers():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, FLEDGLING), prefill=1, decode=1,
                    worker_flags=EMULATED, decode_flags=[kv(64)]) as cluster:
        tokens = 64 * BLOCK_TOKENS
        prompt = list(range(100))
        assert complete(cluster, prompt, tokens - 100) == continuation(prompt, tokens - 100, layers=LAYERS)
        try:
            complete(cluster, prompt, tokens - 99)
        except HttpFailure as failure:
            assert failure.code == 400, failure
            assert str(tokens) in failure.body and str(tokens + 1) in failure.body, failure.body
        else:
            raise AssertionError("it was taken")
        cluster.assert_idle_and_whole()


def the_choices_of_an_answer_share_their_prompt():
    """One prefill for all of them, and each greedy choice is the answer of a request alone. Two prompts, four choices each."""
    prompts = ["Once upon a time there was a small bird that lived in a tall tree. " * 4, "Tom and Mia went to the park to fly a red kite. " * 4]
    with Cluster(binaries_from_argv(), FLEDGLING, prefill=1, decode=1) as cluster:
        body = {"model": cluster.name, "max_tokens": 24, "temperature": 0}
        alone = [cluster.post("/v1/completions", {**body, "prompt": prompt})["choices"][0]["text"] for prompt in prompts]
        orchestrator = cluster.processes["orchestrator"]
        assert cluster.metric(orchestrator, "skein_shared_prompts_total") == 0
        answer = cluster.post("/v1/completions", {**body, "prompt": prompts, "n": 4})
        assert [choice["text"] for choice in answer["choices"]] == [text for text in alone for _ in range(4)], answer
        cluster.until(lambda: cluster.metric(orchestrator, "skein_shared_prompts_total") == 6, "six choices shared a prompt")
        sampled = cluster.post("/v1/completions", {**body, "prompt": prompts[0], "n": 4, "temperature": 1, "seed": 7})
        assert len({choice["text"] for choice in sampled["choices"]}) > 1, sampled
        decode = next(p for p in cluster.workers() if p.name.startswith("decode"))

        def shared():
            return cluster.metric(decode, "skein_kv_blocks", 'state="shared"')
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(cluster.post, "/v1/completions",
                                 {**body, "prompt": prompts[0], "n": 2, "max_tokens": 600, "ignore_eos": True}, timeout=120)
            cluster.until(lambda: shared() > 0, "choices share blocks")
            answer.result()
        cluster.assert_idle_and_whole()
        assert shared() == 0


def chats_without_max_tokens_share_the_cache():
    """Each may fill the rest of the context, 4,096 tokens; the cache of 20 MiB has 8,192."""
    questions = ["What is the capital of %s?" % place for place in
                 ("France", "Italy", "Spain", "Peru", "Japan", "Kenya", "Norway", "Egypt", "Chile", "Cuba", "Greece", "Turkey")]
    with Cluster(binaries_from_argv(), FLEDGLING, prefill=1, decode=1, decode_flags=["--kv-gib=0.01953125"]) as cluster:
        def ask(question):
            answer = cluster.post("/v1/chat/completions", {
                "model": cluster.name, "temperature": 0, "messages": [{"role": "user", "content": question}]})
            choice = answer["choices"][0]
            assert choice["finish_reason"] in ("stop", "length"), choice
            return choice["message"]["content"]
        alone = [ask(question) for question in questions]
        with concurrent.futures.ThreadPoolExecutor(2 * len(questions)) as pool:
            assert list(pool.map(ask, 2 * questions)) == 2 * alone
        assert preemptions(cluster) == 0, "there is room for all of them"
        cluster.assert_idle_and_whole()


if __name__ == "__main__":
    run_tests(answers_that_outgrow_the_cache_are_those_of_each_alone, what_can_never_fit_is_refused_at_once_with_both_numbers,
              the_choices_of_an_answer_share_their_prompt, chats_without_max_tokens_share_the_cache)
