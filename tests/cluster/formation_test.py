#!/usr/bin/env python3
"""Decode instances of a node are bound and released by skeinctl while requests stream: tokens stay right, gaps are bounded, what is shown is
so, what is placed in a bound group runs on all its members, and those of a group whose member is killed work alone again. By itself a group
is bound for a request that no instance holds, and for urgent ones."""
import concurrent.futures
import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import Clients  # noqa: E402
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402
from emulated import VOCAB, complete, continuation, emulated_model, fast_profile  # noqa: E402

TOKENIZER = "deploy/models/fledgling"
SHAPE = {"heads": 4}  # at least as many as members of a group
EMULATED = ["--device=emulated", "--kv-gib=0.01", "--emulated-kv-heads=4", "--node=a"]
GAP_S = 20  # far more than any step here; a stream that nobody serves any more is silent for longer
DONE, FAILED, USAGE, _, _, NOT_FOUND = range(6)


def up(folder, decode_flags=(), **more):
    return Cluster(binaries_from_argv(), emulated_model(folder, TOKENIZER), prefill=1, decode=4, worker_flags=EMULATED,
                   decode_flags=["--emulated-decode-step-us=3000", *decode_flags], **more)


def group_of(cluster):
    group, = [group for group in json.loads(cluster.skeinctl("formation", "--format=json"))["groups"] if group["role"] == "decode"]
    return group


def shown(cluster):
    """Name and instances of each formation that stands."""
    return [(one["name"], one["instances"]) for one in group_of(cluster)["formations"] if one["stage"] == "stands"]


def await_communicators(cluster):
    def ready():
        group = group_of(cluster)
        return len(group["instances"]) == 4 and group["ready"] == 4
    cluster.until(ready, "the group has its communicators")
    return group_of(cluster)


def members(cluster):
    """The process of each decode instance, by id."""
    by_pid = {process.popen.pid: name for name, process in cluster.processes.items()}
    return {one["instance"]: by_pid[one["pid"]] for one in cluster.status()["instances"] if one["role"] == "decode"}


class Streams(Clients):
    """Each streams one answer after the other. Every token has to be right."""

    def __init__(self, cluster, clients=3, tokens=60, longest=200, **more):
        super().__init__(cluster, clients)
        self.tokens, self.longest, self.more, self.longest_gap_s = tokens, longest, more, 0.0
        self.draws = [random.Random(number) for number in range(clients)]

    def turn(self, number):
        draw = self.draws[number]
        prompt = [draw.randrange(VOCAB) for _ in range(draw.randint(1, self.longest))]
        assert self.stream(prompt) == continuation(prompt, self.tokens, **SHAPE), "wrong tokens"

    def stream(self, prompt):
        tokens, last = [], None
        for chunk in self.cluster.stream("/v1/completions", {
                "model": self.cluster.name, "prompt": prompt, "max_tokens": self.tokens, "ignore_eos": True, "temperature": 0,
                "return_token_ids": True, **self.more}):
            now = time.monotonic()
            for choice in chunk.get("choices", []):
                tokens += choice.get("token_ids") or []
            if last is not None:
                self.longest_gap_s = max(self.longest_gap_s, now - last)
            last = now
        return tokens


def groups_bind_and_release_while_requests_stream():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster:
        group = await_communicators(cluster)
        ids = group["instances"]
        with Streams(cluster) as streams:
            streams.await_more(3, "requests are answered")
            said = cluster.skeinctl("bind", "--group", group["name"], "--size", "2")
            assert said.count("bound(2): instances ") == 2 and said.count(" ms") >= 2, said
            assert shown(cluster) == [("bound(2)", ids[:2]), ("bound(2)", ids[2:])], group_of(cluster)
            assert all(one["pinned"] for one in group_of(cluster)["formations"]), group_of(cluster)
            streams.await_more(6, "bound groups answer requests")
            said = cluster.skeinctl("release", "--group", group["name"], "--hard")
            assert said.count("independent: instances ") == 2, said
            assert [name for name, _ in shown(cluster)] == ["independent"], group_of(cluster)
            streams.await_more(3, "instances that were released answer requests")
            cluster.skeinctl("bind", *map(str, ids))
            assert shown(cluster) == [("bound(4)", ids)], group_of(cluster)
            streams.await_more(3, "a group of four answers requests")
        assert not streams.failures, streams.failures
        assert streams.longest_gap_s < GAP_S, streams.longest_gap_s
        cluster.skeinctl("unpin", "--group", group["name"])
        cluster.skeinctl("release", "--group", group["name"])
        cluster.assert_idle_and_whole()
        orchestrator = cluster.processes["orchestrator"]
        for kind in ("bind", "release"):
            assert cluster.metric(orchestrator, "skein_formation_switches_total",
                                  'kind="%s",outcome="done",own="share"' % kind) == 3, kind
        assert cluster.metric(orchestrator, "skein_formation_cut_over_seconds_count") == 3


