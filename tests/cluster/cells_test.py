#!/usr/bin/env python3
"""A router with two cells: an orchestrator each, with its own instances. Emulated workers.

Sessions stay in their cell; a lost cell costs no request that the other one can serve, and no answer is wrong.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402
from emulated import continuation, emulated_model  # noqa: E402

TOKENIZER = "deploy/models/fledgling"
WORKERS = ["--device=emulated", "--kv-gib=0.01"]
HANGS = 4  # a token with which a prompt never ends, where the workers are told so


class Cell(Cluster):
    """An orchestrator and its workers. The router is another's."""

    def start_router(self):
        pass

    def await_ready(self):
        pass

    def submitted(self):
        """Requests that it has taken up so far."""
        return self.metric(self.processes["orchestrator"], "skein_requests_submitted_total")


class Routed(Cell):
    """A cell beside which the router of all cells runs."""

    def __init__(self, others, *arguments, **options):
        super().__init__(*arguments, **options)
        self.others = others

    def start_router(self):
        # A router hears what a cell serves when it connects, then with each report.
        for cell in (self, *self.others):
            cell.until(lambda cell=cell: cell.serving() >= len(cell.workers()), "its workers serve")
        addresses = ",".join([self.orchestrator] + [cell.orchestrator for cell in self.others])
        port = self.port_file("router")
        self.run("router", "router", ["--orchestrator=" + addresses, "--port=0", "--port-file=" + port,
                                      "--model=%s=%s" % (self.name, self.model)])
        self.url = "http://127.0.0.1:" + self.await_file(port, "router")
        self.until(lambda: self.cells_ready() == 2, "both cells are ready")
        self.until(self.ready, "/readyz is 200")

    def cells_ready(self):
        return self.metric(self.processes["router"], "skein_router_cells_ready")

    def ready(self):
        try:
            return self.get("/readyz", raw=True) is not None
        except (HttpFailure, OSError):
            return False

    def moved(self, reason):
        return self.metric(self.processes["router"], "skein_router_moved_requests_total", 'reason="%s"' % reason)


def prompt_of(number):
    return [HANGS, 5 + number, 6, 7]


def body_of(cluster, number, tokens):
    return {"model": cluster.name, "prompt": prompt_of(number), "max_tokens": tokens, "ignore_eos": True,
            "temperature": 0, "return_token_ids": True}


def ask(cluster, number, tokens=3, session=None):
    answer = cluster.post("/v1/completions", body_of(cluster, number, tokens),
                          headers={"X-Session-Id": session} if session else None)
    assert answer["choices"][0]["token_ids"] == continuation(prompt_of(number), tokens), answer


def explained(cell, request):
    """The reasons why its answer was degraded, and how often, as the cell's orchestrator tells them."""
    done = subprocess.run([cell.binaries["skeinctl"], "explain", request, "--orchestrator", cell.orchestrator, "--format=json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["requests"][0]["degraded"]


class Stream(threading.Thread):
    """A streamed answer, compared with the right one."""

    def __init__(self, cluster, number, tokens):
        super().__init__()
        self.cluster, self.number, self.tokens = cluster, number, tokens
        self.started, self.ids, self.problem, self.request = threading.Event(), [], None, None
        self.start()

    def run(self):
        try:
            for chunk in self.cluster.stream("/v1/completions", body_of(self.cluster, self.number, self.tokens)):
                assert "error" not in chunk, chunk
                self.request = chunk["id"]
                for choice in chunk["choices"]:
                    self.ids += choice["token_ids"]
                self.started.set()
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = repr(problem)
        self.started.set()

    def check(self):
        self.join()
        assert self.problem is None, self.problem
        assert self.ids == continuation(prompt_of(self.number), self.tokens), self.ids


def two_cells(test, decode_step_ms=20, others_prefill_flags=(), **options):
    binaries = binaries_from_argv()
    with tempfile.TemporaryDirectory() as folder:
        options = dict(options, model=emulated_model(folder, TOKENIZER), name="m", prefill=1, decode=1,
                       worker_flags=WORKERS, decode_flags=["--emulated-decode-step-us=%d" % (1000 * decode_step_ms)])
        with Cell(binaries, prefill_flags=others_prefill_flags, **options) as other:
            with Routed([other], binaries, **options) as own:
                test(own, other)


def requests_go_to_both_cells_and_sessions_stay():
    def test(own, other):
        for number in range(40):
            ask(own, number)
        assert own.submitted() > 0 and other.submitted() > 0, (own.submitted(), other.submitted())
        assert own.submitted() + other.submitted() == 40
        used = set()
        for session in range(8):
            before = own.submitted(), other.submitted()
            for number in range(5):
                ask(own, number, session="s%d" % session)
            grown = own.submitted() - before[0], other.submitted() - before[1]
            assert sorted(grown) == [0, 5], grown
            used.add(grown)
        assert len(used) == 2, "sessions spread over the cells"
        own.assert_idle_and_whole()
        other.assert_idle_and_whole()
    two_cells(test)


def a_lost_orchestrator_costs_nothing():
    """What streams goes on, and everything new is answered by the other cell."""
    def test(own, other):
        streams = [Stream(own, number, 200) for number in range(12)]
        for stream in streams:
            stream.started.wait()
        before = own.submitted(), other.submitted()
        assert min(before) > 0, before
        other.kill("orchestrator")
        for number in range(20):
            ask(own, number, session="s%d" % (number % 8))
        for stream in streams:
            stream.check()
        assert own.ready()
        own.until(lambda: own.cells_ready() == 1, "one cell is ready")
        own.assert_idle_and_whole()
        other.kill_all()
    two_cells(test)


def requests_of_a_lost_cell_that_have_no_token_are_placed_in_the_other():
    """Prompts hang in its prefill worker; then all of it dies."""
    def test(own, other):
        streams = [Stream(own, number, 20) for number in range(12)]
        own.until(lambda: own.submitted() + other.submitted() == 12, "all are placed")
        held = int(other.submitted())
        assert held > 0
        other.kill_all()
        for stream in streams:
            stream.check()
        assert own.moved("lost") == held, (own.moved("lost"), held)
        orchestrator = own.processes["orchestrator"]
        assert own.metric(orchestrator, "skein_degraded_total", 'reason="moved"') == held
        told = [explained(own, stream.request).get("moved", 0) for stream in streams]
        assert sorted(told) == [0] * (len(streams) - held) + [1] * held, told
        own.assert_idle_and_whole()
    two_cells(test, others_prefill_flags=["--emulated-hang-token=%d" % HANGS])


def a_full_cell_is_passed_over_until_both_are_full():
    def test(own, other):
        streams = [Stream(own, number, 60) for number in range(4)]
        own.until(lambda: own.submitted() + other.submitted() >= 4, "the cells are full")
        try:
            ask(own, 99)
            raise AssertionError("there was room")
        except HttpFailure as failure:
            assert failure.code == 429, failure
        for stream in streams:
            stream.check()
        assert own.submitted() == 2 and other.submitted() == 2, (own.submitted(), other.submitted())
    two_cells(test, decode_step_ms=100, orchestrator_flags=["--max-requests=2"])


if __name__ == "__main__":
    run_tests(requests_go_to_both_cells_and_sessions_stay,
              a_lost_orchestrator_costs_nothing,
              requests_of_a_lost_cell_that_have_no_token_are_placed_in_the_other,
              a_full_cell_is_passed_over_until_both_are_full)
