#!/usr/bin/env python3
"""Decode-workers with a real model share their weights: answers are those that the instances gave alone, in either mode, across changes of
the mode, when one enters or leaves, and when a member is killed. shared_memory_test.py has what it does to memory."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from batches import Job  # noqa: E402
from cluster import run_tests  # noqa: E402
from sharing import Load, answer_of, asked, await_group, group_of, members, shown, up  # noqa: E402


def answers_are_those_of_independent_instances():
    bodies = asked(6)
    for size in (2, 4):
        with up(decode=size) as cluster:
            group = await_group(cluster, size)
            name, ids = group["name"], group["instances"]
            expected = [answer_of(cluster, body) for body in bodies]
            with Load(cluster, bodies, expected) as load:
                for mode in ("was", "cas"):
                    cluster.skeinctl("share", "--group", name, "--mode", mode)
                    assert shown(cluster) == [("shared(%s)" % mode, ids)], group_of(cluster)
                    load.await_more(12, "instances that share their weights answer in " + mode)
                for mode in ("was", "cas", "was"):
                    cluster.skeinctl("share", "--group", name, "--mode", mode)
                    load.await_more(6, "they answer after a change to " + mode)
                cluster.skeinctl("release", "--group", name)
                assert [one for one, _ in shown(cluster)] == ["independent"], group_of(cluster)
                load.await_more(12, "instances with all their weights answer")
            cluster.assert_idle_and_whole()


def a_member_that_is_killed_takes_no_answer_with_it():
    bodies = asked(8)
    with up(decode=4) as cluster:
        group = await_group(cluster, 4)
        expected = [answer_of(cluster, body) for body in bodies]
        names = members(cluster)
        with Load(cluster, bodies, expected) as load:
            for mode, lost in (("was", group["instances"][1]), ("cas", group["instances"][2])):
                left = group_of(cluster)["instances"]
                size = 4 if len(left) == 4 else 2
                together = [one for one in left if len(left) == 4 or one in left[:2]]
                lost = lost if lost in together else together[-1]
                cluster.until(lambda: group_of(cluster)["ready"] == len(left), "the group has its communicators")
                cluster.skeinctl("share", *[str(one) for one in together], "--mode", mode)
                assert ("shared(%s)" % mode, together) in shown(cluster), group_of(cluster)
                assert len(together) == size
                load.await_more(8, "instances that share their weights answer in " + mode)
                cluster.kill(names[lost])
                cluster.until(lambda gone=lost: gone not in group_of(cluster)["instances"], "its loss is seen")
                cluster.until(lambda: [one for one, _ in shown(cluster)] == ["independent"], "the others work alone")
                load.await_more(16, "the others answer")
        cluster.assert_idle_and_whole()


def a_group_shares_its_weights_for_a_job_by_itself():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        flags = ["--jobs-dir=" + os.path.join(folder, "jobs"), "--formation-share-lines=2", "--formation-dwell-s=0"]
        with up(orchestrator_flags=flags) as cluster:
            await_group(cluster, 2)
            bodies = asked(6)
            expected = [answer_of(cluster, body)[0] for body in bodies]
            lines = {"line-%d" % i: {"model": cluster.name, **bodies[i % len(bodies)]} for i in range(120)}
            job = Job([cluster.url], lines)
            job.submit()
            state = job.await_end(180)
            assert state["status"] == "completed" and state["request_counts"]["completed"] == len(lines), state
            for line in job.output(state):
                choice, = line["response"]["body"]["choices"]
                assert choice["token_ids"] == expected[int(line["custom_id"].split("-")[1]) % len(bodies)], line
            orchestrator = cluster.processes["orchestrator"]
            binds = cluster.metric(orchestrator, "skein_formation_switches_total", 'kind="bind",outcome="done",own="share"')
            assert binds >= 1, group_of(cluster)
            cluster.until(lambda: [name for name, _ in shown(cluster)] == ["independent"], "the instances work alone after the job")
            cluster.assert_idle_and_whole()


if __name__ == "__main__":
    run_tests(answers_are_those_of_independent_instances, a_member_that_is_killed_takes_no_answer_with_it,
              a_group_shares_its_weights_for_a_job_by_itself)
