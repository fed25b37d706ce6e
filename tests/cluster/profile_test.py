#!/usr/bin/env python3
"""skeinctl profile on a real cluster: every chunk of its prompts is measured, and each formation of its decode group, and no state
remains. An orchestrator takes the profile; with a gain in it, it binds and releases by load.

Whether the times fit equation 1, and what a formation gains, is the machine's affair: no measured time is asserted. The samples are
written before they are fitted.
"""
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import complete, emulated_model  # noqa: E402

CHUNK = 64
# The profile makes two instances faster, so that a policy would use them.
TWO_SIZES = {"model": "fledgling", "device": "cpu", "date": "2026-01-01", "sp": {
    str(sp): {"a_s": 1e-3, "b_s_per_token": 4e-5 / sp, "c_s_per_token2": 0, "d_s_per_token2": 0} for sp in (1, 2)}}


# Of emulated decode-workers: a step of n sequences takes 5 + n ms, in TP so many times less, in SP 5 + n / instances ms, and in SP s x TP t
# 5 + n / s ms, so many times less as t instances are faster.
GAINS = [{"instances": 2, "gain": 1.5}, {"instances": 4, "gain": 2}]
STEP_US, SEQUENCE_US = 5000, 1000
# Of emulated prefill-workers: each coefficient is most of the time of one of LENGTHS, and tens of ms, so that a busy machine's times fit.
TIMES = {"a_s": 2e-2, "b_s_per_token": 5e-5, "c_s_per_token2": 4e-8, "d_s_per_token2": 2e-8}
LENGTHS = ["--prompt-tokens-min=64", "--prompt-tokens-max=4096", "--lengths=4", "--rounds=1"]
# One that binds: what an emulated cluster is told to gain by.
BINDS = {"model": "emulated", "device": "emulated", "date": "2026-01-01", "sp": {"1": TIMES},
         "formations": [{"instances": 2, "gain": 1.6, "shift_tokens": 8}]}


def command(cluster, folder, *flags):
    return [cluster.binaries["skeinctl"], "profile", "--orchestrator", cluster.orchestrator,
            "--samples-out", os.path.join(folder, "samples.csv"), *flags]


