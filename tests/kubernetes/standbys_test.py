#!/usr/bin/env python3
"""components/standbys on the base: two orchestrators that elect by an etcd of three, within the promised time."""
import functools
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from manifests import KUBERNETES, load_all, named, objects  # noqa: E402
from manifests_test import MUST_TALK, STANDBYS_TALK, flag_defaults, flags_of, pairs  # noqa: E402

FAIL_OVER_S = 3  # until new requests are planned
ETCD_LOOKS_S = 0.5  # how often it looks for leases that have ended
LEARNS_S = 0.75     # in which a new leader plans nothing (kSettleUs in services/orchestrator)


@functools.lru_cache(maxsize=None)
def documents():
    with tempfile.TemporaryDirectory() as folder:
        relative = os.path.relpath(os.path.realpath(KUBERNETES), os.path.realpath(folder))
        with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
            file.write("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: skein\n"
                       "resources: [%s/base]\ncomponents: [%s/components/ha, %s/components/standbys]\n" % ((relative,) * 3))
        text = subprocess.run([sys.executable, os.path.join(KUBERNETES, "render"), folder], check=True, stdout=subprocess.PIPE,
                              text=True, timeout=60).stdout
    return [d for d in load_all(text) if d]


def container(name):
    spec = named(documents())[("StatefulSet", name)]["spec"]
    (one,) = spec["template"]["spec"]["containers"]
    return spec, one, dict(flags_of(one["args"]))


def two_orchestrators_elect_by_three_members():
    spec, one, flags = container("orchestrator")
    assert spec["replicas"] == 2 and flags["store"] == "etcd", (spec["replicas"], flags)
    assert set(flags) <= set(flag_defaults()["orchestrator"]), flags
    etcd, _, _ = container("etcd")
    assert flags["etcd"].split(",") == ["etcd-%d.etcd:2379" % i for i in range(etcd["replicas"])] and etcd["replicas"] == 3
    assert flags["advertise"] == "$(POD_NAME)." + spec["serviceName"] and one["env"][0]["name"] == "POD_NAME"


def members_know_each_other():
    spec, _, flags = container("etcd")
    members = ["etcd-%d=$(SCHEME)://etcd-%d.%s:2380" % (i, i, spec["serviceName"]) for i in range(spec["replicas"])]
    assert flags["initial-cluster"].split(",") == members, flags
    assert flags["initial-advertise-peer-urls"] == "$(SCHEME)://$(POD_NAME).etcd:2380", flags


def a_lost_leader_is_followed_in_time():
    """By etcd's rule for the shortest time to live; etcd wants an election timeout of at least five heartbeats."""
    _, _, flags = container("etcd")
    election_ms, heartbeat_ms = int(flags["election-timeout"]), int(flags["heartbeat-interval"])
    assert election_ms >= 5 * heartbeat_ms, flags
    lease_s = float(container("orchestrator")[2]["leader-lease-s"])
    ttl_s = max(math.ceil(lease_s), math.ceil(1.5 * election_ms / 1000))
    assert ttl_s + ETCD_LOOKS_S + LEARNS_S < FAIL_OVER_S, ttl_s
    assert ttl_s >= 2 * election_ms / 1000, "each change of etcd's leader would cost the lease"


def only_orchestrators_reach_the_store():
    assert pairs(documents()) == MUST_TALK | STANDBYS_TALK, pairs(documents()) ^ MUST_TALK


def no_two_members_share_a_node_that_another_one_could_give():
    for name in ("orchestrator", "etcd"):
        spec = container(name)[0]["template"]
        (spread,) = spec["spec"]["topologySpreadConstraints"]
        assert (spread["maxSkew"], spread["topologyKey"], spread["whenUnsatisfiable"]) == (1, "kubernetes.io/hostname", "DoNotSchedule"), spread
        assert spread["nodeTaintsPolicy"] == "Honor", "a drained or lost node would count as an empty place"
        assert spread["labelSelector"]["matchLabels"].items() <= spec["metadata"]["labels"].items(), spread


def one_member_is_evicted_at_a_time():
    for name in ("orchestrator", "etcd"):
        budget = named(documents())[("PodDisruptionBudget", name)]["spec"]
        assert budget["maxUnavailable"] == 1, budget
        assert budget["selector"]["matchLabels"].items() <= container(name)[0]["template"]["metadata"]["labels"].items(), budget


def it_can_be_applied_to_a_base_that_runs():
    """Kubernetes refuses to change these fields of a StatefulSet."""
    before = named(objects("base"))[("StatefulSet", "orchestrator")]["spec"]
    after = container("orchestrator")[0]
    for field in ("serviceName", "selector", "podManagementPolicy", "volumeClaimTemplates"):
        assert after.get(field) == before.get(field), field


if __name__ == "__main__":
    run_tests(two_orchestrators_elect_by_three_members, members_know_each_other, a_lost_leader_is_followed_in_time,
              only_orchestrators_reach_the_store, no_two_members_share_a_node_that_another_one_could_give,
              one_member_is_evicted_at_a_time, it_can_be_applied_to_a_base_that_runs)