def requests_that_run_alone_fare_as_a_bind_says():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster:
        group = await_communicators(cluster)
        for own in ("sequential", "soft", "hard", "share"):
            with Streams(cluster, clients=6) as streams:
                streams.await_more(6, "requests are answered")
                cluster.skeinctl("bind", "--group", group["name"], "--own", own)
                assert [name for name, _ in shown(cluster)] == ["bound(4)"], group_of(cluster)
                streams.await_more(6, "a group that was bound by %s answers requests" % own)
                cluster.skeinctl("release", "--group", group["name"])
                streams.await_more(6, "instances that were released answer requests")
            assert not streams.failures, (own, streams.failures)
            count = cluster.metric(cluster.processes["orchestrator"], "skein_formation_switches_total",
                                   'kind="bind",outcome="done",own="%s"' % own)
            assert count == 1, (own, count)
        cluster.assert_idle_and_whole()


class OneStream:
    """A client that streams one answer; `tokens` are those that it has got. `name`: its id for skeinctl explain."""

    def __init__(self, cluster, prompt, length, name):
        self.cluster, self.prompt, self.length, self.name, self.tokens, self.failure = cluster, prompt, length, name, [], None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            for chunk in self.cluster.stream("/v1/completions", {
                    "model": self.cluster.name, "prompt": self.prompt, "max_tokens": self.length, "ignore_eos": True, "temperature": 0,
                    "return_token_ids": True}, headers={"X-Request-Id": self.name}):
                for choice in chunk.get("choices", []):
                    self.tokens += choice.get("token_ids") or []
        except (HttpFailure, OSError) as failure:
            self.failure = repr(failure)

    def expect_whole(self):
        self.thread.join()
        assert self.failure is None, self.failure
        assert self.tokens == continuation(self.prompt, self.length, **SHAPE), "wrong tokens"


def gaps_of(cluster, decode, kind, own):
    """How many streams saw a gap, at all decode instances."""
    labels = 'kind="%s",model_name="%s",own="%s"' % (kind, cluster.name, own)
    return sum(cluster.metric(one, "skein_formation_stream_gap_seconds_count", labels) for one in decode)


def switches_of(cluster, name):
    """What skeinctl explain tells of the switches of the request's decode group."""
    request, = json.loads(cluster.skeinctl("explain", name, "--format=json"))["requests"]
    plan, = request["plans"]
    assert plan["switches_left_out"] == 0, plan
    return plan["switches"]


def requests_pause_while_a_hard_bound_group_runs():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster:
        group = await_communicators(cluster)
        decode = [cluster.processes[name] for name in members(cluster).values()]
        own_steps = lambda: sum(cluster.metric(one, "skein_engine_steps_total", 'mode="own"') for one in decode)  # noqa: E731
        own = [OneStream(cluster, [seed] * 20, 2000, "own-%d" % seed) for seed in range(1, 5)]
        cluster.until(lambda: all(len(one.tokens) > 3 for one in own), "requests run at instances alone")
        cluster.skeinctl("bind", "--group", group["name"], "--own", "hard")
        bound = OneStream(cluster, [9] * 20, 2000, "bound")
        cluster.until(lambda: len(bound.tokens) > 20, "the group runs a request")
        before = own_steps()
        cluster.until(lambda: len(bound.tokens) > 120, "the group goes on with it")
        assert own_steps() == before, (before, own_steps())
        bound.expect_whole()
        for one in own:  # they go on when the group has nothing to run
            one.expect_whole()
            switch, = switches_of(cluster, one.name)
            assert (switch["from_instances"], switch["to_instances"]) == (1, 4), switch
            told = {key: switch[key] for key in ("cause", "own", "outcome", "meaning")}
            assert told == {"cause": "operator", "own": "hard", "outcome": "done", "meaning": "paused"}, switch
            assert 0 < switch["start_s"] < switch["end_s"], switch
            said = cluster.skeinctl("explain", one.name)
            assert "independent to bound(4), cause: operator" in said and "it paused while the group had work" in said, said
        assert not switches_of(cluster, bound.name), "it came after the bind"
        cluster.assert_idle_and_whole()
        for one in decode:
            assert cluster.metric(one, "skein_recomputed_tokens_total") == 0, "the KV of a paused request stays in place"
        gaps = {kind: gaps_of(cluster, decode, kind, "hard") for kind in ("bind", "release")}
        assert gaps == {"bind": len(own), "release": 0}, gaps


