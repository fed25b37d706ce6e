#!/usr/bin/env python3
"""An engine that fails or hangs ends its process, which first reports it; a request that fails engines ends after two failures; one
whose logits are NaN ends alone; idle engines are probed. Real processes with emulated engines, which fail at a token of our choosing.
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model  # noqa: E402

TOKENIZER = "deploy/models/fledgling"
FLAGS = ["--device=emulated", "--kv-gib=0.01"]
BAD = 7  # the token
ENGINE_FAILED = 3  # exit code


def failing(folder, role, how, more=(), **counts):
    flags = {role + "_flags": ["--emulated-%s-token=%d" % (how, BAD), *more],
             "router_flags": ["--resume-wait-s=2"]}  # where no instance is left
    return Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), worker_flags=FLAGS, **flags, **counts)


def end_of(process, seconds=30):
    """Its exit code; None: it does not end in that time."""
    end = time.monotonic() + seconds
    while process.popen.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    return process.popen.returncode


def failure_of(cluster, prompt, count=4):
    try:
        complete(cluster, prompt, count)
    except HttpFailure as failure:
        return failure
    raise AssertionError("it was answered")


def a_failed_engine_ends_its_process():
    """The request is tried again, and ends with the second engine that it fails."""
    with tempfile.TemporaryDirectory() as folder, failing(folder, "decode", "fail", prefill=1, decode=3) as cluster:
        failure = failure_of(cluster, [1, 2, BAD])
        assert failure.code == 500 and "2 engines failed" in failure.body, failure
        workers = {name: cluster.processes.pop(name) for name in ("decode-0", "decode-1", "decode-2")}
        codes = {name: end_of(process, 5) for name, process in workers.items()}
        assert sorted(codes.values(), key=str) == [ENGINE_FAILED, ENGINE_FAILED, None], codes
        for name in (name for name, code in codes.items() if code is not None):
            said = json.loads(workers.pop(name).tail(1))
            assert said["msg"] == "the process ends: its engine failed" and said["exit_code"] == ENGINE_FAILED, said
            assert "token 7 fails" in said["reason"], said
        cluster.processes.update(workers)
        assert complete(cluster, [1, 2, 3], 4) == continuation([1, 2, 3], 4)
        lost = cluster.metric(cluster.processes["orchestrator"], "skein_instances_lost_total", 'role="decode"')
        assert lost == 0, "it has unregistered"
        cluster.assert_idle_and_whole()


def one_that_hangs_is_given_up_and_says_so_first():
    with tempfile.TemporaryDirectory() as folder, \
            failing(folder, "decode", "hang", ["--step-timeout-s=2"], prefill=1, decode=1) as cluster, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        decode, orchestrator = cluster.processes["decode-0"], cluster.processes["orchestrator"]
        admin = decode.admin()
        asked = pool.submit(failure_of, cluster, [1, BAD])
        cluster.until(lambda: cluster.metric(decode, "skein_engine_step_age_seconds") > 0.5, "the age of the step is told", 20)
        assert cluster.get("/livez", raw=True, base=admin) == "ok\n", "a long step is no failure yet"
        cluster.processes.pop("decode-0")
        orchestrator.popen.send_signal(signal.SIGSTOP)  # delays its final reports
        try:
            live = None
            while live is None and decode.popen.poll() is None:
                try:
                    cluster.get("/livez", raw=True, base=admin)
                except HttpFailure as failure:
                    live = failure
                except OSError:
                    break  # it has ended
                time.sleep(0.02)
            assert live is not None and live.code == 503, decode.tail()
            assert "the engine failed: a step (1 token) did not end within 2 s" in live.body, live
            status = json.loads(cluster.request("GET", "/status", base=admin))
            assert status["state"] == "failed" and "did not end within 2 s" in status["reason"], status
            decode.popen.send_signal(signal.SIGTERM)  # changes nothing
            assert end_of(decode) == ENGINE_FAILED, decode.tail()
        finally:
            orchestrator.popen.send_signal(signal.SIGCONT)
        assert asked.result(60).code == 503


def one_that_hangs_among_several_is_given_up():
    """Of two instances that compute a prompt together, one hangs. The other one is free again long before any step timeout: the
    prompt is computed by others. The one that hangs gets nothing new, and ends."""
    profile = "--profile=llama3-8b-a100"
    with tempfile.TemporaryDirectory() as folder, \
            failing(folder, "prefill", "hang", [profile, "--step-timeout-s=20"], prefill=1, decode=1,
                    orchestrator_flags=[profile, "--policy=fixed2", "--node-size=2"]) as cluster, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        cluster.flags["prefill"] = FLAGS + [profile]  # with the default timeout, 600 s
        for i in range(1, 4):
            cluster.start_worker("prefill", i)
        cluster.until(lambda: cluster.serving() == 5, "each worker serves")
        hung = cluster.processes.pop("prefill-0")
        (hangs,) = [one["instance"] for one in cluster.status()["instances"] if one["pid"] == hung.popen.pid]
        prompt = [random.Random(9).randrange(BAD + 1, VOCAB) for _ in range(400)] + [BAD]
        asked = pool.submit(complete, cluster, prompt, 4, 100, "joint")
        assert asked.result() == continuation(prompt, 4)
        plans = plans_of(cluster, "joint")
        assert hangs in members_of(plans[0]) and hangs not in members_of(plans[-1]), (hangs, plans)
        assert "a ring step failed" in plans[0]["lost"], "the other one gave it up: %s" % plans
        cluster.until(lambda: hung.popen.poll() is not None or age_of(cluster, hangs) > 2, "its step's age is told", 30)
        for i in range(4):
            assert complete(cluster, [1, 2, i + 20], 4, name="after-%d" % i) == continuation([1, 2, i + 20], 4)
            assert all(hangs not in members_of(plan) for plan in plans_of(cluster, "after-%d" % i))
        assert end_of(hung, 60) == ENGINE_FAILED, hung.tail()
        assert "did not end within 20 s" in hung.text(), hung.tail()
        cluster.assert_idle_and_whole()  # all others are there


def serves(cluster, process):
    return any(one["pid"] == process.popen.pid and one["state"] == "serving" for one in cluster.status()["instances"])


def age_of(cluster, instance):
    return max([one["step_age_s"] for one in cluster.status()["instances"] if one["instance"] == instance] or [0])


def members_of(plan):
    return {instance for chunk in plan["chunks"] for instance in chunk["instances"]}


def plans_of(cluster, name):
    done = subprocess.run([cluster.binaries["skeinctl"], "explain", name, "--orchestrator", cluster.orchestrator, "--format=json"],
                          stdout=subprocess.PIPE, timeout=60, check=True)
    (shown,) = json.loads(done.stdout)["requests"]
    return shown["plans"]


def a_request_that_fails_engines_ends_after_two():
    ends_after_two(["--profile=llama3-8b-a100"], ["--profile=llama3-8b-a100", "--policy=single"])


def without_a_profile_too():
    ends_after_two([], [])


def ends_after_two(prefill, orchestrator):
    with tempfile.TemporaryDirectory() as folder, \
            failing(folder, "prefill", "fail", prefill, prefill=3, decode=1, orchestrator_flags=orchestrator) as cluster:
        workers = {name: cluster.processes.pop(name) for name in ("prefill-0", "prefill-1", "prefill-2")}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            others = [pool.submit(complete, cluster, [1, i + 10], 4) for i in range(8)]
            failure = failure_of(cluster, [1, 2, BAD])
            for i, other in enumerate(others):
                assert other.result(60) == continuation([1, i + 10], 4)
        assert failure.code == 500 and "2 engines failed" in failure.body, failure
        codes = {name: end_of(process, 5) for name, process in workers.items()}
        assert sorted(codes.values(), key=str) == [ENGINE_FAILED, ENGINE_FAILED, None], codes
        cluster.processes.update({name: workers[name] for name, code in codes.items() if code is None})
        assert complete(cluster, [1, 2, 3], 4) == continuation([1, 2, 3], 4)
        cluster.assert_idle_and_whole()


def a_request_outlives_two_hosts_that_are_killed_under_it():
    """Processes that end without a word may have been killed for reasons of their own; after the third the request is given up."""
    for killed in (2, 3):
        with tempfile.TemporaryDirectory() as folder, \
                failing(folder, "prefill", "hang", prefill=1, decode=1) as cluster, \
                concurrent.futures.ThreadPoolExecutor() as pool:
            prompt = [1, 2, BAD]
            asked = pool.submit(complete if killed == 2 else failure_of, cluster, prompt, 4)
            for i in range(killed):
                runs = cluster.processes["prefill-%d" % i]
                cluster.until(lambda runs=runs: cluster.metric(runs, "skein_engine_step_age_seconds") > 0.3, "its step runs", 30)
                if i + 1 == 2 and killed == 2:
                    cluster.flags["prefill"] = FLAGS  # this one does not hang
                cluster.start_worker("prefill", i + 1)
                following = cluster.processes["prefill-%d" % (i + 1)]
                cluster.until(lambda following=following: serves(cluster, following), "the next one serves", 30)
                cluster.processes.pop("prefill-%d" % i).popen.kill()
            end = asked.result(60)
            if killed == 2:
                assert end == continuation(prompt, 4), end
            else:
                assert end.code == 503 and "3 engines failed or were lost" in end.body, end
                fourth = cluster.processes["prefill-%d" % killed]
                assert cluster.metric(fourth, "vllm:iteration_tokens_total_count") == 0, "it got the request"  # no step began
                assert complete(cluster, [1, 2, 3], 4) == continuation([1, 2, 3], 4), "it serves"
                cluster.assert_idle_and_whole()


def a_failure_that_no_orchestrator_heard_for_long_counts():
    """The engine fails while the orchestrator is away. The worker waits for it, and tells it of the request."""
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as folder, \
            failing(folder, "prefill", "hang", ["--step-timeout-s=6"], prefill=3, decode=1,
                    orchestrator_flags=["--state-dir=" + state]) as cluster, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(failure_of, cluster, [1, 2, BAD], 4)
        workers = {name: cluster.processes.pop(name) for name in ("prefill-0", "prefill-1", "prefill-2")}

        def running():
            return [name for name in workers if cluster.metric(workers[name], "skein_engine_step_age_seconds") > 0.3]
        cluster.until(running, "its step runs", 30)
        first = workers.pop(running()[0])
        cluster.kill("orchestrator")
        admin = first.admin()
        cluster.until(lambda: json.loads(cluster.request("GET", "/status", base=admin))["state"] == "failed", "it failed", 30)
        time.sleep(7)  # longer than a worker waits that has nothing to tell
        assert first.popen.poll() is None, first.tail()
        cluster.run("orchestrator", "orchestrator", ["--port=" + cluster.orchestrator.split(":")[1]])
        failure = asked.result(60)
        assert failure.code == 500 and "2 engines failed" in failure.body, failure
        assert end_of(first) == ENGINE_FAILED
        codes = {name: end_of(process, 5) for name, process in workers.items()}
        assert sorted(codes.values(), key=str) == [ENGINE_FAILED, None], codes
        cluster.processes.update({name: workers[name] for name, code in codes.items() if code is None})
        assert complete(cluster, [1, 2, 3], 4) == continuation([1, 2, 3], 4)
        cluster.assert_idle_and_whole()


def a_request_of_nan_ends_alone():
    for role in ("prefill", "decode"):
        with tempfile.TemporaryDirectory() as folder, failing(folder, role, "nan", prefill=2, decode=2) as cluster:
            draw = random.Random(5)
            asked = [[draw.randrange(BAD + 1, VOCAB) for _ in range(draw.randint(1, 300))] for _ in range(40)]
            with concurrent.futures.ThreadPoolExecutor(50) as pool:
                bad = [pool.submit(failure_of, cluster, [1, i + 10, BAD], 8) for i in range(10)]
                good = [pool.submit(complete, cluster, prompt, 8) for prompt in asked]
                for prompt, answer in zip(asked, good):
                    assert answer.result(60) == continuation(prompt, 8), (role, len(prompt))
                for request in bad:
                    failure = request.result(60)
                    assert failure.code == 500 and "logits hold NaN or infinity" in failure.body, (role, failure)
            cluster.assert_idle_and_whole()  # all workers are there


def idle_engines_are_probed():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=1, decode=1,
                    worker_flags=FLAGS + ["--probe-interval-s=0.1"]) as cluster:
        for process in cluster.workers():
            cluster.until(lambda process=process: cluster.metric(process, "skein_engine_probes_total") > 3, "probes run", 20)
            assert cluster.metric(process, "skein_engine_steps_total") == 0
            assert cluster.metric(process, "vllm:iteration_tokens_total_count") == 0
        assert complete(cluster, [1, 2, 3], 4) == continuation([1, 2, 3], 4)
        cluster.assert_idle_and_whole()


def a_dead_engine_is_never_ready():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=0, decode=0,
                    decode_flags=FLAGS + ["--emulated-fail-token=0"]) as cluster:  # probes use this token
        cluster.start_worker("decode", 0)
        assert end_of(cluster.processes.pop("decode-0")) == ENGINE_FAILED


def one_that_hangs_from_its_start_is_never_ready():
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=0, decode=0,
                    decode_flags=FLAGS + ["--emulated-hang-token=0", "--step-timeout-s=3"]) as cluster:  # probes use this token
        cluster.start_worker("decode", 0)
        hung = cluster.processes.pop("decode-0")
        while hung.popen.poll() is None:
            assert not cluster.status()["instances"], "it has registered"
            time.sleep(0.1)
        assert end_of(hung) == ENGINE_FAILED, hung.tail()


if __name__ == "__main__":
    run_tests(a_failed_engine_ends_its_process, one_that_hangs_is_given_up_and_says_so_first,
              one_that_hangs_among_several_is_given_up,
              a_request_that_fails_engines_ends_after_two, without_a_profile_too,
              a_request_outlives_two_hosts_that_are_killed_under_it,
              a_failure_that_no_orchestrator_heard_for_long_counts, a_request_of_nan_ends_alone,
              idle_engines_are_probed, a_dead_engine_is_never_ready,
              one_that_hangs_from_its_start_is_never_ready)
