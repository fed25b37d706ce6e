#!/usr/bin/env python3
"""The Helm chart, rendered with Go's templates, equals the overlays; with helm itself if installed."""
import copy
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from helm_values import CHART, HELM, OVERLAYS, load, merged  # noqa: E402
from manifests import ROOT, load_all, named, objects  # noqa: E402

def go():
    found = [shutil.which("go")] + sorted(glob.glob("/usr/lib/go-*/bin/go"))
    return next((path for path in found if path), None)


def comparable(documents):
    """{(kind, name): object} without the namespace's own object; variables in any order."""
    out = named([copy.deepcopy(d) for d in documents if d["kind"] != "Namespace"])
    for document in out.values():
        if document["kind"] in ("Deployment", "StatefulSet"):
            for container in document["spec"]["template"]["spec"]["containers"]:
                container["env"] = sorted(container.get("env", []), key=lambda e: e["name"])
    return out


def same(name, chart, overlay):
    assert set(chart) == set(overlay), "values-%s: %s" % (name, set(chart) ^ set(overlay))
    for key, document in overlay.items():
        assert chart[key] == document, "values-%s: %s\n%s\n%s" % (name, key, yaml.safe_dump(chart[key]), yaml.safe_dump(document))


def the_chart_is_up_to_date():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(HELM, "generate"), "--output", folder], check=True, stdout=subprocess.DEVNULL)
        made = {os.path.relpath(os.path.join(d, f), folder) for d, _, files in os.walk(folder) for f in files}
        there = {os.path.relpath(os.path.join(d, f), ROOT) for d, _, files in os.walk(CHART) for f in files}
        assert made == there, made ^ there
        for path in made:
            with open(os.path.join(folder, path), encoding="utf-8") as new, open(os.path.join(ROOT, path), encoding="utf-8") as old:
                assert new.read() == old.read(), "%s is not what deploy/helm/generate makes" % path


def the_chart_equals_the_overlays():
    compiler = go()
    if compiler is None:
        return "skip: there is no Go to render the chart's templates with"
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "helm_render")
        environment = dict(os.environ, GO111MODULE="off", CGO_ENABLED="0", GOCACHE=os.path.join(folder, "cache"), HOME=folder)
        subprocess.run([compiler, "build", "-o", program, os.path.join(HERE, "helm_render.go")], check=True, env=environment)
        for name, overlay in OVERLAYS.items():
            values = merged(load("values.yaml"), load("values-%s.yaml" % name) if name else {})
            same(name, comparable(chart_of(program, values)), comparable(objects(overlay)))
        node_pods_are_scaled_by_hand(program)
        roles_may_have_images_of_their_own(program)
        pods_get_the_cluster_token_from_a_secret(program)
        pods_without_mounts_of_their_own_get_certificates(program)
    return None


def chart_of(program, values):
    done = subprocess.run([program, CHART], input=json.dumps({"Values": values, "Release": {"Name": "s", "Namespace": "skein"}}),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return [d for d in load_all(done.stdout) if d]


def node_pods_are_scaled_by_hand(program):
    """Autoscaling with node pods: only routers are scaled, and the number of node pods stays as configured."""
    wanted = {"autoscaling": {"enabled": True}, "node": {"replicas": 4}}
    chart = named(chart_of(program, merged(merged(load("values.yaml"), load("values-gpu.yaml")), wanted)))
    assert {name for kind, name in chart if kind == "HorizontalPodAutoscaler"} == {"router"}, sorted(chart)
    assert chart[("StatefulSet", "node")]["spec"]["replicas"] == 4, chart[("StatefulSet", "node")]["spec"]
    assert "replicas" not in chart[("Deployment", "router")]["spec"]


def roles_may_have_images_of_their_own(program):
    """And a registry that needs a secret."""
    wanted = {"image": {"repository": "registry/skein"}, "imagePullSecrets": [{"name": "key"}], "decode": {"image": "registry/other:1"}}
    chart = named(chart_of(program, merged(load("values.yaml"), wanted)))
    for (kind, name), document in chart.items():
        if kind in ("Deployment", "StatefulSet"):
            pod = document["spec"]["template"]["spec"]
            image = pod["containers"][0]["image"]
            assert image == "registry/other:1" if name == "decode" else image.startswith("registry/skein:"), (name, image)
            assert pod["imagePullSecrets"] == [{"name": "key"}], (name, pod)


def pods_get_the_cluster_token_from_a_secret(program):
    """Where TLS asks for no certificates; and Secrets may have names of one's own."""
    wanted = {"tls": {"enabled": True, "mtls": "off", "clusterTokenSecret": "the-token", "secrets": {"router": "mine"}}}
    chart = named(chart_of(program, merged(load("values.yaml"), wanted)))
    for role in ("router", "prefill"):
        pod = chart[("Deployment" if role == "router" else "StatefulSet", role)]["spec"]["template"]["spec"]
        env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
        assert env["SKEIN_MTLS"] == "off" and env["SKEIN_CLUSTER_TOKEN_FILE"] == "/etc/skein/cluster-token/token", env
        secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        assert secrets == {"tls": "mine" if role == "router" else "skein-prefill-tls", "cluster-token": "the-token"}, secrets
        mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
        assert mounts["cluster-token"] == "/etc/skein/cluster-token", mounts


def pods_without_mounts_of_their_own_get_certificates(program):
    wanted = {"tls": {"enabled": True}, "router": {"volumes": [], "volumeMounts": []}}
    values = merged(load("values.yaml"), wanted)
    values["router"]["podAnnotations"] = {}
    template = named(chart_of(program, values))[("Deployment", "router")]["spec"]["template"]
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["tls"], template
    assert [mount["name"] for mount in template["spec"]["containers"][0]["volumeMounts"]] == ["tls"], template
    assert template["metadata"]["annotations"] == {"prometheus.io/scheme": "https"}, template


def helm_says_the_same():
    helm = shutil.which("helm")
    if helm is None:
        return "skip: there is no helm"
    for name, overlay in OVERLAYS.items():
        more = ["--values", os.path.join(CHART, "values-%s.yaml" % name)] if name else []
        done = subprocess.run([helm, "template", "s", CHART, "--namespace", "skein"] + more, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        same(name, comparable([d for d in load_all(done.stdout) if d]), comparable(objects(overlay)))
    return None


if __name__ == "__main__":
    run_tests(the_chart_is_up_to_date, the_chart_equals_the_overlays, helm_says_the_same)
