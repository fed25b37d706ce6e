"""The rendered manifests, for tests: the kustomizations and their objects."""
import functools
import glob
import os
import subprocess
import sys

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KUBERNETES = os.path.join(ROOT, "deploy", "kubernetes")


def kustomizations():
    """The folders that can be applied: all with a kustomization, except components, which only change others."""
    found = glob.glob(os.path.join(KUBERNETES, "**", "kustomization.yaml"), recursive=True)
    folders = sorted(os.path.relpath(os.path.dirname(f), KUBERNETES) for f in found)
    folders = [f for f in folders if not f.startswith(("components", "try"))]
    assert "base" in folders and "overlays/demo" in folders, folders
    return folders


@functools.lru_cache(maxsize=None)
def rendered(folder):
    """The text that deploy/kubernetes/render prints."""
    return subprocess.run([sys.executable, os.path.join(KUBERNETES, "render"), os.path.join(KUBERNETES, folder)],
                          check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


@functools.lru_cache(maxsize=None)
def objects(folder):
    """Its objects; they are shared, so copy what you change."""
    return [d for d in load_all(rendered(folder)) if d]


def load_all(text):
    return yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def named(documents):
    """{(kind, name): object}"""
    out = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    assert len(out) == len(documents), "two objects of one kind have one name"
    return out


def workloads(documents):
    """[(name, pod spec, pod labels, pod template)] of everything that makes pods; a role of a DisaggregatedSet by its name."""
    templates = []
    for d in documents:
        if d["kind"] in ("Deployment", "StatefulSet"):
            templates.append((d["metadata"]["name"], d["spec"]["template"]))
        if d["kind"] == "DisaggregatedSet":
            templates += [(r["name"], r["spec"]["leaderWorkerTemplate"]["workerTemplate"]) for r in d["spec"]["roles"]]
    return [(name, t["spec"], t["metadata"]["labels"], t) for name, t in templates]


def skeins_workloads(documents):
    """The same without etcd, which is no program of Skein."""
    return [workload for workload in workloads(documents) if workload[0] != "etcd"]
