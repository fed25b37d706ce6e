#!/usr/bin/env python3
"""Traces of a real cluster, received by a collector written against OpenTelemetry's schema (otlp.py): the spans of a request are
one tree whose times add up to its latency; sampling by parent, ratio and slowness; collectors that are slow, down or broken.
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, free_ports, run_tests  # noqa: E402
from otlp import CLIENT, INTERNAL, SERVER, Collector, tree_of  # noqa: E402

MODEL = "deploy/models/fledgling"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


def traced(collector, *flags):
    """A cluster whose router sends its spans to a collector at this URL."""
    return Cluster(binaries_from_argv(), MODEL, prefill=1, decode=1,
                   router_flags=["--trace-endpoint=" + collector, *(flags or ["--trace-ratio=1"])])


def chat(cluster, headers=None, **more):
    body = {"model": cluster.name, "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "What is red?"}]}
    return cluster.post("/v1/chat/completions", {**body, **more}, headers=headers)


def traceparent(flags, trace=TRACE):
    return {"traceparent": "00-%s-%s-%s" % (trace, PARENT, flags)}


def servers(spans):
    return [span for span in spans if span.kind == SERVER]


def check_phases(spans, server):
    """The phases of a request follow one another, and add up to it within 2 %."""
    phases = sorted((span for span in spans if span.parent == server.id and span.kind == INTERNAL), key=lambda span: span.start)
    assert phases[0].start == server.start and phases[-1].end == server.end, phases
    assert all(one.end == other.start for one, other in zip(phases, phases[1:])), phases
    total = sum(phase.seconds() for phase in phases)
    assert abs(total - server.seconds()) <= 0.02 * server.seconds(), (total, server)
    return [phase.name for phase in phases]


def a_request_is_one_tree_whose_times_add_up():
    with Collector() as collector, traced(collector.url) as cluster:
        chat(cluster, traceparent("01"))
        for _ in cluster.stream("/v1/completions", {"model": cluster.name, "prompt": "A kite", "max_tokens": 8, "n": 2}):
            pass
        try:
            chat(cluster, traceparent("01", "1" * 32), max_tokens=-1)
            raise AssertionError("a negative max_tokens was taken")
        except HttpFailure as failure:
            assert failure.code == 400, failure
        spans = collector.until(lambda spans: len(servers(spans)) == 3, "three requests")
        of_chat, = [span for span in servers(spans) if span.trace == TRACE]
        mine, root = tree_of(spans, TRACE, PARENT)
        assert root is of_chat, root
        assert root.name == "chat " + cluster.name, root
        assert check_phases(mine.values(), root) == ["tokenize", "admission", "plan", "first token", "stream"]
        for name, value in (("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "skein"), ("gen_ai.request.model", cluster.name),
                            ("gen_ai.response.model", cluster.name), ("http.response.status_code", 200)):
            assert root.attributes[name] == value, (name, root)
        assert root.attributes["gen_ai.usage.input_tokens"] > 0 and 0 < root.attributes["gen_ai.usage.output_tokens"] <= 8, root
        assert root.attributes["gen_ai.response.finish_reasons"] in (["stop"], ["length"]), root
        assert [span for span in mine.values() if span.name == "attempt" and span.kind == CLIENT and span.parent == root.id], mine
        completion, = [span for span in servers(spans) if span.name == "text_completion " + cluster.name]
        mine, _ = tree_of(spans, completion.trace)
        check_phases(mine.values(), completion)
        assert sum(span.name == "attempt" for span in mine.values()) == 2, mine
        refused, = [span for span in servers(spans) if span.trace == "1" * 32]
        assert refused.attributes["http.response.status_code"] == 400 and refused.attributes["error.type"], refused
        assert not refused.failed, refused


def log_lines_have_the_ids():
    with Collector() as collector, traced(collector.url) as cluster:
        chat(cluster, {"X-Request-Id": "mine-1", **traceparent("01")})
        try:
            chat(cluster, {"X-Request-Id": "mine-2", **traceparent("01")}, max_tokens=-1)
            raise AssertionError("a negative max_tokens was taken")
        except HttpFailure as failure:
            assert failure.code == 400, failure

        def lines_of(name):
            text = cluster.processes["router"].text()
            lines = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
            return [line for line in lines if line["msg"] == "request" and line.get("request_id") == name]
        for name, outcome in (("mine-1", "finished"), ("mine-2", "refused")):
            cluster.until(lambda name=name: lines_of(name), "its line in the log")
            line, = lines_of(name)
            assert line["trace_id"] == TRACE and line["outcome"] == outcome, line


def sampling_follows_parent_ratio_and_slowness():
    with Collector() as collector, traced(collector.url, "--trace-ratio=0") as cluster:
        chat(cluster)
        chat(cluster, traceparent("00"))
        for malformed in ("00-" + "0" * 32 + "-" + PARENT + "-01", "ff-%s-%s-01" % (TRACE, PARENT), "00-%s-%s" % (TRACE, PARENT),
                          "x" * 2000):
            chat(cluster, {"traceparent": malformed})
        chat(cluster, {**traceparent("01", "2" * 32), "tracestate": "vendor=1"})
        spans = collector.until(servers, "the sampled one")
        only, = servers(spans)
        assert only.trace == "2" * 32 and only.state == "vendor=1", only
        assert {span.trace for span in spans} == {"2" * 32}, spans
    with Collector() as collector, traced(collector.url, "--trace-ratio=0", "--trace-slow-ms=1") as cluster:
        chat(cluster)
        chat(cluster, traceparent("00"))
        spans = collector.until(lambda spans: len(servers(spans)) == 2, "both were slow")
        for server in servers(spans):
            check_phases([span for span in spans if span.trace == server.trace], server)
    with Collector() as collector, traced(collector.url, "--trace-ratio=0", "--trace-slow-ms=3600000") as cluster:
        chat(cluster)
        router = cluster.processes["router"]
        cluster.until(lambda: cluster.metric(router, "skein_trace_held_spans") > 0, "its spans are held")
        chat(cluster, traceparent("01"))
        spans = collector.until(servers, "the sampled one")
        assert {span.trace for span in spans} == {TRACE}, spans


def answers_do_not_depend_on_the_collector():
    """Answers come whatever the collector does, spans are bounded and counted, and the router ends when it is told to."""
    def spans_of(cluster, result):
        return cluster.metric(cluster.processes["router"], "skein_trace_spans_total", 'result="%s"' % result)

    expected = None
    for behaviour in ("hang", "garbage", "down", (503, {"Retry-After": "1"}, b""), (400, {}, b"no")):
        with Collector(lambda number, b=behaviour: b) as collector:
            url = "http://127.0.0.1:%d" % free_ports(1) if behaviour == "down" else collector.url
            with traced(url) as cluster:
                for i in range(12):
                    answer = chat(cluster)["choices"][0]["message"]["content"]
                    expected = answer if expected is None else expected
                    assert answer == expected, (behaviour, i, answer)
                if behaviour == (400, {}, b"no"):
                    cluster.until(lambda: spans_of(cluster, "failed") > 0, "spans are counted as failed")
                assert spans_of(cluster, "exported") == 0, behaviour
                assert cluster.metric(cluster.processes["router"], "skein_trace_queued_spans") <= 8192


def spans_wait_while_the_collector_is_busy():
    with Collector(lambda number: (503, {"Retry-After": "1"}, b"") if number < 2 else None) as collector:
        with traced(collector.url) as cluster:
            for _ in range(3):
                chat(cluster)
            collector.until(lambda spans: len(servers(spans)) == 3, "all spans come, once")
            router = cluster.processes["router"]
            assert cluster.metric(router, "skein_trace_retries_total") >= 2
            cluster.until(lambda: cluster.metric(router, "skein_trace_spans_total", 'result="exported"') == len(collector.all()),
                          "all are counted")


def a_stopping_router_exports_what_it_has():
    with Collector() as collector:
        with traced(collector.url) as cluster:
            chat(cluster, traceparent("01"))
        spans = collector.all()
        assert [span for span in servers(spans) if span.trace == TRACE], spans


# ---- exemplars ----

NUMBER = r"(?:[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[+-]Inf|NaN)"
LABELS = r'\{[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"(?:,[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*")*\}'
SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(%s)? (%s)(?: # \{trace_id=\"([0-9a-f]{32})\"\} (%s) (\d+\.\d+))?" % (LABELS, NUMBER, NUMBER))
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum"), "unknown": ("",)}


def parse_open_metrics(text):
    """A strict reading of OpenMetrics 1.0: the exemplars, as (series, labels, value, trace id). Fails on what the format forbids."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-3:]
    families, family, kind, found = set(), None, None, []
    for line in lines[:-2]:
        if meta := re.fullmatch(r"# TYPE ([a-zA-Z_:][\w:]*) (\w+)", line):
            family, kind = meta.groups()
            assert family not in families, "%s twice, or interleaved" % family
            families.add(family)
            assert kind in SUFFIXES, line
            continue
        if line.startswith("# HELP "):
            assert line.split(" ")[2] == family, line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, "not a sample: %r" % line
        name, labels, _, trace, value, _ = sample.groups()
        assert name in [family + suffix for suffix in SUFFIXES[kind]], (family, kind, line)
        if trace:
            assert name.endswith(("_bucket", "_total")), line
            bound = re.search(r'[{,]le="([^"]*)"', labels)[1]
            assert float(value) <= float(bound), line
            found.append((name, labels, float(value), trace))
    return found


