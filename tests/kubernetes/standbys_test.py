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
from manifests import KUBERNETES, load_all, named  # noqa: E402
from manifests_test import MUST_TALK, flag_defaults, flags_of, pairs  # noqa: E402

FAIL_OVER_S = 3
ETCD_LOOKS_S = 0.5  # how often it looks for leases that have ended


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
    members = ["etcd-%d=http://etcd-%d.%s:2380" % (i, i, spec["serviceName"]) for i in range(spec["replicas"])]
    assert flags["initial-cluster"].split(",") == members, flags
    assert flags["initial-advertise-peer-urls"] == "http://$(POD_NAME).etcd:2380", flags


def a_lost_leader_is_followed_in_time():
    """By etcd's rule for the shortest time to live; etcd wants an election timeout of at least five heartbeats."""
    _, _, flags = container("etcd")
    election_ms, heartbeat_ms = int(flags["election-timeout"]), int(flags["heartbeat-interval"])
    assert election_ms >= 5 * heartbeat_ms, flags
    lease_s = float(container("orchestrator")[2]["leader-lease-s"])
    ttl_s = max(math.ceil(lease_s), math.ceil(1.5 * election_ms / 1000))
    assert ttl_s + ETCD_LOOKS_S < FAIL_OVER_S, ttl_s
    assert ttl_s >= 2 * election_ms / 1000, "a change of etcd's leader would cost the lease"


def only_orchestrators_reach_the_store():
    names = {"%s %s 53/%s" % (role, to, p) for role in ("orchestrator", "etcd") for to in ("dns", "169.254.20.10/32") for p in ("TCP", "UDP")}
    assert pairs(documents()) == MUST_TALK | names | {"orchestrator etcd 2379/TCP", "etcd etcd 2380/TCP"}, pairs(documents()) ^ MUST_TALK


if __name__ == "__main__":
    run_tests(two_orchestrators_elect_by_three_members, members_know_each_other, a_lost_leader_is_followed_in_time,
              only_orchestrators_reach_the_store)
