#!/usr/bin/env python3
"""The orchestrator plans live requests: prompts computed by several emulated instances give correct answers, also when one of
them dies, and skeinctl explain shows the plan.
"""
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, Process, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model, fast_profile  # noqa: E402

TOKENIZER = "deploy/models/fledgling"
WORKERS = ["--device=emulated", "--kv-gib=0.01", "--max-batch-tokens=262144"]
PROFILE = "--profile=llama3-8b-a100"


def live(folder, *orchestrator_flags):
    return Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=4, decode=2, worker_flags=WORKERS,
                   prefill_flags=[PROFILE, "--max-slice-tokens=262144"], orchestrator_flags=[PROFILE, *orchestrator_flags])


def prompt_of(length, seed=1):
    draw = random.Random(seed)
    return [draw.randrange(VOCAB) for _ in range(length)]


def sp_plans(cluster):
    return cluster.metric(cluster.processes["orchestrator"], "skein_spanning_plans_total")


def explain(cluster, request, *flags):
    return subprocess.run([cluster.binaries["skeinctl"], "explain", request, "--orchestrator", cluster.orchestrator, *flags],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)


def answers(cluster, lengths):
    prompts = [prompt_of(length, seed) for seed, length in enumerate(lengths)]
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        for prompt, answer in zip(prompts, pool.map(lambda p: complete(cluster, p, 4), prompts)):
            assert answer == continuation(prompt, 4), (len(prompt), answer)
    cluster.assert_idle_and_whole()


def many_instances_answer_as_one(policy):
    with tempfile.TemporaryDirectory() as folder, \
            live(folder, "--policy=" + policy, "--improvement-rate=0" if policy == "tetris" else "--node-size=2") as cluster:
        answers(cluster, [9000, 20000, 5, 300, 16001, 4096, 7, 12345])
        assert sp_plans(cluster) > 0


def with_tetris():
    many_instances_answer_as_one("tetris")


def with_rolling():
    many_instances_answer_as_one("rolling")


def neighbours_share_the_dense_part():
    with tempfile.TemporaryDirectory() as folder, \
            live(folder, "--policy=greedy", "--node-size=4", "--prefill-tp=2") as cluster:
        answers(cluster, [9000, 20000, 5, 300, 16001, 4096, 7, 12345])
        steps = [cluster.metric(p, "skein_engine_steps_total", 'mode="ring_tp"') for p in cluster.workers()
                 if p.name.startswith("prefill")]
        assert min(steps) > 0, steps


def a_plan_is_explained():
    with tempfile.TemporaryDirectory() as folder, live(folder, "--policy=greedy") as cluster:
        body = json.dumps({"model": cluster.name, "prompt": prompt_of(20000), "max_tokens": 2, "ignore_eos": True}).encode()
        request = urllib.request.Request(cluster.url + "/v1/completions", body,
                                         {"Content-Type": "application/json", "X-Request-Id": "mine-1"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            identity = json.loads(answer.read())["id"]

        def prefilled():  # instances may report after the answer
            (shown,) = json.loads(explain(cluster, identity, "--format=json").stdout)["requests"]
            return shown["prefilled_s"] is not None
        cluster.until(prefilled, "the explanation says that all KV was taken")
        for name in ("mine-1", identity):
            done = explain(cluster, name, "--format=json")
            assert done.returncode == 0, done
            (shown,) = json.loads(done.stdout)["requests"]
            assert shown["policy"] == "greedy" and shown["prompt_tokens"] == 20000, shown
            (plan,) = shown["plans"]
            assert len(plan["chunks"]) == 1 and len(plan["chunks"][0]["instances"]) == 4, plan
            assert plan["chunks"][0]["end_s"] >= plan["chunks"][0]["start_s"], plan
            assert [a["sp"] for a in plan["alternatives"]] == [1, 2, 4], plan
            assert shown["ended_s"] >= shown["prefilled_s"] >= shown["placed_s"], shown
        text = explain(cluster, identity)
        assert text.returncode == 0 and "single-chunk alternatives:" in text.stdout, text
        unknown = explain(cluster, "cmpl-nobody")
        assert unknown.returncode == 5 and "cmpl-nobody" in unknown.stderr, unknown


def a_dead_member_is_a_later_first_token():
    with tempfile.TemporaryDirectory() as folder, live(folder, "--policy=greedy") as cluster:
        prompt = prompt_of(100000)  # on four instances for some seconds
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(complete, cluster, prompt, 4, name="mine")

            def begun():
                shown = explain(cluster, "mine", "--format=json")
                if shown.returncode != 0:
                    return False  # not submitted yet
                ((plan,),) = [one["plans"] for one in json.loads(shown.stdout)["requests"]]
                (chunk,) = plan["chunks"]
                return len(chunk["instances"]) == 4 and chunk["start_s"] is not None
            cluster.until(begun, "all members are in the prompt's chunk")
            cluster.kill("prefill-3")
            assert answer.result() == continuation(prompt, 4)
        replans = cluster.metric(cluster.processes["orchestrator"], "skein_replans_total")
        assert replans > 0, replans
        answers(cluster, [9000, 20000, 5])


def sighup_reads_the_tables_anew():
    with tempfile.TemporaryDirectory() as folder:
        path = fast_profile(folder, 20)
        with open(path, encoding="utf-8") as f:
            sizes = json.load(f)["sp"]
        orchestrator = Process("orchestrator", [binaries_from_argv()["orchestrator"], "--port=0", "--profile=" + path,
                                                "--policy=rolling", "--admin-port=0",
                                                "--admin-port-file=" + os.path.join(folder, "orch")], folder)

        def reload(tables, *words):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(dict(tables, sp=sizes), f)
            before = len(orchestrator.text())
            orchestrator.popen.send_signal(signal.SIGHUP)
            await_(lambda: all(word in orchestrator.text()[before:] for word in words), words)

        def await_(condition, what):
            end = time.monotonic() + 60
            while not condition():
                assert orchestrator.popen.poll() is None and time.monotonic() < end, (what, orchestrator.tail())
                time.sleep(0.02)

        try:
            await_(lambda: "listening" in orchestrator.text(), "it listens")
            row = {"requests_per_s": 1, "price": 0.3, "slack": 2, "stretch": 1, "waiting_weight": 1, "calm_s": 0}
            reload({"rolling": [row, dict(row, requests_per_s=2)]}, "planning tables reloaded", '"rolling_rows":2')
            reload({"rolling": [dict(row, price=3)]}, "planning tables not reloaded", path, "rolling")
            reload({"improvement_rates": [{"requests_per_s": 1}]}, "planning tables not reloaded", path, "improvement_rates[0]")
        finally:
            orchestrator.popen.kill()
            orchestrator.popen.wait()


def wrong_flags_are_named():
    orchestrator = binaries_from_argv()["orchestrator"]
    for flags, words in ((["--policy=fastest"], "--policy"), (["--profile=nowhere"], "--profile"),
                         ([PROFILE, "--policy=fixed3"], "--policy"), ([PROFILE, "--node-size=0"], "node-size")):
        done = subprocess.run([orchestrator, "--port=0", *flags], stderr=subprocess.PIPE, universal_newlines=True, timeout=120,
                              check=False)
        assert done.returncode == 2 and words in done.stderr, (flags, done)


if __name__ == "__main__":
    run_tests(with_tetris, with_rolling, neighbours_share_the_dense_part, a_plan_is_explained,
              a_dead_member_is_a_later_first_token, sighup_reads_the_tables_anew, wrong_flags_are_named)
