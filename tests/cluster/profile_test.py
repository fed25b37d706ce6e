#!/usr/bin/env python3
"""skeinctl profile on a real cluster: every chunk of its prompts is measured, and no state remains.

Whether the times fit equation 1 is the machine's affair; the samples are written before they are fitted.
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402

CHUNK = 64
# The profile makes two instances faster, so that a policy would use them.
TWO_SIZES = {"model": "fledgling", "device": "cpu", "date": "2026-01-01", "sp": {
    str(sp): {"a_s": 1e-3, "b_s_per_token": 4e-5 / sp, "c_s_per_token2": 0, "d_s_per_token2": 0} for sp in (1, 2)}}


def profile(cluster, folder, *flags):
    return subprocess.run([cluster.binaries["skeinctl"], "profile", "--orchestrator", cluster.orchestrator,
                           "--samples-out", os.path.join(folder, "samples.csv"), *flags],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)


def chunks_of(length):
    return {(at, min(CHUNK, length - at)) for at in range(0, length, CHUNK)}


def every_chunk_is_measured():
    with Cluster(binaries_from_argv(), "deploy/models/fledgling", decode=1,
                 prefill_flags=["--max-slice-tokens=%d" % CHUNK]) as cluster, tempfile.TemporaryDirectory() as folder:
        done = profile(cluster, folder, "--prompt-tokens-min=20", "--prompt-tokens-max=160", "--lengths=4", "--rounds=2")
        assert done.returncode == 0 or b"sp 1:" in done.stderr, done.stderr
        with open(os.path.join(folder, "samples.csv"), encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        measured = {(int(r["history_tokens"]), int(r["chunk_tokens"])) for r in rows}
        assert measured == set().union(*(chunks_of(n) for n in (20, 40, 80, 160))), measured
        assert all(r["sp"] == "1" and float(r["seconds"]) > 0 for r in rows), rows
        cluster.assert_idle_and_whole()


def a_planning_cluster_is_measured_on_one_instance():
    """Its policy would share the longer prompts; they are planned alone, and every missing length is reported."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(TWO_SIZES, f)
        with Cluster(binaries_from_argv(), "deploy/models/fledgling", prefill=2, decode=1,
                     orchestrator_flags=["--profile", path, "--policy", "fixed2"]) as cluster:
            measure_alone(cluster, folder)


def measure_alone(cluster, folder):
    done = profile(cluster, folder, "--prompt-tokens-min=20", "--prompt-tokens-max=900", "--lengths=4", "--rounds=2")
    assert done.returncode == 0 or b"sp 1:" in done.stderr, done.stderr
    assert b"not measured" not in done.stderr, done.stderr
    assert b"\r" not in done.stderr and b"profile: 12 of 12: round 2 of 2, a prompt of " in done.stderr, done.stderr
    with open(os.path.join(folder, "samples.csv"), encoding="utf-8") as f:
        ends = {int(r["history_tokens"]) + int(r["chunk_tokens"]) for r in csv.DictReader(f)}
    assert {20, 71, 253, 900} <= ends, ends
    cluster.assert_idle_and_whole()


def wrong_flags_are_named():
    with Cluster(binaries_from_argv(), "deploy/models/fledgling", prefill=1, decode=1) as cluster, \
            tempfile.TemporaryDirectory() as folder:
        for flags, code, words in ((["--rounds=0"], 2, b"rounds"), (["--model=nobody"], 2, b"nobody"),
                                   (["--prompt-tokens-min=999999"], 2, b"--prompt-tokens-min"),
                                   (["--prompt-tokens-max=999999"], 2, b"--prompt-tokens-max")):
            done = profile(cluster, folder, *flags)
            assert done.returncode == code and words in done.stderr, (flags, done)


if __name__ == "__main__":
    run_tests(every_chunk_is_measured, a_planning_cluster_is_measured_on_one_instance, wrong_flags_are_named)