def a_group_that_ran_no_step_is_neither_right_nor_wrong():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster:
        group = await_communicators(cluster)
        assert "verify: nothing is bound" in cluster.skeinctl("formation", "--verify")
        cluster.skeinctl("bind", "--group", group["name"], "--size", "4")
        said = cluster.skeinctl("formation", "--verify", "--watch-s=0.2")
        assert "no step ran while it was watched: send requests and verify again" in " ".join(said.split()), said
        assert said.endswith("verify: unknown\n"), said


def a_member_that_is_killed_leaves_the_others_working_alone():
    """A member of one group, and then the lead of the other, while streams run: none of them breaks."""
    with tempfile.TemporaryDirectory() as folder, up(folder, orchestrator_flags=["--instance-lease-s=2"]) as cluster:
        group = await_communicators(cluster)
        ids, names = group["instances"], members(cluster)
        cluster.skeinctl("bind", "--group", group["name"], "--size", "2")
        with Streams(cluster, clients=6) as streams:
            def await_answers(more):
                goal = streams.answered + more
                cluster.until(lambda: streams.answered >= goal or streams.failures, "streams run")
            await_answers(6)
            for killed, left in ((ids[1], ids[0]), (ids[2], ids[3])):
                cluster.kill(names[killed])
                cluster.until(lambda gone=killed: gone not in group_of(cluster)["instances"], "its loss is seen")
                alone = lambda one=left: not any(name != "independent" and one in own for name, own in shown(cluster))  # noqa: E731
                cluster.until(alone, "the other one works alone")
                await_answers(6)
        assert not streams.failures, streams.failures
        assert cluster.metric(cluster.processes["router"], "skein_router_resumes_total") > 0, "no stream met a fault"
        cluster.assert_idle_and_whole()


def what_cannot_be_is_refused_with_its_reason():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster:
        group = await_communicators(cluster)
        ids = [str(one) for one in group["instances"]]
        for arguments, code, text in (
                (["bind", ids[1], ids[2]], USAGE, "cannot be bound together"),
                (["bind", ids[0], "decode-77"], NOT_FOUND, "'decode-77' is not an instance"),
                (["bind"], USAGE, "INSTANCE or --group is required"),
                (["bind", "--group", "nowhere"], NOT_FOUND, "'nowhere' is unknown"),
                (["bind", "--group", group["name"], "--size=3"], USAGE, "cannot be bound together"),
                (["formation", "--group", "nowhere"], NOT_FOUND, group["name"])):
            done = cluster.try_skeinctl(*arguments)
            assert done.returncode == code and text in done.stderr and not done.stdout, (arguments, done)
        assert [name for name, _ in shown(cluster)] == ["independent"], group_of(cluster)
        assert "independent already" in cluster.skeinctl("release", ids[0])
        assert "pinned" in cluster.skeinctl("pin", ids[0])
        assert any(one["pinned"] and int(ids[0]) in one["instances"] for one in group_of(cluster)["formations"])
        text = cluster.skeinctl("formation")
        assert all(len(line) <= 100 for line in text.splitlines()), text
        assert group["name"] + ": 4 decode instances, communicators ready at 4 of 4" in text, text


def steps_together(cluster, name):
    text = cluster.get("/metrics", raw=True, base=cluster.processes[name].admin())
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if line.startswith("skein_engine_steps_total{") and ('mode="tp"' in line or 'mode="sp"' in line))