def exemplars_name_traces_that_were_exported():
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    with Collector() as collector, traced(collector.url) as cluster:
        for _ in range(3):
            chat(cluster)
        traces = {span.trace for span in servers(collector.until(lambda spans: len(servers(spans)) == 3, "three requests"))}
        admin = cluster.processes["router"].admin()
        found = parse_open_metrics(cluster.request("GET", "/metrics", headers=accept, base=admin))
        names = {name for name, _, _, _ in found}
        assert names == {"vllm:%s_bucket" % name for name in ("time_to_first_token_seconds", "inter_token_latency_seconds",
                                                              "e2e_request_latency_seconds")}, names
        assert {trace for _, _, _, trace in found} <= traces, (found, traces)
        assert "trace_id" not in cluster.get("/metrics", raw=True, base=admin)
    with Cluster(binaries_from_argv(), MODEL, prefill=1, decode=1) as cluster:  # not traced: as ever
        chat(cluster)
        page = cluster.request("GET", "/metrics", headers=accept, base=cluster.processes["router"].admin())
        assert "# EOF" not in page and "skein_trace" not in page


def the_server_metrics_of_generative_ai_are_there():
    with Cluster(binaries_from_argv(), MODEL, prefill=1, decode=1) as cluster:
        chat(cluster, ignore_eos=True)
        router = cluster.processes["router"]
        for name in ("request_duration", "time_to_first_token", "time_per_output_token"):
            count = cluster.metric(router, "gen_ai_server_%s_seconds_count" % name, 'gen_ai_operation_name="chat"')
            assert count == 1, (name, count)


if __name__ == "__main__":
    run_tests(a_request_is_one_tree_whose_times_add_up, log_lines_have_the_ids, sampling_follows_parent_ratio_and_slowness,
              answers_do_not_depend_on_the_collector, spans_wait_while_the_collector_is_busy, a_stopping_router_exports_what_it_has,
              exemplars_name_traces_that_were_exported, the_server_metrics_of_generative_ai_are_there)
