#!/usr/bin/env python3
"""Traces of a real cluster, received by a collector that others have written (npm_collector.mjs): it takes the same spans as the one of
these tests (otlp.py), as one tree whose phases add up.
"""
import json
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from otlp import INTERNAL, SERVER, Span, tree_of  # noqa: E402

MODEL = "deploy/models/fledgling"
PACKAGE = os.path.join(os.environ.get("SKEIN_NPM", ""), "node_modules", "@elastic", "mockotlpserver")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def span_of(message):
    any_values = [{"key": key, "value": {"of": value}} for key, value in message["attributes"].items()]
    return Span(message["resource"], {
        "trace_id": bytes.fromhex(message["trace"]), "span_id": bytes.fromhex(message["span"]), "parent_span_id": bytes.fromhex(message["parent"]),
        "name": message["name"], "kind": message["kind"], "start_time_unix_nano": int(message["start"]), "end_time_unix_nano": int(message["end"]),
        "attributes": any_values})


class NpmCollector:
    def __enter__(self):
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "node", os.path.join(HERE, "npm_collector.mjs")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        first = self.process.stdout.readline()
        assert first, "the collector ended at once, with status %d" % self.process.wait()
        self.url = json.loads(first)["url"]
        self.lock, self.spans = threading.Lock(), []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.reader.join()

    def read(self):
        for line in self.process.stdout:
            spans = [span_of(message) for message in json.loads(line)["spans"]]
            with self.lock:
                self.spans += spans

    def until(self, condition, what, seconds=60):
        """Waits until condition(spans)."""
        end = time.monotonic() + seconds
        while True:
            with self.lock:
                spans = list(self.spans)
            if condition(spans):
                return
            assert self.process.poll() is None, "the collector has ended"
            assert time.monotonic() < end, "not within %d s: %s\n%s" % (seconds, what, "\n".join(map(repr, spans)))
            time.sleep(0.02)


def a_collector_of_others_takes_all_spans_once():
    if not os.path.isdir(PACKAGE):
        return "skip: needs SKEIN_NPM with @elastic/mockotlpserver (tests/tools/fetch_npm)"
    with NpmCollector() as collector:
        tracing = ["--trace-endpoint=" + collector.url]
        with Cluster(binaries_from_argv(), MODEL, prefill=1, decode=1, worker_flags=tracing, orchestrator_flags=tracing,
                     router_flags=[*tracing, "--trace-ratio=0"]) as cluster:
            answer = cluster.post("/v1/chat/completions", {
                "model": cluster.name, "max_tokens": 8, "temperature": 0, "ignore_eos": True,
                "messages": [{"role": "user", "content": "What is red?"}]}, headers={"traceparent": "00-%s-%s-01" % (TRACE, PARENT)})
            # Those of a worker come with its next report, and at the latest with its end.
            wanted = {"tokenize", "submit", "last token", "schedule", "plan", "placement", "prefill", "chunk", "handoff.put", "decode", "decode.steps"}
            collector.until(lambda spans: wanted <= {span.name for span in spans} and any(span.kind == SERVER for span in spans),
                            "all spans")
            router = cluster.processes["router"]
            assert cluster.metric(router, "skein_trace_retries_total") == 0
    spans = collector.spans  # all of them: the processes have ended, and then the collector
    assert len({span.id for span in spans}) == len(spans), "a span came twice"
    mine, root = tree_of(spans, TRACE, PARENT)
    assert len(mine) == len(spans), spans
    assert root.name == "chat " + cluster.name and root.attributes["gen_ai.response.id"] == answer["id"], root
    assert root.attributes["gen_ai.usage.output_tokens"] == 8 and root.attributes["gen_ai.response.finish_reasons"] == ["length"], root
    phases = sorted((span for span in mine.values() if span.parent == root.id and span.kind == INTERNAL), key=lambda span: span.start)
    assert [span.name for span in phases] == ["tokenize", "admission", "plan", "first token", "stream"], phases
    assert sum(span.end - span.start for span in phases) == root.end - root.start, phases
    services = {span.resource["service.name"] for span in spans}
    assert services == {"skein-router", "skein-orchestrator", "skein-prefill-worker", "skein-decode-worker"}, services
    return None


if __name__ == "__main__":
    run_tests(a_collector_of_others_takes_all_spans_once)
