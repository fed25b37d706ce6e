#!/usr/bin/env python3
"""The spans of all processes of a real cluster, received by an independent collector (otlp.py): of a request that several instances
computed, of one whose decode-worker was killed, of one that was preempted, and of one that met a bind. Each is one tree, its parts
lie within their parents, and add up to its latency. skeinctl trace draws them without a collector.
"""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model  # noqa: E402
from otlp import INTERNAL, Collector, tree_of  # noqa: E402

FLEDGLING = "deploy/models/fledgling"
LAYERS = 8
# All processes are on one host and have one clock. A process hears of a request's end when a message comes, and a test machine may
# be busy: a span may end so long after its parent.
SKEW_S = 1.0
MEMORY = "--kv-gib=0.01"
PROFILE = "--profile=llama3-8b-a100"


def up(folder, endpoint, ratio=1, worker_flags=(), decode_flags=(), prefill_flags=(), orchestrator_flags=(), memory=MEMORY, slow_ms=0,
       **more):
    """A cluster all of whose processes send their spans there."""
    tracing = ["--trace-endpoint=" + endpoint, "--trace-slow-ms=%d" % slow_ms]
    return Cluster(binaries_from_argv(), emulated_model(folder, FLEDGLING), worker_flags=["--device=emulated", *worker_flags, *tracing],
                   decode_flags=[memory, *decode_flags], prefill_flags=[MEMORY, *prefill_flags],
                   orchestrator_flags=[*orchestrator_flags, *tracing], router_flags=[*tracing, "--trace-ratio=%g" % ratio], **more)


def prompt_of(length, seed=1):
    draw = random.Random(seed)
    return [draw.randrange(VOCAB) for _ in range(length)]


def named(spans, name):
    return sorted((span for span in spans if span.name == name), key=lambda span: span.start)


def is_whole(spans, trace, names):
    """No span lacks its parent, and there is one of each of these names."""
    mine = [span for span in spans if span.trace == trace]
    ids = {span.id for span in mine}
    orphans = [span for span in mine if span.parent and span.parent not in ids]
    return not orphans and set(names) <= {span.name for span in mine}


def union_s(spans, start, end):
    """How much of [start, end] the spans cover together."""
    covered, until = 0, start
    for one in sorted(spans, key=lambda span: span.start):
        covered += max(0, min(one.end, end) - max(one.start, until))
        until = max(until, min(one.end, end))
    return covered * 1e-9


def coverage(mine, root):
    """The share of a request's latency that the leaves of its tree cover, laid on the timeline. The router's own phases that only wait
    for others do not count: they cover everything."""
    parents = {span.parent for span in mine}
    waits = {span.id for span in mine if span.parent == root.id and span.name in ("plan", "first token", "stream")}
    leaves = [span for span in mine if span.id not in parents and span.id not in waits]
    return union_s(leaves, root.start, root.end) / root.seconds()


def check_tree(spans, trace):
    """One tree; children within their parents; the router's phases add up to its latency within 2 %. How much of it the leaves
    cover is printed: these requests are short, and a busy machine delays messages."""
    mine, root = tree_of(spans, trace)
    for span in mine.values():
        parent = mine.get(span.parent)
        if parent is not None:
            assert span.start >= parent.start - SKEW_S * 1e9 and span.end <= parent.end + SKEW_S * 1e9, (span, parent)
    phases = [span for span in mine.values() if span.parent == root.id and span.kind == INTERNAL]
    total = sum(phase.seconds() for phase in phases)
    assert abs(total - root.seconds()) <= 0.02 * root.seconds(), (total, root)
    print("the leaves cover %.1f %% of %.3f s" % (100 * coverage(mine.values(), root), root.seconds()))
    for span in mine.values():
        if span.resource["service.name"] != "skein-router":
            assert span.attributes["skein.request_id"] and span.attributes["skein.role"], span
    return list(mine.values()), root


def trace_of(cluster, request, *flags):
    return subprocess.run([cluster.binaries["skeinctl"], "trace", request, "--orchestrator", cluster.orchestrator, *flags],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)


def the_trace(spans, name="decode"):
    """The one trace that has such a span."""
    traces = {span.trace for span in spans if span.name == name}
    assert len(traces) == 1, traces
    return traces.pop()


WHOLE = ("schedule", "plan", "placement", "prefill", "prefill.queue", "chunk", "handoff", "handoff.put", "handoff.commit", "decode",
         "decode.kv_wait", "decode.queue", "decode.steps", "attempt", "submit", "last token", "stream")


