"""What Kubernetes 1.20 and this trial lack: turns manifests for today's Kubernetes into ones that 1.20 knows, and says what was changed.

Pure functions of documents (dictionaries as YAML gives them); no file, no cluster.
"""
import copy

OLD_VERSIONS = {("policy/v1", "PodDisruptionBudget"): "policy/v1beta1", ("autoscaling/v2", "HorizontalPodAutoscaler"): "autoscaling/v2beta2"}
# Kinds of operators that the trial does not install.
FOREIGN_GROUPS = ("monitoring.coreos.com/", "inference.networking", "gateway.networking.k8s.io/", "leaderworkerset.x-k8s.io/", "disaggregatedset")
NEWER_SPREAD = ("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys")
NEWER_SPEC = {"PodDisruptionBudget": ("unhealthyPodEvictionPolicy",), "StatefulSet": ("minReadySeconds", "persistentVolumeClaimRetentionPolicy", "ordinals"),
              "Service": ("internalTrafficPolicy", "trafficDistribution")}


def for_1_20(documents):
    """Returns (documents, notes); the given documents stay as they are."""
    out, notes = [], []
    for document in copy.deepcopy(documents):
        name = "%s %s" % (document["kind"], document["metadata"]["name"])
        if any(group in document["apiVersion"] for group in FOREIGN_GROUPS):
            notes.append("%s: left out, no such kind without its operator" % name)
            continue
        old = OLD_VERSIONS.get((document["apiVersion"], document["kind"]))
        if old:
            notes.append("%s: %s instead of %s" % (name, old, document["apiVersion"]))
            document["apiVersion"] = old
        spec = document.get("spec", {})
        notes += _drop(spec, NEWER_SPEC.get(document["kind"], ()), name)
        if "template" in spec:
            notes += _pod(spec["template"]["spec"], name)
        out.append(document)
    return out, notes


def with_image(documents, name, image):
    """The documents with `image` in place of the image whose name without a tag is `name`, and notes."""
    out, notes = copy.deepcopy(documents), []
    for document in out:
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if container["image"].rpartition(":")[0] == name:
                notes.append("%s %s: %s instead of %s" % (document["kind"], document["metadata"]["name"], image, container["image"]))
                container["image"] = image
    return out, notes


def volumes_for(documents, folder):
    """PersistentVolumes, folders below `folder` that both nodes see, for the claims that the StatefulSets make; there is no storage class."""
    return [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "%s-%d" % (document["metadata"]["name"], i)},
             "spec": {"accessModes": claim["spec"]["accessModes"], "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                      "persistentVolumeReclaimPolicy": "Retain",
                      "hostPath": {"path": "%s/%s-%d" % (folder, document["metadata"]["name"], i), "type": "Directory"}}}
            for document in documents if document["kind"] == "StatefulSet"
            for claim in document["spec"].get("volumeClaimTemplates", []) for i in range(document["spec"]["replicas"])]


def _drop(where, fields, name):
    found = [f for f in fields if f in where]
    for field in found:
        del where[field]
    return ["%s: without %s" % (name, field) for field in found]


def _pod(pod, name):
    notes = []
    for spread in pod.get("topologySpreadConstraints", []):
        dropped = _drop(spread, NEWER_SPREAD, name + ": topologySpreadConstraints")
        if dropped and spread["whenUnsatisfiable"] == "DoNotSchedule":
            # 1.20 counts a cordoned node as an empty place, so nothing could leave it.
            spread["whenUnsatisfiable"] = "ScheduleAnyway"
            dropped.append(name + ": topologySpreadConstraints: ScheduleAnyway instead of DoNotSchedule")
        notes += dropped
    for container in pod["containers"] + pod.get("initContainers", []):
        notes += _drop(container, ("resizePolicy", "restartPolicy"), name)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            notes += _probe(container.get(probe), "%s: %s" % (name, probe))
        hook = container.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            del container["lifecycle"]["preStop"]
            notes.append("%s: without preStop sleep" % name)
    return notes


def _probe(probe, name):
    if not probe:
        return []
    notes = _drop(probe, ("terminationGracePeriodSeconds",), name)
    if "grpc" in probe:
        probe["tcpSocket"] = {"port": probe.pop("grpc")["port"]}
        notes.append(name + ": tcpSocket instead of grpc")
    return notes

