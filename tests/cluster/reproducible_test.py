#!/usr/bin/env python3
"""With --reproducible an answer is that of its request alone: beside any others, under any plan, and after a preemption. Its
choices agree with each other, scores do not depend on what follows them, and plans and steps are those of a cluster without it.
"""
import concurrent.futures
import json
import os
import random
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"
PLANS = ["--profile=llama3-8b-a100", "--node-size=2", "--policy=random"]  # chunks on 1 to 4 instances, whatever they cost
# Seconds by SP size, fixed and a token: 2 instances are faster from 100 tokens on, 4 from 300.
TIMES = {1: (0.001, 1e-4), 2: (0.006, 5e-5), 4: (0.0135, 2.5e-5)}
TOKEN_BYTES = 2 * 5 * 4 * 32 * 2  # of keys and values in fledgling's layers
LITTLE = 1024  # tokens of KV: enough for the longest request
WORDS = "once upon a time there was little bird that lived in the tall tree and sang every day to its friend fox by river".split()


def live(*flags, kv_tokens=8192, plans=PLANS, **more):
    return Cluster(binaries_from_argv(), MODEL, prefill=4, decode=2, worker_flags=flags, orchestrator_flags=plans,
                   decode_flags=["--kv-gib=%.9f" % (kv_tokens * TOKEN_BYTES / 2**30)], **more)


def text_of(draw, words):
    return " ".join(draw.choice(WORDS) for _ in range(words))


def requests(count):
    """Greedy and sampled ones, of 10 to 400 words, with logprobs."""
    draw = random.Random(count)
    asked = []
    for number in range(count):
        asked.append({"prompt": text_of(draw, draw.choice([10, 50, 150, 400])), "max_tokens": draw.randint(20, 120),
                      "ignore_eos": True, "logprobs": 3, "return_token_ids": True, "seed": number,
                      "temperature": 0 if number % 2 == 0 else 1, "top_p": 1 if number % 3 else 0.9})
    return asked


def choices_of(cluster, body):
    choices = cluster.post("/v1/completions", {"model": cluster.name, **body}, timeout=120)["choices"]
    return [(choice["text"], choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"])
            for choice in choices]


def preemptions(cluster):
    return sum(cluster.metric(p, "vllm:num_preemptions_total") for p in cluster.workers() if p.name.startswith("decode"))


def crowd_and_its_choices(cluster):
    """A request whose choices enter one cache together, as their prompt has come, and outgrow it: some are preempted, however fast
    the machine is."""
    body = {"prompt": "once upon a time", "max_tokens": LITTLE // 5, "ignore_eos": True, "logprobs": 3, "return_token_ids": True,
            "temperature": 0}
    return {**body, "n": 8}, 8 * choices_of(cluster, body)


def answers_under_load_are_those_of_each_alone():
    asked = requests(24)
    with live("--reproducible=on", kv_tokens=LITTLE) as cluster:
        alone = [choices_of(cluster, body) for body in asked]
        assert preemptions(cluster) == 0
        draw = random.Random(5)
        twice = 2 * list(zip(asked, alone)) + [crowd_and_its_choices(cluster)]
        draw.shuffle(twice)
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda one: choices_of(cluster, one[0]), twice))
        for (body, expected), answer in zip(twice, answers):
            assert answer == expected, (body, expected, answer)
        print(f"preemptions under load: {preemptions(cluster)}")
        assert preemptions(cluster) > 0
        spanning = cluster.metric(cluster.processes["orchestrator"], "skein_spanning_plans_total")
        assert spanning > len(asked), spanning
        cluster.assert_idle_and_whole()


def the_choices_of_an_answer_agree():
    """Of greedy choices all are the same; of sampled ones the first is that of a request for one. The prompt is computed once."""
    draw = random.Random(7)
    with live("--reproducible=on") as cluster:
        asked = [{"prompt": text_of(draw, words), "max_tokens": 40, "ignore_eos": True, "logprobs": 0, "return_token_ids": True,
                  "temperature": temperature, "seed": words} for words in (20, 100, 300, 500) for temperature in (0, 1)]
        alone = [choices_of(cluster, body)[0] for body in asked]
        orchestrator = cluster.processes["orchestrator"]
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda body: choices_of(cluster, {**body, "n": 4}), asked))
        for body, expected, choices in zip(asked, alone, answers):
            assert choices[0] == expected, (body, expected, choices)
            if body["temperature"] == 0:
                assert choices == 4 * [expected], (body, expected, choices)
        cluster.until(lambda: cluster.metric(orchestrator, "skein_shared_prompts_total") == 3 * len(asked), "they shared prompts")
        cluster.assert_idle_and_whole()