def what_is_placed_in_a_bound_group_runs_on_all_members():
    with tempfile.TemporaryDirectory() as folder, up(folder) as cluster:
        group = await_communicators(cluster)
        cluster.skeinctl("bind", "--group", group["name"], "--size", "4")
        idle = cluster.try_skeinctl("formation", "--verify", "--watch-s=0.2")
        assert idle.returncode == DONE and "send requests and verify again" in idle.stdout, idle
        with Streams(cluster) as streams:
            streams.await_more(3, "the group answers requests")
            found = json.loads(cluster.try_skeinctl("formation", "--verify", "--watch-s=2", "--format=json").stdout)
        assert not streams.failures, streams.failures
        checks = {check["check"]: check for one in found["groups"] for check in one.get("checks", [])}
        assert checks["steps"]["verdict"] == "passed" and checks["bytes"]["verdict"] == "passed", checks
        assert checks["blocks"]["verdict"] != "failed" and checks["part"]["verdict"] != "failed", checks
        assert min(steps_together(cluster, name) for name in members(cluster).values()) > 0


STORY = "once upon a time there was little bird that lived in the tall tree and sang every day to its friend fox".split()


def story(draw, words, tokens, **more):
    """A greedy request for tokens of a real model."""
    return {"prompt": " ".join(draw.choice(STORY) for _ in range(words)), "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
            "return_token_ids": True, **more}


def answers_of(cluster, pool, asked):
    """Of requests that come at once."""
    def answer_of(body):
        choice, = cluster.post("/v1/completions", {"model": cluster.name, **body}, timeout=120)["choices"]
        return choice["text"], choice["token_ids"], choice["logprobs"] and choice["logprobs"]["token_logprobs"]
    return list(pool.map(answer_of, asked))


def a_real_model_answers_the_same_in_a_bound_group():
    """Bit for bit, as it is reproducible. Slow kernels make the long requests last while the members are verified. How alike their CPU
    time is depends on what the lead does alone beside such a small model: services/worker/group/pinned_group_test shows that."""
    draw = random.Random(8)
    asked = [story(draw, words, 200, logprobs=0) for words in (5, 40, 120, 300) for _ in range(2)]
    sanitized = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ  # slow
    long = [story(draw, *((200, 150) if sanitized else (400, 350))) for _ in range(12)]
    with Cluster(binaries_from_argv(), TOKENIZER, prefill=1, decode=4,
                 worker_flags=["--device=cpu", "--node=a", "--kv-gib=0.04", "--reproducible=on"], prefill_flags=["--threads=2"],
                 decode_flags=["--threads=1", "--isa=portable"]) as cluster, \
            concurrent.futures.ThreadPoolExecutor(12) as pool, concurrent.futures.ThreadPoolExecutor(1) as beside:
        group = await_communicators(cluster)
        names = members(cluster)
        together = lambda: [steps_together(cluster, name) for name in names.values()]  # noqa: E731
        alone = [answers_of(cluster, pool, some) for some in (asked, long)]
        assert together() == [0] * 4, together()
        cluster.skeinctl("bind", "--group", group["name"], "--size", "4")
        assert answers_of(cluster, pool, asked) == alone[0], "other answers in a bound group"
        assert min(together()) >= 200, together()
        answers = beside.submit(answers_of, cluster, pool, long)
        lead = cluster.processes[names[group["instances"][0]]]
        cluster.until(lambda: answers.done() or cluster.metric(lead, "vllm:num_requests_running") >= 2, "the group runs long requests")
        found = json.loads(cluster.try_skeinctl("formation", "--verify", "--watch-s=1.5", "--format=json").stdout)
        assert answers.result() == alone[1], "other answers to long requests in a bound group"
        assert shown(cluster) == [("bound(4)", group["instances"])] and group_of(cluster)["formations"][0]["pinned"], group_of(cluster)
        checks = {check["check"]: (check["verdict"], check["detail"]) for one in found["groups"] for check in one.get("checks", [])}
        print("checks:", checks)
        assert all(checks[name][0] == "passed" for name in ("steps", "bytes", "blocks", "part")), checks
        cluster.assert_idle_and_whole()


SMALL = ["--kv-gib=0.0001"]  # 103 blocks: 1,648 tokens an instance, four times as many in bound(4)


