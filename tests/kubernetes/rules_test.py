#!/usr/bin/env python3
"""docs/kubernetes_rules.md: every manifest meets the rules listed as met; each rule is met, argued, or not applicable."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from manifests import ROOT, kustomizations, named, objects, workloads  # noqa: E402


def selects(selector, labels):
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "In", rule
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


class Manifests:
    """The objects of one kustomization."""

    def __init__(self, folder):
        self.folder = folder
        self.documents = objects(folder)
        self.named = named(self.documents)
        self.workloads = workloads(self.documents)
        self.pods = [pod for _, pod, _, _ in self.workloads]
        self.containers = [c for pod in self.pods for c in pod["containers"] + pod.get("initContainers", [])]
        self.labels = [labels for _, _, labels, _ in self.workloads]

    def of(self, kind):
        return [d for d in self.documents if d["kind"] == kind]

    def volumes(self, kind):
        return [v[kind] for pod in self.pods for v in pod.get("volumes", []) if kind in v]


# One function per requirement of a rule; True: it is met everywhere.

def pinned_tag(m):
    return all(re.fullmatch(r"[^:]+:(?!latest$)[\w.-]+", c["image"]) for c in m.containers)


def no_host_namespaces(m):
    return not any(pod.get(f) for pod in m.pods for f in ("hostIPC", "hostPID", "hostNetwork"))


def no_host_path(m):
    return m.folder == "examples/weights-hostpath" or not m.volumes("hostPath")


def host_paths_are_models_and_read_only(m):
    names = {(i, v["name"]) for i, pod in enumerate(m.pods) for v in pod.get("volumes", []) if "hostPath" in v}
    mounts = [mount for i, pod in enumerate(m.pods) for c in pod["containers"] for mount in c.get("volumeMounts", [])
              if (i, mount["name"]) in names]
    return all(v["path"] == "/var/lib/skein/models" for v in m.volumes("hostPath")) and all(x.get("readOnly") for x in mounts)


def drops_all_capabilities(m):
    return all(c["securityContext"]["capabilities"] == {"drop": ["ALL"]} for c in m.containers)


def variables_once(m):
    names = [[e["name"] for e in c.get("env", [])] for c in m.containers]
    return all(len(set(n)) == len(n) for n in names)


def no_secret_in_variables(m):
    entries = [e for c in m.containers for e in c.get("env", [])]
    word = re.compile(r"secret|password|token$|api_?key$", re.I)
    return not any("secretKeyRef" in e.get("valueFrom", {}) or word.search(e["name"]) for e in entries) and not any(
        c.get("envFrom") for c in m.containers)


def services_are_internal(m):
    return all(s["spec"].get("type", "ClusterIP") == "ClusterIP" and not s["spec"].get("externalIPs") for s in m.of("Service"))


def ports_are_named_and_unprivileged(m):
    ports = [p for c in m.containers for p in c["ports"]]
    return all(re.fullmatch(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?", p["name"]) and p["containerPort"] > 1024
               and "hostPort" not in p for p in ports)


def probes_use_listed_ports(m):
    return all(c[probe]["httpGet"]["port"] in [p["name"] for p in c["ports"]]
               for c in m.containers for probe in ("startupProbe", "livenessProbe", "readinessProbe"))


def selectors_match(m):
    return all(selects(d["spec"]["selector"], d["spec"]["template"]["metadata"]["labels"])
               for d in m.documents if d["kind"] in ("Deployment", "StatefulSet"))


def services_have_pods(m):
    # The example's policy is for the picker's pods, which come from another project's manifests.
    return m.folder == "examples/gateway" or all(any(s["spec"]["selector"].items() <= labels.items() for labels in m.labels) for s in m.of("Service"))


def policies_have_pods(m):
    return not m.pods or all(any(selects(p["spec"]["podSelector"], labels) for labels in m.labels) for p in m.of("NetworkPolicy"))


def policies_peers_have_pods(m):
    if m.folder == "examples/gateway":  # its peers are the base's routers
        return True
    peers = [peer for p in m.of("NetworkPolicy") for rule in p["spec"].get("ingress", []) + p["spec"].get("egress", [])
             for peer in rule.get("from", []) + rule.get("to", [])]
    return all(any(selects(peer["podSelector"], labels) for labels in m.labels)
               for peer in peers if set(peer) == {"podSelector"})


def every_pod_has_policies(m):
    return all(any(selects(p["spec"]["podSelector"], labels) for p in m.of("NetworkPolicy")) for labels in m.labels)


def autoscalers_have_targets(m):
    return all((h["spec"]["scaleTargetRef"]["kind"], h["spec"]["scaleTargetRef"]["name"]) in m.named
               for h in m.of("HorizontalPodAutoscaler"))


def autoscalers_have_room(m):
    return all(2 <= h["spec"]["minReplicas"] < h["spec"]["maxReplicas"] for h in m.of("HorizontalPodAutoscaler"))


def monitors_have_services(m):
    return all(any(selects(s["spec"]["selector"], service["metadata"]["labels"]) for service in m.of("Service"))
               for s in m.of("ServiceMonitor"))


def stable_apis(m):
    native = [d["apiVersion"] for d in m.documents if "." not in d["apiVersion"] or d["apiVersion"].split("/")[0].endswith(".k8s.io")]
    return not any("beta" in v or "alpha" in v for v in native)


def has_probes(m):
    return all({"startupProbe", "livenessProbe", "readinessProbe"} <= set(c) for c in m.containers)


def read_only_root(m):
    return all(c["securityContext"]["readOnlyRootFilesystem"] is True for c in m.containers)


def rolling_updates(m):
    return all(d["spec"].get("strategy", {}).get("type", "RollingUpdate") == "RollingUpdate"
               and d["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate" for d in m.documents
               if d["kind"] in ("Deployment", "StatefulSet"))


def own_service_accounts(m):
    return all(("ServiceAccount", pod["serviceAccountName"]) in m.named and pod["serviceAccountName"] != "default"
               and "serviceAccount" not in pod for pod in m.pods)


def no_tokens(m):
    return all(pod["automountServiceAccountToken"] is False for pod in m.pods) and all(
        a["automountServiceAccountToken"] is False for a in m.of("ServiceAccount"))


def budgets_allow_a_disruption(m):
    for budget in m.of("PodDisruptionBudget"):
        spec = budget["spec"]
        if "maxUnavailable" in spec:
            if spec["maxUnavailable"] < 1:
                return False
            continue
        for d in m.documents:
            if d["kind"] in ("Deployment", "StatefulSet") and d["metadata"]["name"] == budget["metadata"]["name"]:
                scaler = m.named.get(("HorizontalPodAutoscaler", d["metadata"]["name"]))
                count = d["spec"].get("replicas", scaler and scaler["spec"]["minReplicas"])
                if spec["minAvailable"] >= count:
                    return False
    return True


def budgets_let_unhealthy_pods_go(m):
    return all(b["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" for b in m.of("PodDisruptionBudget"))


def every_pod_has_a_budget(m):
    return all(any(selects(b["spec"]["selector"], labels) for b in m.of("PodDisruptionBudget")) for labels in m.labels)


def no_privileges(m):
    contexts = [c["securityContext"] for c in m.containers]
    return all(x["allowPrivilegeEscalation"] is False and not x.get("privileged") and "procMount" not in x
               and not x.get("windowsOptions") for x in contexts) and all(
                   s == {"name": "net.ipv4.ip_local_port_range", "value": "50000 60999"}
                   and any("nvidia.com/gpu" in c["resources"]["limits"] for c in pod["containers"])
                   for pod in m.pods for s in pod["securityContext"].get("sysctls", []))


def not_root(m):
    return all(pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 10000
               and pod["securityContext"]["runAsGroup"] > 10000 for pod in m.pods)


def seccomp(m):
    return all(pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"} for pod in m.pods)


def requests_and_limits(m):
    return all({"cpu", "memory"} <= set(c["resources"][kind]) for c in m.containers for kind in ("requests", "limits"))


def namespace_of_their_own(m):
    return all(d["metadata"].get("namespace") == "skein" for d in m.documents if d["kind"] != "Namespace")


def modest_roles(m):
    rules = [r for d in m.of("Role") + m.of("ClusterRole") for r in d["rules"]]
    text = [x for r in rules for x in r["apiGroups"] + r["resources"] + r["verbs"]]

    def may(verb):
        return {(d["metadata"]["name"], x) for d in m.of("Role") for r in d["rules"] if verb in r["verbs"] for x in r["resources"]}

    return ("*" not in text and "secrets" not in text and not {"pods/exec", "pods/attach"} & set(text)
            and may("create") <= {("skein-operator", "pods/portforward"), ("skein-operator", "pods/eviction"), ("skein-epp", "leases")}
            and may("delete") <= {("skein-operator", "pods")} and not may("deletecollection"))


def modest_bindings(m):
    bindings = m.of("RoleBinding") + m.of("ClusterRoleBinding")
    return not m.of("ClusterRoleBinding") and all(
        b["roleRef"]["kind"] == "Role" and b["roleRef"]["name"] in ("skein-operator", "skein-epp")
        and not any(s["name"].startswith("system:") for s in b["subjects"]) for b in bindings)


def no_host_aliases(m):
    return not any(pod.get("hostAliases") for pod in m.pods)


def no_config_maps(m):
    return not m.of("ConfigMap")


MET = {
    "kube-linter": {
        "access-to-create-pods": modest_roles, "access-to-secrets": modest_roles, "cluster-admin-role-binding": modest_bindings,
        "dangling-horizontalpodautoscaler": autoscalers_have_targets, "dangling-networkpolicy": policies_have_pods,
        "dangling-networkpolicypeer-podselector": policies_peers_have_pods, "dangling-service": services_have_pods,
        "dangling-servicemonitor": monitors_have_services, "default-service-account": own_service_accounts,
        "deprecated-service-account-field": own_service_accounts, "docker-sock": host_paths_are_models_and_read_only,
        "drop-net-raw-capability": drops_all_capabilities, "duplicate-env-var": variables_once,
        "env-var-secret": no_secret_in_variables, "exposed-services": services_are_internal, "host-ipc": no_host_namespaces,
        "host-network": no_host_namespaces, "host-pid": no_host_namespaces, "invalid-target-ports": ports_are_named_and_unprivileged,
        "latest-tag": pinned_tag, "liveness-port": probes_use_listed_ports, "mismatching-selector": selectors_match,
        "no-extensions-v1beta": stable_apis, "no-liveness-probe": has_probes, "no-read-only-root-fs": read_only_root,
        "no-readiness-probe": has_probes, "no-rolling-update-strategy": rolling_updates,
        "non-existent-service-account": own_service_accounts, "non-isolated-pod": every_pod_has_policies,
        "pdb-max-unavailable": budgets_allow_a_disruption, "pdb-min-available": budgets_allow_a_disruption,
        "pdb-unhealthy-pod-eviction-policy": budgets_let_unhealthy_pods_go, "privilege-escalation-container": no_privileges,
        "privileged-container": no_privileges, "privileged-ports": ports_are_named_and_unprivileged,
        "read-secret-from-env-var": no_secret_in_variables, "readiness-port": probes_use_listed_ports, "run-as-non-root": not_root,
        "sensitive-host-mounts": host_paths_are_models_and_read_only, "ssh-port": ports_are_named_and_unprivileged,
        "startup-port": probes_use_listed_ports, "unsafe-proc-mount": no_privileges,
        "unset-cpu-requirements": requests_and_limits, "unset-memory-requirements": requests_and_limits,
        "use-namespace": namespace_of_their_own, "wildcard-in-rules": modest_roles,
        "writable-host-mount": host_paths_are_models_and_read_only,
    },
    "Polaris": {
        "automountServiceAccountToken": no_tokens, "clusterrolePodExecAttach": modest_roles,
        "clusterrolebindingClusterAdmin": modest_bindings, "clusterrolebindingPodExecAttach": modest_bindings,
        "cpuLimitsMissing": requests_and_limits, "cpuRequestsMissing": requests_and_limits,
        "dangerousCapabilities": drops_all_capabilities, "hostIPCSet": no_host_namespaces, "hostNetworkSet": no_host_namespaces,
        "hostPIDSet": no_host_namespaces, "hostPathSet": no_host_path, "hostPortSet": ports_are_named_and_unprivileged,
        "hostProcess": no_privileges, "hpaMaxAvailability": autoscalers_have_room, "hpaMinAvailability": autoscalers_have_room,
        "insecureCapabilities": drops_all_capabilities, "linuxHardening": seccomp, "livenessProbeMissing": has_probes,
        "memoryLimitsMissing": requests_and_limits, "memoryRequestsMissing": requests_and_limits,
        "missingNetworkPolicy": every_pod_has_policies, "missingPodDisruptionBudget": every_pod_has_a_budget,
        "notReadOnlyRootFilesystem": read_only_root, "pdbDisruptionsIsZero": budgets_allow_a_disruption,
        "pdbMinAvailableEqualToHPAMinReplicas": budgets_allow_a_disruption,
        "pdbMinAvailableGreaterThanHPAMaxReplicas": budgets_allow_a_disruption,
        "pdbMinAvailableGreaterThanHPAMinReplicas": budgets_allow_a_disruption, "privilegeEscalationAllowed": no_privileges,
        "procMount": no_privileges, "readinessProbeMissing": has_probes, "rolePodExecAttach": modest_roles,
        "rolebindingClusterAdminClusterRole": modest_bindings, "rolebindingClusterAdminRole": modest_bindings,
        "rolebindingClusterRolePodExecAttach": modest_bindings, "rolebindingRolePodExecAttach": modest_roles,
        "runAsPrivileged": no_privileges, "runAsRootAllowed": not_root, "sensitiveConfigmapContent": no_config_maps,
        "sensitiveContainerEnvVar": no_secret_in_variables, "tagNotSpecified": pinned_tag,
    },
    "kubesec": {
        "allowPrivilegeEscalation": no_privileges, "automountServiceAccountToken": no_tokens,
        "bindingsToSystemAnonymous": modest_bindings, "capDropAll": drops_all_capabilities, "capDropAny": drops_all_capabilities,
        "capSysAdmin": drops_all_capabilities, "dockerSock": host_paths_are_models_and_read_only, "hostAliases": no_host_aliases,
        "hostIPC": no_host_namespaces, "hostNetwork": no_host_namespaces, "hostPID": no_host_namespaces,
        "limitsCPU": requests_and_limits, "limitsMemory": requests_and_limits, "privileged": no_privileges,
        "procMount": no_privileges, "readOnlyRootFilesystem": read_only_root, "requestsCPU": requests_and_limits,
        "requestsMemory": requests_and_limits, "runAsGroup": not_root, "runAsNonRoot": not_root, "runAsUser": not_root,
        "seccompAny": seccomp, "seccompUnconfined": seccomp, "secretsAsEnvironmentVariables": no_secret_in_variables,
        "serviceAccountName": own_service_accounts,
    },
}


def table():
    """{linter: {rule: (verdict, why)}} of the page."""
    out, linter = {}, None
    with open(os.path.join(ROOT, "docs", "kubernetes_rules.md"), encoding="utf-8") as page:
        for line in page:
            if line.startswith("## "):
                linter = out.setdefault(line[3:].strip(), {})
            match = re.match(r"\| `([\w-]+)` \| (met|argued|not ours) \| (.+) \|$", line)
            if match:
                assert match[1] not in linter, match[1]
                linter[match[1]] = (match[2], match[3])
    return out


def the_page_and_the_checks_agree():
    page = table()
    for linter, rules in MET.items():
        said = {rule for rule, (verdict, _) in page[linter].items() if verdict == "met"}
        assert said == set(rules), "%s: %s" % (linter, said ^ set(rules))
    counts = {linter: len(rules) for linter, rules in page.items() if rules}
    assert counts == {"kube-linter": 57, "Polaris": 55, "kubesec": 30}, counts


def what_is_met_is_met():
    checks = {check for rules in MET.values() for check in rules.values()}
    for folder in kustomizations():
        manifests = Manifests(folder)
        for check in sorted(checks, key=lambda c: c.__name__):
            assert check(manifests), "%s: not %s" % (folder, check.__name__)


if __name__ == "__main__":
    run_tests(the_page_and_the_checks_agree, what_is_met_is_met)