def a_prompt_of_several_instances():
    with tempfile.TemporaryDirectory() as folder, Collector() as collector, \
            up(folder, collector.url, prefill=4, decode=2, worker_flags=["--max-batch-tokens=262144"],
               prefill_flags=[PROFILE, "--max-slice-tokens=262144"], decode_flags=["--emulated-decode-step-us=20000"],
               orchestrator_flags=[PROFILE, "--policy=greedy"]) as cluster:
        prompt = prompt_of(20000)
        assert complete(cluster, prompt, 50, name="mine-1") == continuation(prompt, 50)
        spans = collector.until(lambda spans: any(is_whole(spans, span.trace, WHOLE) for span in named(spans, "decode")), "all spans")
        mine, root = check_tree(spans, the_trace(spans))
        chunks = named(mine, "chunk")
        ranks = max(span.attributes["skein.sp"] * span.attributes.get("skein.tp", 1) for span in chunks)
        assert ranks > 1, chunks
        collector.until(lambda spans: len(named(spans, "prefill")) == ranks and is_whole(spans, root.trace, WHOLE), "each member's spans")
        mine, root = check_tree(collector.all(), root.trace)
        last = max(span.attributes["skein.chunk"] for span in named(mine, "chunk"))
        of_last = [span for span in named(mine, "chunk") if span.attributes["skein.chunk"] == last]
        assert sorted(span.attributes["skein.rank"] for span in of_last) == list(range(len(of_last))), of_last
        assert all(span.attributes["skein.estimated_us"] > 0 for span in of_last), of_last
        assert sum(span.attributes["skein.tokens"] for span in named(mine, "chunk")) == len(prompt), chunks
        assert all(span.attributes["skein.bytes"] > 0 for span in named(mine, "handoff.put")), mine
        plan, = [span for span in named(mine, "plan") if span.resource["service.name"] == "skein-orchestrator"]
        assert plan.attributes["skein.policy"] == "greedy" and plan.attributes["skein.chunks"] >= 1, plan


def the_leaves_of_a_request_cover_its_latency():
    """Within 2 %, of at least one of three requests of some seconds: where the last message of a request is delayed by more than the
    steps behind it, nothing covers the rest of its way, and a busy test machine may do that."""
    with tempfile.TemporaryDirectory() as folder, Collector() as collector, \
            up(folder, collector.url, prefill=1, decode=1, decode_flags=["--emulated-decode-step-us=20000"]) as cluster:
        asked = [(prompt_of(40, seed), tokens) for seed, tokens in enumerate((110, 140, 170))]
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda one: complete(cluster, *one), asked))
        assert answers == [continuation(*one) for one in asked]
        spans = collector.until(lambda spans: len(named(spans, "decode")) == len(asked) and
                                all(is_whole(spans, span.trace, WHOLE) for span in named(spans, "decode")), "all spans")
        shares = {}
        for trace in {span.trace for span in spans}:
            mine, root = check_tree(spans, trace)
            shares[root.seconds()] = coverage(mine, root)
        assert len(shares) == len(asked) and max(shares.values()) >= 0.98, shares


def a_request_whose_decode_worker_is_killed():
    with tempfile.TemporaryDirectory() as folder, Collector() as collector, \
            up(folder, collector.url, prefill=1, decode=2, decode_flags=["--emulated-decode-step-us=10000"]) as cluster:
        prompt = prompt_of(30)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(complete, cluster, prompt, 300)

            def running():
                return [name for name in ("decode-0", "decode-1")
                        if cluster.metric(cluster.processes[name], "vllm:num_requests_running") > 0]
            cluster.until(running, "it is decoded")
            cluster.kill(running()[0])
            assert answer.result() == continuation(prompt, 300)
        spans = collector.until(lambda spans: any(is_whole(spans, span.trace, WHOLE) for span in named(spans, "decode")) and
                                len(named(spans, "attempt")) == 2 and len(named(spans, "schedule")) == 2, "both attempts")
        mine, _ = tree_of(spans, the_trace(spans))
        mine = list(mine.values())
        first, second = named(mine, "attempt")
        assert first.failed and not second.failed, (first, second)
        under = {attempt.id: {span.name for span in mine if span.parent == attempt.id} for attempt in (first, second)}
        assert {"schedule", "prefill", "decode"} <= under[second.id], under
        # What the killed process had in its memory is lost with it: its own spans, and no other.
        assert "schedule" in under[first.id] and "prefill" in under[first.id] and "decode" not in under[first.id], under


def kv(blocks):
    return "--kv-gib=%.12f" % ((blocks + 1.5) * LAYERS * 256 / 2**30)  # one is for probes; rounded down


def a_preempted_request():
    with tempfile.TemporaryDirectory() as folder, Collector() as collector, \
            up(folder, collector.url, prefill=1, decode=1, worker_flags=["--emulated-layers=%d" % LAYERS],
               memory=kv(64), decode_flags=["--emulated-decode-step-us=4000"]) as cluster:
        asked = [(prompt_of(40, seed), 300) for seed in range(8)]
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda one: complete(cluster, *one), asked))
        for (prompt, count), answer in zip(asked, answers):
            assert answer == continuation(prompt, count, layers=LAYERS), len(prompt)
        spans = collector.until(lambda spans: len(named(spans, "decode")) == len(asked) and
                                all(is_whole(spans, span.trace, WHOLE) for span in named(spans, "decode")), "all spans")
        preempted = {span.trace for span in named(spans, "decode.preempted")}
        assert preempted, "none was"
        for trace in preempted:
            mine, _ = check_tree(spans, trace)
            decode, = named(mine, "decode")
            assert decode.attributes["skein.preemptions"] == len(named(mine, "decode.preempted")), mine
            assert decode.attributes["skein.tokens"] == 300, decode
            assert any(span.attributes.get("skein.recomputed_tokens", 0) > 0 for span in named(mine, "decode.steps")), mine