def a_request_that_no_instance_holds_is_computed_by_a_bound_group():
    with tempfile.TemporaryDirectory() as folder, \
            up(folder, decode_flags=SMALL, orchestrator_flags=["--formation-dwell-s=0.5"]) as cluster:
        await_communicators(cluster)
        draw = random.Random(5)
        prompts = [[draw.randrange(VOCAB) for _ in range(length)] for length in (2500, 5000)]
        with Streams(cluster, clients=2, longest=100) as streams:
            streams.await_more(2, "requests are answered")
            for i, prompt in enumerate(prompts):
                name = "long-%d" % i
                assert complete(cluster, prompt, 20, name=name) == continuation(prompt, 20, **SHAPE), name
                said = " ".join(cluster.skeinctl("explain", name).split())
                assert "computed by bound(%d)" % (2 << i) in said and "tokens fit no instance alone" in said, said
            streams.await_more(2, "short requests are answered after them")
        assert not streams.failures, streams.failures
        switches = cluster.metric(cluster.processes["orchestrator"], "skein_formation_switches_total",
                                  'kind="bind",outcome="done",own="share"')
        assert switches >= 2, switches
        cluster.until(lambda: [name for name, _ in shown(cluster)] == ["independent"], "the group is released after the last long one")
        try:
            complete(cluster, [1] * 8000, 20)
            assert False, "a request longer than the widest group was answered"
        except HttpFailure as failure:
            assert failure.code == 400, failure
            for part in ("prompt + max_tokens: 8020 tokens", "the largest takes 1648", "bound(4), takes 6592"):
                assert part in str(failure.body), (part, failure.body)
        cluster.skeinctl("pin", "--group", group_of(cluster)["name"])
        try:
            complete(cluster, prompts[0], 20)
            assert False, "a request was answered by a group that is pinned"
        except HttpFailure as failure:
            assert failure.code == 400 and "pinned by an operator" in str(failure.body), failure.body
        cluster.skeinctl("unpin", "--group", group_of(cluster)["name"])
        assert complete(cluster, prompts[0], 20) == continuation(prompts[0], 20, **SHAPE)
        cluster.assert_idle_and_whole()


def an_urgent_request_gets_a_bound_group():
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile.json")
        with open(fast_profile(folder, 50), encoding="utf-8") as given, open(profile, "w", encoding="utf-8") as file:
            json.dump({**json.load(given), "formations": [{"instances": 2, "gain": 1.5}]}, file)
        # Whenever requests run the group is busy, so that load alone binds nothing then.
        flags = ["--profile=" + profile, "--formation-dwell-s=0.2", "--formation-bind-sequences=0", "--formation-release-sequences=0.01"]
        with up(folder, orchestrator_flags=flags) as cluster:
            await_communicators(cluster)
            with Streams(cluster) as streams:
                cluster.until(lambda: [name for name, _ in shown(cluster)] == ["independent"], "a busy group works alone")
                with Streams(cluster, clients=2, tokens=200, priority=-1) as urgent:
                    cluster.until(lambda: "bound(2)" in [name for name, _ in shown(cluster)], "a part of the group is bound")
                    # Between two urgent requests it says how long the group is kept.
                    cluster.until(lambda: "a request of priority -1 gets a bound group" in group_of(cluster)["why"], "it says for whom")

                    def dedicated():
                        prompt = [draw.randrange(VOCAB) for _ in range(30)]
                        assert complete(cluster, prompt, 10, name="urgent", priority=-1) == continuation(prompt, 10, **SHAPE)
                        return "decoded in a group that is bound for urgent requests" in " ".join(cluster.skeinctl("explain", "urgent").split())

                    draw = random.Random(6)
                    cluster.until(dedicated, "an urgent request is decoded in that group")
                    assert len([name for name, _ in shown(cluster) if name == "bound(2)"]) == 1, group_of(cluster)
                assert not urgent.failures, urgent.failures
                cluster.until(lambda: [name for name, _ in shown(cluster)] == ["independent"], "it is released after them")
            assert not streams.failures, streams.failures
            cluster.assert_idle_and_whole()


if __name__ == "__main__":
    tempfile.tempdir = os.environ.get("TEST_TMPDIR")
    run_tests(groups_bind_and_release_while_requests_stream, requests_that_run_alone_fare_as_a_bind_says,
              requests_pause_while_a_hard_bound_group_runs, a_group_that_ran_no_step_is_neither_right_nor_wrong,
              a_member_that_is_killed_leaves_the_others_working_alone, what_cannot_be_is_refused_with_its_reason,
              what_is_placed_in_a_bound_group_runs_on_all_members, a_real_model_answers_the_same_in_a_bound_group,
              a_request_that_no_instance_holds_is_computed_by_a_bound_group, an_urgent_request_gets_a_bound_group)
