#!/usr/bin/env python3
"""The shipped model through the whole cluster over REST: held-out questions are answered correctly, however prompts are cut."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"


def ask_the_sample(cluster):
    command = ["bench/model/eval", "--url", cluster.url, "--sample", MODEL + "/eval_sample.json", "--timeout-s", "120"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout, end="")
    cluster.assert_idle_and_whole()


def answers_are_right():
    with Cluster(binaries_from_argv(), MODEL) as cluster:
        ask_the_sample(cluster)


def answers_are_right_in_chunks():
    with Cluster(binaries_from_argv(), MODEL, prefill_flags=["--max-slice-tokens=100"]) as cluster:
        ask_the_sample(cluster)


if __name__ == "__main__":
    run_tests(answers_are_right, answers_are_right_in_chunks)
