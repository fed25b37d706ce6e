#!/usr/bin/env python3
"""The console in a browser, beside a real cluster: it shows a bind, a kill, a resume and a drain as they happen, a prompt with its plan,
and gives an operator's orders; without the token it gives none. axe finds nothing in both themes."""
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
sys.path.insert(0, HERE)
from browser import Browser, why_not  # noqa: E402
from clients import Clients  # noqa: E402
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, emulated_model  # noqa: E402

TOKENIZER = os.path.join(HERE, "..", "..", "deploy", "models", "fledgling")
TOKEN = "an-operator"
# One step is 5 ms, so an answer lasts long enough to be seen.
WORKERS = ["--device=emulated", "--kv-gib=0.01", "--emulated-kv-heads=4", "--node=a"]


def up(folder):
    token = os.path.join(folder, "token")
    with open(token, "w", encoding="utf-8") as out:
        out.write(TOKEN)
    return Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=2, decode=4, worker_flags=WORKERS,
                   decode_flags=["--emulated-decode-step-us=5000"], router_flags=["--admin-token-file=" + token])


class Streams(Clients):
    """Each streams one answer after the other, and breaks the last one off."""

    def __init__(self, cluster, clients=4, tokens=2000):
        super().__init__(cluster, clients)
        self.tokens = tokens

    def turn(self, number):
        for _ in self.cluster.stream("/v1/completions", {
                "model": self.cluster.name, "prompt": [(number + i) % VOCAB for i in range(40)], "max_tokens": self.tokens,
                "ignore_eos": True}):
            if self.stopped:
                return


def console(cluster):
    return cluster.processes["router"].admin() + "/console/"


def decode_instances(cluster):
    """The process of each, by id."""
    by_pid = {process.popen.pid: name for name, process in cluster.processes.items()}
    return {one["instance"]: by_pid[one["pid"]] for one in cluster.status()["instances"] if one["role"] == "decode"}


def bindable(cluster):
    groups = cluster.get("/debug/groups", base=cluster.processes["orchestrator"].admin())["groups"]
    return any(one["role"] == "decode" and one["ready"] == len(one["instances"]) == cluster.counts["decode"] for one in groups)


def with_operator(browser, cluster):
    """The page, with the operators' token, and a decode instance chosen; its id."""
    browser.do("open", url=console(cluster))
    browser.do("fill", selector="#operator-token", text=TOKEN)
    browser.do("click", selector="#operator-form button")
    browser.do("click", selector="#instances-table summary")
    one = min(decode_instances(cluster))
    browser.do("click", selector="#instances button", text="decode %d" % one)
    browser.sees("decode instance %d, serving" % one, "#instance-words")
    return one


def test_switch_kill_resume_and_drain():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster, Browser() as browser:
        one = with_operator(browser, cluster)
        with Streams(cluster) as streams:
            browser.sees("decoding", "#requests td")
            cluster.until(lambda: bindable(cluster), "the group has its communicators")
            browser.do("click", selector="#instance-orders button", text="Bind")
            browser.sees("are bound\\(4\\)")
            browser.sees("formation bound\\(4\\), pinned", "#instance-words")
            browser.sees("bound\\(4\\)", "#instances td")
            browser.do("click", selector="#instance-orders button", text="Release")
            browser.sees("%d.* are independent" % one)
            browser.do("click", selector="#instance-orders button", text="Drain")
            browser.sees("decode instance %d is dra" % one)
            browser.do("click", selector="#instance-orders button", text="serve again")
            browser.sees("decode instance %d is serving" % one)
            victim = next(key for key in decode_instances(cluster) if key != one)
            cluster.kill(decode_instances(cluster)[victim])
            browser.sees("decode instance %d was lost" % victim)
            browser.sees("decode %d" % victim, "#gone th")
            browser.sees("was resumed elsewhere")
            browser.sees("resumed", "#requests td")
        assert not streams.failures, streams.failures
        assert browser.do("problems")["problems"] == []


def test_prompt_shows_its_plan():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster, Browser() as browser:
        browser.do("open", url=console(cluster))
        browser.do("fill", selector="#prompt-text", text="one two three " * 20)
        browser.do("fill", selector="#prompt-tokens", text="20")
        browser.do("click", selector="#prompt-send")
        browser.sees("^Done: ", "#prompt-status")
        browser.sees("^Plan", "#request h3")
        browser.sees("Decodes on instance", "#request li")
        browser.sees("instance \\d+", "#request svg text")
        assert browser.do("text", selector="#prompt-output")["text"]
        # The same by keyboard: the arrow keys choose an instance in the drawing.
        browser.do("press", selector="#cluster-drawing", key="ArrowRight")
        browser.sees("instance \\d+, serving", "#instance-words")
        assert browser.do("problems")["problems"] == []


def test_orders_need_the_token():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster, Browser() as browser:
        browser.do("open", url=console(cluster))
        browser.do("fill", selector="#operator-token", text="a guess")
        browser.do("click", selector="#operator-form button")
        browser.do("press", selector="#cluster-drawing", key="ArrowRight")
        browser.do("click", selector="#instance-orders button", text="Drain")
        browser.sees("Authorization: must be", "#operator-status")
        assert all(one["state"] == "serving" for one in cluster.status()["instances"])


def test_axe_finds_nothing():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster, Browser() as browser:
        with Streams(cluster):
            for dark in (False, True):
                browser.do("open", url=console(cluster), dark=dark, still=True)
                browser.do("click", selector="#instances-table summary")
                browser.do("click", selector="#requests button")
                browser.sees("^Plan", "#request h3")
                found = browser.do("axe")
                assert found["violations"] == [] and found["passes"] > 20, found


if __name__ == "__main__":
    if why_not():
        print("skipped: " + why_not())
        print("CASES 0 passed, 0 failed, 4 skipped")
        sys.exit(0)
    run_tests(test_switch_kill_resume_and_drain, test_prompt_shows_its_plan, test_orders_need_the_token, test_axe_finds_nothing)