def order(cluster, *arguments):
    done = subprocess.run([cluster.binaries["skeinctl"], *arguments, "--orchestrator", cluster.orchestrator], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)
    assert done.returncode == 0, done
    return done.stdout


def a_request_that_meets_a_bind():
    with tempfile.TemporaryDirectory() as folder, Collector() as collector, \
            up(folder, collector.url, prefill=1, decode=2, worker_flags=["--emulated-kv-heads=4", "--node=a"],
               decode_flags=["--emulated-decode-step-us=5000"]) as cluster:
        def group():
            groups = json.loads(order(cluster, "formation", "--format=json"))["groups"]
            return next((one for one in groups if one["role"] == "decode"), {"instances": [], "ready": 0})
        cluster.until(lambda: len(group()["instances"]) == 2 and group()["ready"] == 2, "the group has its communicators")
        begun = threading.Event()
        tokens = []

        def ask():
            body = {"model": cluster.name, "prompt": prompt_of(30), "max_tokens": 500, "ignore_eos": True, "temperature": 0,
                    "return_token_ids": True}
            for chunk in cluster.stream("/v1/completions", body, timeout=120):
                tokens.extend(token for choice in chunk["choices"] for token in choice.get("token_ids") or [])
                begun.set()
        client = threading.Thread(target=ask)
        client.start()
        assert begun.wait(60)
        order(cluster, "bind", "--group", group()["name"], "--size", "2")
        client.join()
        assert tokens == continuation(prompt_of(30), 500, heads=4), len(tokens)
        spans = collector.until(lambda spans: any(is_whole(spans, span.trace, WHOLE) for span in named(spans, "decode")), "all spans")
        mine, _ = check_tree(spans, the_trace(spans))
        decode, = named(mine, "decode")
        assert "formation entered" in [name for name, _ in decode.events], decode.events
        schedule, = named(mine, "schedule")
        assert "formation switch" in [name for name, _ in schedule.events], schedule.events


def a_slow_request_is_exported_by_all():
    """It was not sampled: each process holds its spans until the router's word has reached it."""
    with tempfile.TemporaryDirectory() as folder, Collector() as collector, \
            up(folder, collector.url, ratio=0, slow_ms=100, prefill=1, decode=1,
               decode_flags=["--emulated-decode-step-us=5000"]) as cluster:
        complete(cluster, prompt_of(30), 60)
        spans = collector.until(lambda spans: any(is_whole(spans, span.trace, WHOLE) for span in named(spans, "decode")), "all spans")
        tree_of(spans, the_trace(spans))


def skeinctl_draws_it_without_a_collector():
    with tempfile.TemporaryDirectory() as folder, \
            up(folder, "local", prefill=2, decode=1, decode_flags=["--emulated-decode-step-us=2000"]) as cluster:
        complete(cluster, prompt_of(100), 40, name="mine-1")

        def drawn():
            done = trace_of(cluster, "mine-1")
            return done if done.returncode == 0 and all(name in done.stdout for name in WHOLE) else None
        cluster.until(drawn, "all spans are kept")
        text = drawn().stdout
        assert text.startswith("trace ") and "spans of 4 processes" in text, text
        listed = json.loads(trace_of(cluster, "mine-1", "--format=json").stdout)
        trace = listed["spans"][0]["trace"]
        request = [span["attributes"]["skein.request_id"] for span in listed["spans"] if span["name"] == "decode"][0]
        for name in (trace, request):
            again = json.loads(trace_of(cluster, name, "--format=json").stdout)
            assert {span["span"] for span in again["spans"]} >= {span["span"] for span in listed["spans"]}, name
        unknown = trace_of(cluster, "nobody")
        assert unknown.returncode == 5 and "does not know it" in unknown.stderr, unknown
    with tempfile.TemporaryDirectory() as folder, up(folder, "local", ratio=0, prefill=1, decode=1) as cluster:
        complete(cluster, prompt_of(100), 4, name="mine-2")
        done = trace_of(cluster, "mine-2")
        assert done.returncode == 5 and "was not sampled" in done.stderr, done


if __name__ == "__main__":
    run_tests(a_prompt_of_several_instances, the_leaves_of_a_request_cover_its_latency, a_request_whose_decode_worker_is_killed,
              a_preempted_request, a_request_that_meets_a_bind, a_slow_request_is_exported_by_all,
              skeinctl_draws_it_without_a_collector)
