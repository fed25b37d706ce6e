"""The values of the Helm chart, for tests: the files, and how Helm puts them together."""
import os

import yaml

from manifests import ROOT

HELM = os.path.join(ROOT, "deploy", "helm")
CHART = os.path.join(HELM, "skein")
# values-NAME.yaml and the kustomization that it equals; None: only values.yaml.
OVERLAYS = {None: "base", "demo": "overlays/demo", "ha": "overlays/ha", "gpu": "overlays/gpu", "observed": "examples/observed",
            "weights-pvc": "examples/weights-pvc", "weights-hostpath": "examples/weights-hostpath",
            "weights-image": "examples/weights-image", "jobs": "examples/jobs", "tls": "examples/tls", "node-pods": "examples/node-pods"}


def merged(old, new):
    """Merges like Helm's --values: maps key by key; null removes a key; everything else is replaced."""
    out = dict(old)
    for key, value in new.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        else:
            out[key] = value
    return out


def load(name):
    with open(os.path.join(CHART, name), encoding="utf-8") as file:
        return yaml.safe_load(file) or {}