def profile(cluster, folder, *flags):
    return subprocess.run(command(cluster, folder, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240, check=False)


def chunks_of(length):
    return {(at, min(CHUNK, length - at)) for at in range(0, length, CHUNK)}


def every_chunk_is_measured():
    with Cluster(binaries_from_argv(), "deploy/models/fledgling", decode=1,
                 prefill_flags=["--max-slice-tokens=%d" % CHUNK]) as cluster, tempfile.TemporaryDirectory() as folder:
        done = profile(cluster, folder, "--prompt-tokens-min=20", "--prompt-tokens-max=160", "--lengths=4", "--rounds=2",
                       "--prefill-shapes=off")
        assert done.returncode == 0 or b"sp 1:" in done.stderr, done.stderr
        with open(os.path.join(folder, "samples.csv"), encoding="utf-8") as f:
            rows = list(csv.DictReader(line for line in f if line[0] != "#"))
        measured = {(int(r["history_tokens"]), int(r["chunk_tokens"])) for r in rows}
        assert measured == set().union(*(chunks_of(n) for n in (20, 40, 80, 160))), measured
        assert all(r["sp"] == "1" and float(r["seconds"]) > 0 for r in rows), rows
        cluster.assert_idle_and_whole()


def a_planning_cluster_is_measured_in_each_shape():
    """Whatever its policy would choose, and every missing length is reported."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(TWO_SIZES, f)
        with Cluster(binaries_from_argv(), "deploy/models/fledgling", prefill=2, decode=1,
                     orchestrator_flags=["--profile", path, "--policy", "fixed2"]) as cluster:
            measure_each_shape(cluster, folder)
            measure_alone(cluster, folder)


def ends_of_prompts(folder, size):
    with open(os.path.join(folder, "samples.csv"), encoding="utf-8") as f:
        return {int(r["history_tokens"]) + int(r["chunk_tokens"]) for r in csv.DictReader(line for line in f if line[0] != "#")
                if r["sp"] == size}


def measure_each_shape(cluster, folder):
    done = profile(cluster, folder, "--prompt-tokens-min=20", "--prompt-tokens-max=900", "--lengths=4", "--rounds=2")
    assert done.returncode in (0, 1) and b"2 instances as SP 2 x TP 1: not" not in done.stderr, done.stderr
    assert b"profile: 36 of 36: round 2 of 2, a prompt of " in done.stderr, done.stderr
    for size in ("1", "2"):
        assert {20, 71, 253, 900} <= ends_of_prompts(folder, size), done.stderr
    with open(os.path.join(folder, "samples.csv"), encoding="utf-8") as f:
        assert any(line.startswith("# prefill,2,2,") for line in f), "2 instances in TP were not measured"
    cluster.assert_idle_and_whole()


def measure_alone(cluster, folder):
    done = profile(cluster, folder, "--prompt-tokens-min=20", "--prompt-tokens-max=900", "--lengths=4", "--rounds=2",
                   "--prefill-shapes=off")
    assert done.returncode == 0 or b"sp 1:" in done.stderr, done.stderr
    assert b"not measured" not in done.stderr, done.stderr
    assert b"\r" not in done.stderr and b"profile: 12 of 12: round 2 of 2, a prompt of " in done.stderr, done.stderr
    assert {20, 71, 253, 900} <= ends_of_prompts(folder, "1") and not ends_of_prompts(folder, "2"), done.stderr
    cluster.assert_idle_and_whole()


def wrong_flags_are_named():
    with Cluster(binaries_from_argv(), "deploy/models/fledgling", prefill=1, decode=1) as cluster, \
            tempfile.TemporaryDirectory() as folder:
        for flags, code, words in ((["--rounds=0"], 2, b"rounds"), (["--model=nobody"], 2, b"nobody"),
                                   (["--prompt-tokens-min=999999"], 2, b"--prompt-tokens-min"),
                                   (["--prompt-tokens-max=999999"], 2, b"--prompt-tokens-max")):
            done = profile(cluster, folder, *flags)
            assert done.returncode == code and words in done.stderr, (flags, done)


def grouped(folder, **more):
    """A cluster of one decode group of four emulated instances."""
    path = os.path.join(folder, "times.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"sp": {"1": TIMES}, "formations": GAINS}, f)
    return Cluster(binaries_from_argv(), emulated_model(folder, "deploy/models/fledgling"), prefill=1, decode=4,
                   worker_flags=["--device=emulated", "--kv-gib=0.01", "--emulated-kv-heads=4", "--node=a", "--profile=" + path],
                   prefill_flags=["--max-batch-tokens=4096"],
                   decode_flags=["--emulated-decode-step-us=%d" % STEP_US, "--emulated-decode-sequence-us=%d" % SEQUENCE_US], **more)


def group_of(cluster):
    done = cluster.try_skeinctl("formation", "--format=json")
    assert done.returncode == 0, done
    group, = [group for group in json.loads(done.stdout)["groups"] if group["role"] == "decode"]
    return group


def names(cluster):
    """Of the formations that stand, with whether an operator has pinned them."""
    return [(one["name"], one["pinned"]) for one in group_of(cluster)["formations"] if one["stage"] == "stands"]


UNTOUCHED = [("independent", False)]


def until(cluster, condition, what):
    """As cluster.until, for conditions that start a skeinctl: it leaves the processors to the cluster between two looks."""
    def look():
        if condition():
            return True
        time.sleep(0.2)
        return False
    cluster.until(look, what)


def await_group(cluster):
    until(cluster, lambda: group_of(cluster)["ready"] == 4, "the group has its communicators")


def formations_are_measured_and_left_as_they_were():
    """One cluster: measured, interrupted while it is, and with a pin."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as models:
        with grouped(models) as cluster:
            await_group(cluster)
            each_formation_is_measured(cluster, folder)
            for how in (signal.SIGINT, signal.SIGHUP):
                an_interrupt_leaves_the_group_as_it_was(cluster, folder, how)
            a_pinned_group_is_left_alone(cluster, folder)
        # An orchestrator that refuses a profile ends.
        with Cluster(binaries_from_argv(), os.path.join(models, "emulated"), prefill=0, decode=0, orchestrator_flags=[
                "--profile", os.path.join(folder, "profile.json")]) as cluster:
            assert cluster.status()["instances"] == []


def each_formation_is_measured(cluster, folder):
    done = profile(cluster, folder, *LENGTHS, "--formation-rounds=2", "--formation-steps=16", "--formation-streams=4")
    assert done.returncode == 0, done.stderr.decode()
    assert names(cluster) == UNTOUCHED, group_of(cluster)
    cluster.assert_idle_and_whole()
    check_profile(json.loads(done.stdout), done.stderr.decode(), os.path.join(folder, "samples.csv"))
    with open(os.path.join(folder, "profile.json"), "wb") as f:
        f.write(done.stdout)


def check_profile(found, errors, samples):
    assert set(found["sp"]) == {"1"}, found
    assert [one["instances"] for one in found["formations"]] == [2, 4], (found, errors)
    assert all(one["gain"] > 0 for one in found["formations"]), (found, errors)
    assert all(isinstance(one.get("shift_tokens", 0), int) for one in found["formations"]), (found, errors)
    assert all(one.get("shift_tp", 1) in range(1, one["instances"]) for one in found["formations"]), (found, errors)
    assert "bound(2): gain " in errors and "bound(4): gain " in errors, errors
    with open(samples, encoding="utf-8") as f:
        steps = [line[2:].strip().split(",") for line in f if line.startswith("# ")][1:]
    modes = {("1", "own", "1"), ("2", "tp", "2"), ("2", "sp", "1"), ("4", "tp", "4"), ("4", "sp", "1"), ("4", "sp_tp", "2")}
    assert {(size, mode, tp) for size, mode, tp, *_ in steps} == modes, steps
    # What a gain is of; notes name other numbers of streams that a busy machine did not measure.
    needed = {(size, mode, streams) for size, mode, _ in modes for streams in ("1", "4") if mode in ("own", "tp")}
    assert needed <= {(size, mode, streams) for size, mode, _, streams, *_ in steps}, steps
    assert all(float(seconds) > 0 for *_, seconds in steps), steps
    fitted = subprocess.run([binaries_from_argv()["skeinctl"], "fit", samples], stdout=subprocess.PIPE, timeout=60, check=True)
    assert json.loads(fitted.stdout)["sp"] == found["sp"], fitted


def an_interrupt_leaves_the_group_as_it_was(cluster, folder, how):
    errors = os.path.join(folder, "errors")
    with open(errors, "wb") as stderr, subprocess.Popen(
            command(cluster, folder, *LENGTHS, "--formation-rounds=1000", "--formation-steps=16", "--formation-streams=1"),
            stdout=subprocess.PIPE, stderr=stderr) as running:
        def is_measured():
            assert running.poll() is None, (running.returncode, text_of(errors))
            return any(name.startswith("bound") and pinned for name, pinned in names(cluster))
        try:
            until(cluster, is_measured, "a size is measured")
            running.send_signal(how)
            out, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130 and not out and "interrupted" in text_of(errors), (running.returncode, out, text_of(errors))
    assert names(cluster) == UNTOUCHED, group_of(cluster)
    cluster.assert_idle_and_whole()


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def a_pinned_group_is_left_alone(cluster, folder):
    bound = cluster.try_skeinctl("bind", "--group", group_of(cluster)["name"], "--size=2")
    assert bound.returncode == 0, bound
    done = profile(cluster, folder, *LENGTHS)
    assert done.returncode == 1 and b"is pinned by an operator" in done.stderr, done
    assert "formations" not in json.loads(done.stdout), done
    assert names(cluster) == [("bound(2)", True)] * 2, group_of(cluster)
    done = profile(cluster, folder, *LENGTHS, "--formations=off", "--format=text")
    assert done.returncode == 0 and b"sp" in done.stdout and b"{" not in done.stdout, done


def a_gain_makes_auto_bind_and_release():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(BINDS, f)
        with grouped(folder, orchestrator_flags=["--profile", path, "--formation-dwell-s=0.2", "--formation-bind-sequences=0.5",
                                                 "--formation-release-sequences=1"]) as cluster:
            binds_when_quiet_and_releases_when_busy(cluster)


def binds_when_quiet_and_releases_when_busy(cluster):
    def is_bound():
        return names(cluster) == [("bound(2)", False)] * 2

    await_group(cluster)
    until(cluster, is_bound, "the quiet group is bound")
    stopped = threading.Event()

    def answers(seed):
        while not stopped.is_set():
            complete(cluster, [seed, 1, 2], 40)
    clients = [threading.Thread(target=answers, args=(seed,)) for seed in range(12)]
    for client in clients:
        client.start()
    try:
        until(cluster, lambda: names(cluster) == UNTOUCHED, "the busy group is released")
    finally:
        stopped.set()
        for client in clients:
            client.join()
    until(cluster, is_bound, "the group that is quiet again is bound")
    cluster.assert_idle_and_whole()


if __name__ == "__main__":
    # Where it is ignored (nohup), skeinctl does not catch it.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    run_tests(every_chunk_is_measured, a_planning_cluster_is_measured_in_each_shape, wrong_flags_are_named,
              formations_are_measured_and_left_as_they_were, a_gain_makes_auto_bind_and_release)
