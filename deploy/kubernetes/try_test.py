#!/usr/bin/env python3
"""What deploy/kubernetes/try computes, without a cluster: names, rules of policies, manifests for 1.20, arguments, replicas.

With SKEIN_TRY_KUBERNETES=1 (and root) the whole trial runs, too; else its place says that it was skipped.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "try.d"), os.path.join(HERE, "..", "..", "tests", "cluster")]
sys.dont_write_bytecode = True
import arguments  # noqa: E402  pylint: disable=wrong-import-position
import autoscaler  # noqa: E402  pylint: disable=wrong-import-position
import load  # noqa: E402  pylint: disable=wrong-import-position
import manifests  # noqa: E402  pylint: disable=wrong-import-position
import names  # noqa: E402  pylint: disable=wrong-import-position
import policy  # noqa: E402  pylint: disable=wrong-import-position
import prometheus  # noqa: E402  pylint: disable=wrong-import-position
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

TRY = os.path.join(HERE, "try")


def call(*given):
    done = subprocess.run([TRY, *given], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def help_names_every_step_and_bad_arguments_are_refused():
    code, out, _ = call("--list")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == list(arguments.STEPS), out
    for given, said in ((("--step", "dance"), "no step 'dance'"), (("--step",), "--step needs a value"), (("demo",), "unknown argument 'demo'"),
                        (("--bin", "/no/such"), "no folder '/no/such'"), (("--down", "--keep"), "goes with no other argument")):
        code, out, err = call(*given)
        assert code == 2 and said in err and not out and len(err.splitlines()) == 1, (given, code, out, err)


def steps_come_in_order_with_what_they_need():
    assert arguments.chosen([]) == list(arguments.STEPS)
    assert arguments.chosen(["quota", "scale-out"]) == ["ha", "scale-out", "quota"]
    assert arguments.chosen(["demo"]) == ["demo"]


def service(name, address):
    return {"metadata": {"name": name, "namespace": "skein"}, "spec": {"clusterIP": address}}


def endpoints(name, *addresses):
    return {"metadata": {"name": name, "namespace": "skein"}, "subsets": [{"addresses": list(addresses)}]}


def names_follow_services_and_endpoints():
    lines = names.hosts([service("router", "10.96.0.7"), service("decode", "None")],
                        [endpoints("router", {"ip": "10.244.1.2"}),
                         endpoints("decode", {"ip": "10.244.1.3", "hostname": "decode-0"}, {"ip": "10.244.2.3"})])
    assert lines == ["10.244.1.3 decode-0.decode.skein.svc.cluster.local", "10.244.1.3 decode.skein.svc.cluster.local",
                     "10.244.2.3 decode.skein.svc.cluster.local", "10.96.0.7 router.skein.svc.cluster.local"], lines
    assert names.hosts([], [{"metadata": {"name": "x", "namespace": "y"}, "subsets": None}]) == []


def pod(name, ip, ports=(), namespace="skein", phase="Running"):
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"component": name}}, "status": {"podIP": ip, "phase": phase},
            "spec": {"containers": [{"ports": [{"name": n, "containerPort": p} for n, p in ports]}]}}


def a_policy(spec):
    return {"metadata": {"name": "p", "namespace": "skein"}, "spec": spec}


def rules_deny_what_no_policy_allows():
    pods = [pod("router", "10.244.1.2", [("http", 8000)]), pod("decode", "10.244.2.2"), pod("old", "10.244.2.9", phase="Succeeded"),
            pod("other", "10.244.1.9", namespace="elsewhere")]
    policies = [a_policy({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
                a_policy({"podSelector": {"matchLabels": {"component": "router"}}, "ingress": [{"ports": [{"port": "http"}]}]}),
                a_policy({"podSelector": {"matchLabels": {"component": "decode"}}, "policyTypes": ["Ingress"], "ingress": [
                    {"from": [{"podSelector": {"matchLabels": {"component": "router"}}}], "ports": [{"port": 7300}]},
                    {"from": [{"podSelector": {"matchLabels": {"component": "none"}}}], "ports": [{"port": 1}]}]})]
    text = policy.Rules(policies, pods, [{"metadata": {"name": "skein"}}]).text()
    assert "ingress ip daddr 10.244.1.2 tcp dport 8000 return" in text, text
    assert "ingress ip daddr 10.244.2.2 ip saddr { 10.244.1.2 } tcp dport 7300 return" in text, text
    assert text.count(" drop") == 4 and "dport 1 " not in text and "10.244.1.9" not in text and "10.244.2.9" not in text, text


def selectors_follow_the_api():
    assert policy.selects({}, {"a": "b"}) and policy.selects({}, None) and not policy.selects(None, {})
    said = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "DoesNotExist"}]}
    assert policy.selects(said, {"a": "b"}) and not policy.selects(said, {"a": "b", "c": ""}) and not policy.selects(said, {})


def manifests_for_1_20_say_what_they_changed():
    probe = {"grpc": {"port": 7100}, "periodSeconds": 2}
    given = [{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "r"}, "spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}},
             {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "m"}},
             {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
              "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i", "readinessProbe": probe}]}}}}]
    documents, notes = manifests.for_1_20(given)
    assert [d["apiVersion"] for d in documents] == ["policy/v1beta1", "apps/v1"] and documents[0]["spec"] == {}, documents
    spread = {"template": {"spec": {"containers": [], "topologySpreadConstraints": [
        {"topologyKey": "h", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}]}}}
    spread, _ = manifests.for_1_20([{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spread}])
    assert spread[0]["spec"]["template"]["spec"]["topologySpreadConstraints"] == [{"topologyKey": "h", "whenUnsatisfiable": "ScheduleAnyway"}], spread
    changed = documents[1]["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    assert changed == {"tcpSocket": {"port": 7100}, "periodSeconds": 2} and "grpc" in probe and len(notes) == 4, (changed, notes)


def claims_get_volumes_and_an_image_is_replaced():
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    pods = {"spec": {"containers": [{"name": "c", "image": "registry.k8s.io/etcd:3.5"}]}}
    given = [{"kind": "StatefulSet", "metadata": {"name": "e"}, "spec": {"replicas": 2, "template": pods, "volumeClaimTemplates": [claim]}},
             {"kind": "Service", "metadata": {"name": "s"}, "spec": {}}]
    volumes = manifests.volumes_for(given, "/v")
    assert [(v["metadata"]["name"], v["spec"]["hostPath"]["path"]) for v in volumes] == [("e-0", "/v/e-0"), ("e-1", "/v/e-1")], volumes
    assert all(v["spec"]["capacity"] == {"storage": "1Gi"} and v["spec"]["accessModes"] == ["ReadWriteOnce"] for v in volumes), volumes
    changed, notes = manifests.with_image(given, "registry.k8s.io/etcd", "own:1")
    assert changed[0]["spec"]["template"]["spec"]["containers"][0]["image"] == "own:1" and len(notes) == 1, (changed, notes)
    assert pods["spec"]["containers"][0]["image"] == "registry.k8s.io/etcd:3.5" and manifests.with_image(given, "other", "own:1") == (given, [])


def failures_are_counted_by_kind():
    good = {"failure": "", "first_s": 0.5, "tokens": 8, "seconds": 1.0, "long": False}
    bad = {"failure": "HTTP 503: no", "first_s": None, "tokens": 0, "seconds": 0.0, "long": False}
    lines = [dict(good, began=0.0, long=True), dict(bad, began=2.0), dict(bad, began=3.5, long=True), dict(good, began=3.0), dict(bad, began=9.0)]
    assert load.summary(lines) == {"requests": 5, "failed": 3, "failures": {"HTTP 503: no": 3}, "first_token_max_s": 0.5, "tokens": 16,
                                   "outage_s": 1.5, "long": 2, "long_failed": 1, "long_max_s": 1.0}, load.summary(lines)


def only_annotated_pods_that_run_are_scraped():
    told = pod("router", "10.244.1.2")
    told["metadata"]["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": "8001"}
    told["spec"]["nodeName"] = "node1"
    ended = dict(told, status={"podIP": "10.244.1.3", "phase": "Succeeded"})
    found = prometheus.targets_of([told, ended, pod("other", "10.244.1.9")])
    assert found == [{"targets": ["10.244.1.2:8001"], "labels": {"namespace": "skein", "pod": "router", "node": "node1"}}], found


def replicas_follow_the_documented_formula():
    assert autoscaler.replicas(2, 4.0, 2.0, 1, 10) == 4 and autoscaler.replicas(2, 2.1, 2.0, 1, 10) == 2
    assert autoscaler.replicas(4, 0.0, 2.0, 1, 10) == 1 and autoscaler.replicas(8, 9.0, 2.0, 1, 10) == 10
    rule = {"name": {"matches": "^vllm:(.*)$", "as": "vllm_${1}"},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"}
    series = "vllm:num_requests_waiting"
    assert autoscaler.metric_name(rule, series) == "vllm_num_requests_waiting"
    assert autoscaler.query_of(rule, series, "skein", ["b", "a"]) == 'sum(vllm:num_requests_waiting{namespace="skein",pod=~"a|b"}) by (pod)'
    assert autoscaler.quantity("800m") == 0.8 and autoscaler.quantity(2) == 2


def the_whole_trial():
    if os.environ.get("SKEIN_TRY_KUBERNETES") != "1":
        return "skipped: set SKEIN_TRY_KUBERNETES=1 to deploy on a real Kubernetes (root; about half an hour)"
    done = subprocess.run([TRY], stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, "deploy/kubernetes/try ended with %d" % done.returncode
    return None


if __name__ == "__main__":
    run_tests(help_names_every_step_and_bad_arguments_are_refused, steps_come_in_order_with_what_they_need,
              names_follow_services_and_endpoints, rules_deny_what_no_policy_allows, selectors_follow_the_api,
              manifests_for_1_20_say_what_they_changed, claims_get_volumes_and_an_image_is_replaced, failures_are_counted_by_kind,
              only_annotated_pods_that_run_are_scraped, replicas_follow_the_documented_formula,
              the_whole_trial)
