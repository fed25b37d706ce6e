#!/usr/bin/env python3
"""Orchestrators that elect by an etcd of three: one member is killed or stopped, the leading one too, and so is the orchestrator that
leads. Running streams do not notice, and what is submitted meanwhile is answered."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import free_ports, run_tests  # noqa: E402
from etcd_members import TUNED, EtcdMembers, missing  # noqa: E402
from standby_test import a_fail_over_costs_no_request  # noqa: E402
from standbys import ORCHESTRATORS, Standbys, new_requests_succeed, run_streams  # noqa: E402


class ByMembers(Standbys):
    """`first`: addresses that its orchestrators try before those of the members."""

    def __init__(self, folder, first=()):
        super().__init__(folder, store="etcd")
        self.members = EtcdMembers(self.folder, 3, TUNED)
        self.endpoints = ",".join([*first, self.members.endpoints()])

    def start_etcd(self):
        self.members.start_all()
        self.until(lambda: self.members.leader() is not None, "a member of etcd leads")

    def start_orchestrator(self, name):
        self.run(name, "orchestrator", ["--port=%d" % self.ports[name], "--store=etcd", "--etcd=" + self.endpoints, "--leader-lease-s=1"])

    def one_leads(self):
        return sum(self.leads(name) for name in ORCHESTRATORS) == 1

    def another_member(self, but):
        return next(index for index in self.members.processes if index != but)

    def await_members(self):
        self.until(lambda: len(self.members.processes) == 3 and all(map(self.members.serves, range(3))), "all members of etcd serve")


def a_loss_in_etcd_costs_no_request(cluster, lose, mend):
    """`lose` takes a member from the others, `mend` gives it back. An orchestrator leads in between."""
    cluster.await_whole()
    streams = run_streams(cluster)
    lose()
    new_requests_succeed(cluster)
    cluster.until(lambda: cluster.members.leader() is not None, "a member of etcd leads")
    cluster.until(cluster.one_leads, "one orchestrator leads")
    for stream in streams:
        stream.check()
    mend()
    cluster.await_members()
    new_requests_succeed(cluster)
    cluster.await_whole()


def a_member_may_be_killed_or_stopped():
    """And what was killed is needed later: it has caught up."""
    with tempfile.TemporaryDirectory() as folder, ByMembers(folder) as cluster:
        members = cluster.members
        lost = cluster.another_member(members.leader())
        a_loss_in_etcd_costs_no_request(cluster, lambda: members.kill(lost), lambda: members.start(lost))
        lost = cluster.another_member(lost)
        a_loss_in_etcd_costs_no_request(cluster, lambda: members.stop(lost), lambda: members.go_on(lost))
    return None


def the_member_that_leads_may_be_killed_or_stopped():
    with tempfile.TemporaryDirectory() as folder, ByMembers(folder) as cluster:
        members = cluster.members
        lost = members.leader()
        a_loss_in_etcd_costs_no_request(cluster, lambda: members.kill(lost), lambda: members.start(lost))
        lost = members.leader()
        a_loss_in_etcd_costs_no_request(cluster, lambda: members.stop(lost), lambda: members.go_on(lost))
    return None


def two_members_elect_when_the_orchestrator_is_lost_too():
    with tempfile.TemporaryDirectory() as folder, ByMembers(folder) as cluster:
        members = cluster.members
        lost = members.leader()
        members.kill(lost)
        cluster.until(lambda: members.leader() is not None, "another member of etcd leads")
        a_fail_over_costs_no_request(cluster, cluster.kill)
        members.start(lost)
        cluster.await_members()
        cluster.await_whole()
    return None


def the_first_address_may_be_dead():
    """Nothing ever listens there."""
    with tempfile.TemporaryDirectory() as folder, ByMembers(folder, first=["127.0.0.1:%d" % free_ports(1)]) as cluster:
        a_fail_over_costs_no_request(cluster, cluster.kill)
    return None


if __name__ == "__main__":
    if missing():
        print("skipped  %s\nCASES 0 passed, 0 failed, 1 skipped" % missing())
        sys.exit(0)
    run_tests(a_member_may_be_killed_or_stopped, the_member_that_leads_may_be_killed_or_stopped,
              two_members_elect_when_the_orchestrator_is_lost_too, the_first_address_may_be_dead)