def scores_do_not_depend_on_what_follows():
    draw = random.Random(11)
    prompts = ["Once upon a", text_of(draw, 60), text_of(draw, 400)]
    with live("--reproducible=on", prefill_flags=["--max-slice-tokens=48"]) as cluster:
        for prompt in prompts:
            def scores(max_tokens, prompt=prompt):
                answer = cluster.post("/v1/completions", {"model": cluster.name, "prompt": prompt, "echo": True, "logprobs": 2,
                                                          "temperature": 0, "ignore_eos": True, "max_tokens": max_tokens})
                return answer["choices"][0]["logprobs"]["token_logprobs"]
            alone = scores(0)
            assert len(alone) > 2 and alone[0] is None and all(score < 0 for score in alone[1:]), alone
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                for count, answer in zip((0, 1, 2, 30, 5, 0), pool.map(scores, (0, 1, 2, 30, 5, 0))):
                    assert answer[:len(alone)] == alone and len(answer) == len(alone) + count, (count, alone, answer)
        cluster.assert_idle_and_whole()


def write_profile(folder):
    path = os.path.join(folder, "profile.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"sp": {str(size): {"a_s": fixed, "b_s_per_token": token, "c_s_per_token2": 0, "d_s_per_token2": 0}
                          for size, (fixed, token) in TIMES.items()}}, file)
    return path


def steps_of(cluster):
    """(steps, tokens) that the workers have completed, by role, mode and the number of instances that ran them together."""
    found = {}
    for process in cluster.workers():
        metrics = cluster.get("/metrics", raw=True, base=process.admin())
        for counted, labels, value in re.findall(r"^skein_engine_(step\w*)_total\{(.*)\} (\S+)$", metrics, re.M):
            if "mode=" not in labels:
                continue
            of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            both = found.setdefault((process.name.split("-")[0], of["mode"], int(of["ranks"])), {"steps": 0, "step_tokens": 0})
            both[counted] += int(float(value))
    return {key: (both["steps"], both["step_tokens"]) for key, both in found.items()}


def plans_and_steps_are_those_without_it():
    """Tetris's plans of an idle cluster, which follow from prompt and profile: each request waits until the one before is over.
    Its steps follow from its plan."""
    def sizes(*flags):
        draw = random.Random(13)
        with tempfile.TemporaryDirectory() as folder, \
                live(*flags, plans=["--profile=" + write_profile(folder), "--node-size=4", "--improvement-rate=0"]) as cluster:
            orchestrator, found = cluster.processes["orchestrator"], []

            def counts(name, label, values):
                return [cluster.metric(orchestrator, name, '%s="%d"' % (label, value)) for value in values]

            def live_requests():  # that the orchestrator knows: it has heard that all of their chunks have ended
                metrics = cluster.get("/metrics", raw=True, base=orchestrator.admin())
                return sum(float(line.split()[-1]) for line in metrics.splitlines()
                           if line.startswith("skein_orchestrator_requests{"))
            for number in range(16):
                prompt = text_of(draw, 5 + 33 * number)
                cluster.post("/v1/completions", {"model": cluster.name, "prompt": prompt, "max_tokens": 5, "temperature": 0,
                                                 "ignore_eos": True})
                cluster.until(lambda number=number: sum(counts("skein_plans_total", "chunks", range(1, 5))) > number
                              and cluster.held_blocks() == 0 and live_requests() == 0, "the request is over")
                found.append((counts("skein_plan_chunks_total", "sp", TIMES), steps_of(cluster)))
            return found
    with_it, without = sizes("--reproducible=on"), sizes("--reproducible=off")
    chunks, steps = with_it[-1]
    print("chunks by SP size:", chunks, "steps and tokens by role, mode and ranks:", steps)
    assert with_it == without and all(count > 0 for count in chunks), (with_it, without)
    for key in [("prefill", "own", 1), ("prefill", "ring", 2), ("prefill", "ring", 4), ("decode", "own", 1)]:
        assert steps[key][0] > 0, (key, steps)


if __name__ == "__main__":
    run_tests(answers_under_load_are_those_of_each_alone, the_choices_of_an_answer_agree, scores_do_not_depend_on_what_follows,
              plans_and_steps_are_those_without_it)
