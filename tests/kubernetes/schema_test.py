#!/usr/bin/env python3
"""Every manifest is valid under the strict schemas of Kubernetes 1.36 and of other projects' kinds; faulty ones are not."""
import glob
import os
import re
import subprocess
import sys
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from helm_values import CHART, OVERLAYS, load, merged  # noqa: E402
from manifests import ROOT, kustomizations, objects, rendered  # noqa: E402

FAULTS = {
    "a misspelt field": ("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: x}\nspec: {minAvailible: 1}\n",
                         "minAvailible"),
    "a removed version": ("apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: x}\nspec: {minAvailable: 1}\n",
                          "there is no such kind"),
    "a wrong type": ('apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: "80"}]}\n', "must be integer"),
    "a missing field": ("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x}\nspec: {replicas: 1}\n",
                        "must have required property 'selector'"),
    "a misspelt field of the Prometheus operator": (
        "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: x}\n"
        "spec: {selector: {}, endpoints: [{port: admin, intervall: 5s}]}\n", "intervall"),
    "an InferencePool without the picker's port": (
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: x}\n"
        "spec: {selector: {matchLabels: {a: b}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: p}}\n", "'port'"),
    "a DisaggregatedSet of one role": (
        "apiVersion: disaggregatedset.x-k8s.io/v1\nkind: DisaggregatedSet\nmetadata: {name: x}\n"
        "spec: {roles: [{name: prefill}]}\n", "fewer than 2 items"),
}


# Where the published CustomResourceDefinitions of the kinds in third_party/interfaces are, if
# present. They are not in this repository.
PUBLISHED = os.environ.get("SKEIN_CRDS") or os.path.join(os.environ.get("SKEIN_SHARED", ""), "interfaces")


def validate(texts, published=""):
    """(exit status, output) of schema.mjs for {name: text}, with the published definitions of a folder, too."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, text in texts.items():
            files.append(os.path.join(folder, name.replace("/", "_") + ".yaml"))
            with open(files[-1], "w", encoding="utf-8") as file:
                file.write(text)
        environment = dict(os.environ, SKEIN_INTERFACES=os.path.join(ROOT, "third_party", "interfaces"),
                           SKEIN_CRDS=published)
        done = subprocess.run(["node", os.path.join(HERE, "schema.mjs")] + files, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=240)
        return done.returncode, done.stdout


def every_manifest_holds_its_schema():
    status, output = validate({folder: rendered(folder) for folder in kustomizations()})
    assert status == 0, output
    print(output.splitlines()[-1])
    assert output.startswith("Kubernetes 1.36"), output


def faults_are_found():
    _, output = validate({what: text for what, (text, _) in FAULTS.items()})
    for what, (_, said) in FAULTS.items():
        lines = [line for line in output.splitlines() if what + ".yaml" in line]
        assert any(said in line for line in lines), "%s: %s" % (what, output)


def examples_hold_the_published_definitions():
    """Also finds what this repository's reduced schemas omit or have wrong."""
    if not glob.glob(os.path.join(PUBLISHED, "*.yaml")):
        return "skip: no CustomResourceDefinitions in SKEIN_CRDS"
    texts = {folder: rendered(folder) for folder in ("examples/gateway", "examples/disaggregated-set")}
    for folder in list(texts):
        texts["unknown field/" + folder] = re.sub(r"^( +)(endpointPickerRef|roles):", r"\1colour: red\n\1\2:", texts[folder], flags=re.M)
    _, output = validate(texts, PUBLISHED)  # once: it takes a while to read them
    faults = [line for line in output.splitlines() if "/tmp" in line or ".yaml:" in line]
    assert len(faults) == 4 and all("unknown field" in line and "colour" in line for line in faults), "two schemas refuse each: " + output
    assert " 0 of them published" not in output, output
    return None


def disaggregated_sets_roles_agree():
    """Rules that the published type states in prose: replicas of all roles or of none, no partition."""
    (document,) = [d for d in objects("examples/disaggregated-set") if d["kind"] == "DisaggregatedSet"]
    specs = [role["spec"] for role in document["spec"]["roles"]]
    assert len({spec.get("replicas", 0) > 0 for spec in specs}) == 1, specs
    assert not any("partition" in spec.get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {}) for spec in specs)


WRONG_VALUES = {"replica": {"router": {"replica": 2}}, "must be integer": {"router": {"replicas": "two"}},
                "pattern": {"model": "my-model"}, "must be string": {"image": {"tag": 1}}}


def helms_values_hold_their_schema():
    values = load("values.yaml")
    right = {"values-%s" % name: merged(values, load("values-%s.yaml" % name)) if name else values for name in OVERLAYS}
    wrong = {"wrong-%d" % i: merged(values, fault) for i, fault in enumerate(WRONG_VALUES.values())}
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, content in {**right, **wrong}.items():
            files.append(os.path.join(folder, name + ".yaml"))
            with open(files[-1], "w", encoding="utf-8") as file:
                yaml.safe_dump(content, file)
        done = subprocess.run(["node", os.path.join(HERE, "schema.mjs"), "--schema", os.path.join(CHART, "values.schema.json")] + files,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 1 and "/values-" not in done.stdout, done.stdout
    for i, said in enumerate(WRONG_VALUES):
        lines = [line for line in done.stdout.splitlines() if "wrong-%d.yaml" % i in line]
        assert any(said in line for line in lines), (said, done.stdout)


if __name__ == "__main__":
    run_tests(helms_values_hold_their_schema, disaggregated_sets_roles_agree, every_manifest_holds_its_schema, faults_are_found,
              examples_hold_the_published_definitions)
