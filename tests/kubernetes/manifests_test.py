#!/usr/bin/env python3
"""The manifests of deploy/kubernetes agree with the programs, with each other and with their documentation."""
import copy
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True  # policy_pairs is loaded from its own folder
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
import yaml  # noqa: E402
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from manifests import KUBERNETES, ROOT, kustomizations, load_all, named, objects, rendered, skeins_workloads, workloads  # noqa: E402

PAIRS = os.path.join(KUBERNETES, "policy_pairs")

# Allowed connections, from the calls in the code: services/*/ and engine/transport. Probes come
# from the node.
MUST_TALK = {
    "anyone router 8000/TCP",           # clients
    "router orchestrator 7100/TCP",     # ConnectRouter, ListModels
    "prefill orchestrator 7100/TCP",    # ConnectWorker
    "decode orchestrator 7100/TCP",     # ConnectWorker
    "router decode 7300/TCP",           # StreamTokens
    "prefill decode 7300/TCP",          # OpenTransfer, Renew, Commit, Abort
    "prefill decode 7310/TCP",          # KV
    "decode prefill 7210/TCP",          # KV, when a prefill-worker was restarted at its address
    "prefill prefill 7211/TCP",         # steps of several instances
    "prometheus router 8001/TCP",
    "prometheus orchestrator 7101/TCP",
    "prometheus prefill 7201/TCP",
    "prometheus decode 7301/TCP",
    *("%s %s 53/%s" % (role, names, p) for role in ("router", "prefill", "decode") for names in ("dns", "169.254.20.10/32")
      for p in ("TCP", "UDP")),
}

# And with components/standbys.
STANDBYS_TALK = {
    "orchestrator etcd 2379/TCP",       # the election
    "etcd etcd 2380/TCP",               # its members
    *("%s %s 53/%s" % (role, names, p) for role in ("orchestrator", "etcd") for names in ("dns", "169.254.20.10/32")
      for p in ("TCP", "UDP")),
}


def kubectl():
    """A kubectl that supports our kustomizations (1.27 or later), or None."""
    path = shutil.which("kubectl")
    if path is None:
        return None
    answer = subprocess.run([path, "version", "--client", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, timeout=60)
    try:
        minor = json.loads(answer.stdout)["clientVersion"]["minor"]
    except (ValueError, KeyError):
        return None
    return path if int(re.match(r"\d+", minor)[0]) >= 27 else None


def render_says_what_kubectl_says():
    path = kubectl()
    if path is None:
        return "skip: there is no kubectl of 1.27 or later to compare deploy/kubernetes/render with"
    with tempfile.TemporaryDirectory() as copy:
        # Bazel's files are links, which kubectl does not follow.
        shutil.copytree(KUBERNETES, os.path.join(copy, "k"))
        # Together these use all features that our kustomizations use; each takes kubectl a second
        # or two.
        for folder in ("overlays/gpu", "examples/observed", "examples/weights-hostpath", "examples/disaggregated-set"):
            done = subprocess.run([path, "kustomize", os.path.join(copy, "k", folder)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 0 and not done.stderr, "kubectl kustomize %s: %s" % (folder, done.stderr)
            same(folder, named([d for d in load_all(done.stdout) if d]), named(objects(folder)))
    return None


def same(folder, theirs, ours):
    assert set(ours) == set(theirs), "%s: %s" % (folder, set(ours) ^ set(theirs))
    for name, mine in ours.items():
        assert mine == theirs[name], "%s: %s\n%s\n%s" % (folder, name, yaml.safe_dump(mine), yaml.safe_dump(theirs[name]))


def the_page_has_the_pairs():
    with open(os.path.join(ROOT, "docs", "kubernetes.md"), encoding="utf-8") as page:
        rows = re.findall(r"^\| `(\w+)` \| `([\w./]+)` \| `(\d+/\w+)` \|", page.read(), re.M)
    must = MUST_TALK | STANDBYS_TALK
    assert {" ".join(row) for row in rows} == must and len(rows) == len(must), {" ".join(r) for r in rows} ^ must


def node_pods_pairs(prefill, decode):
    """MUST_TALK if prefill and decode are instances of the pods `node` (components/node-pods)."""
    first = {"7200": (7220, prefill, 1), "7210": (7260, prefill, 2), "7211": (7261, prefill, 2), "7300": (7320, decode, 1), "7310": (7360, decode, 1),
             "7201": (7240, prefill, 1), "7301": (7340, decode, 1)}
    out = {"prometheus node 7400/TCP"}
    for pair in MUST_TALK:
        source, target, port, protocol = re.match(r"(\S+) (\S+) (\d+)/(\w+)$", pair.replace("prefill", "node").replace("decode", "node")).groups()
        start, count, step = first.get(port, (int(port), 1, 1))
        out |= {"%s %s %d/%s" % (source, target, start + step * i, protocol) for i in range(count)}
    return out


def policies_of(folder):
    """The required pairs there; None if it is not a cluster."""
    documents = objects(folder)
    if not workloads(documents):
        return None
    names = [name for name, _, _, _ in workloads(documents)]
    if "node" not in names:
        return MUST_TALK | (STANDBYS_TALK if "etcd" in names else set())
    # NCCL, with GPUs: it listens on ports chosen by the kernel.
    return node_pods_pairs(4, 4) | ({"node node 50000-60999/TCP"} if folder == "overlays/gpu" else set())


def load_pairs():
    loader = importlib.machinery.SourceFileLoader("policy_pairs", PAIRS)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("policy_pairs", loader))
    loader.exec_module(module)
    return module


def pairs(documents):
    """The lines that policy_pairs prints."""
    module = load_pairs()
    return {"%s %s %s" % (source, target, module.printed(protocol, port)) for source, target, protocol, port in module.pairs(documents)}


def the_program_prints_the_pairs():
    done = subprocess.run([sys.executable, PAIRS], input=rendered("base"), check=True, stdout=subprocess.PIPE, text=True)
    assert set(done.stdout.splitlines()) == MUST_TALK, done.stdout
    done = subprocess.run([sys.executable, PAIRS, "--json"], input=rendered("base"), check=True, stdout=subprocess.PIPE, text=True)
    assert len(json.loads(done.stdout)) == len(MUST_TALK)


def the_policies_allow_who_must_talk_and_nobody_else():
    for folder in kustomizations():
        must = policies_of(folder)
        if must is None:
            continue
        allowed = pairs(objects(folder))
        assert allowed == must, "%s: missing %s, too many %s" % (folder, must - allowed, allowed - must)


PICKER = '''
kind: Deployment
metadata: {name: skein-epp}
spec:
  template:
    metadata: {labels: {app.kubernetes.io/name: skein-epp, app.kubernetes.io/component: picker}}
    spec: {containers: [{name: epp, ports: [{containerPort: 9002}, {containerPort: 9003}, {containerPort: 9090}]}]}
'''


def an_endpoint_picker_may_work():
    """examples/gateway allows exactly what a picker in Skein's namespace needs."""
    alone = pairs(objects("base") + [yaml.safe_load(PICKER)])
    assert alone == MUST_TALK, "denied by default: %s" % (alone - MUST_TALK)
    more = pairs(objects("base") + objects("examples/gateway") + [yaml.safe_load(PICKER)]) - MUST_TALK
    names = {"picker %s 53/%s" % (to, p) for to in ("dns", "169.254.20.10/32") for p in ("TCP", "UDP")}
    assert more == names | {"gateway/* picker 9002/TCP", "prometheus picker 9090/TCP", "picker router 8000/TCP",
                            "picker anyone 443/TCP", "picker anyone 6443/TCP"}, more


def namespace_of(name):
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


ANYWHERE = {"ipBlock": {"cidr": "0.0.0.0/0"}}
# A change of base's policies: {what: (policy, direction, added rule or a function that changes the
# first one, pairs gained, pairs lost)}
OPENED = {
    "prefill goes to any address": ("prefill", "egress", {"to": [ANYWHERE]}, {"prefill 0.0.0.0/0 *"}),
    "any address comes to decode": ("decode", "ingress", {"from": [ANYWHERE]},
                                    {"0.0.0.0/0 decode %d/TCP" % port for port in (7300, 7301, 7310)}),
    "an address block without a part of it": (
        "decode", "ingress", {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": "admin"}]},
        {"10.0.0.0/8-10.1.0.0/16 decode 7301/TCP"}),
    "another namespace comes to the orchestrator": ("orchestrator", "ingress", {"from": [namespace_of("foo")]},
                                                    {"foo/* orchestrator 7100/TCP", "foo/* orchestrator 7101/TCP"}),
    "every namespace, ours as well, comes to the orchestrator's admin port": (
        "orchestrator", "ingress", {"from": [{"namespaceSelector": {}}], "ports": [{"port": "admin"}]}, {"*/* orchestrator 7101/TCP"}),
    "a router goes to anyone's port 80": ("router", "egress", {"ports": [{"port": 80}]}, {"router anyone 80/TCP"}),
    "a router goes to a range of ports": ("router", "egress", {"to": [namespace_of("foo")], "ports": [{"port": 8000, "endPort": 8080}]},
                                          {"router foo/* 8000-8080/TCP"}),
    "anyone comes to every port of a router": ("router", "ingress", {}, {"anyone router 8001/TCP"}),
    "a router goes to other pods of its own namespace by the namespace's name": (
        "router", "egress", {"to": [namespace_of("skein")], "ports": [{"port": 7101}]}, {"router skein/* 7101/TCP"}),
}
WORKERS_AND_ROUTER = ("router", "prefill", "decode")
DNS = {"%s dns 53/%s" % (role, p) for role in WORKERS_AND_ROUTER for p in ("TCP", "UDP")}
NODE_DNS = {"%s 169.254.20.10/32 53/%s" % (role, p) for role in WORKERS_AND_ROUTER for p in ("TCP", "UDP")}
PROMETHEUS = {pair for pair in MUST_TALK if pair.startswith("prometheus ")}


def changed(name, change):
    """The objects of base, with `change` applied to a NetworkPolicy."""
    documents = copy.deepcopy(objects("base"))
    change(named(documents)[("NetworkPolicy", name)]["spec"])
    return documents


def a_policy_less_or_more_is_seen():
    for what, (name, direction, rule, more) in OPENED.items():
        found = pairs(changed(name, lambda spec, d=direction, r=rule: spec[d].append(r)))
        gone = {p for p in MUST_TALK - found if p.replace("prometheus", "anyone") not in more}
        assert found - MUST_TALK == more and not gone, "%s: more %s, less %s" % (what, found - MUST_TALK, gone)

    def differs(name, change, more, less):
        found = pairs(changed(name, change))
        assert found - MUST_TALK == more and MUST_TALK - found == less, (name, found ^ MUST_TALK)

    differs("metrics", lambda s: s["ingress"][0]["from"][0].pop("podSelector"),
            {p.replace("prometheus", "monitoring/*") for p in PROMETHEUS}, PROMETHEUS)
    differs("names", lambda s: s["egress"][0]["to"][0].pop("podSelector"), {p.replace("dns", "kube-system/*") for p in DNS}, DNS)
    differs("names", lambda s: s["egress"][0].pop("ports"),
            {"%s %s *" % (role, to) for role in WORKERS_AND_ROUTER for to in ("dns", "169.254.20.10/32")}, DNS | NODE_DNS)
    differs("names", lambda s: s["egress"][0]["to"].pop(1), set(), NODE_DNS)


def without_policies_all_is_open():
    documents = objects("base")
    without = [d for d in documents if (d["kind"], d["metadata"]["name"]) != ("NetworkPolicy", "deny-by-default")]
    router = [d for d in without if (d["kind"], d["metadata"]["name"]) != ("NetworkPolicy", "router")]

    free = pairs([d for d in documents if d["kind"] != "NetworkPolicy"])
    assert {"decode prefill 7211/TCP", "router anyone *", "anyone orchestrator 7100/TCP"} <= free, free
    assert "anyone router 8000/TCP" not in pairs([d for d in documents if d["metadata"]["name"] != "router" or
                                                  d["kind"] != "NetworkPolicy"])
    assert "router decode 7300/TCP" not in pairs(router)


def listens(pod):
    """{name: port} on which the container's programs listen; a prefill-worker takes the one after --data-port, too."""
    container = pod["containers"][0]
    commands = commands_of(container)
    out = dict(ports_told(flags_of(commands[0])))
    counts = [int(n) for n in dict(flags_of(commands[0])).get("instances", "").split(",") if n]
    assert len(counts) == len(commands) - 1, (counts, commands)
    for count, command in zip(counts, commands[1:]):
        for j in range(count):
            told = ports_told([(f, re.sub(r"\{(\d+)\+(?:(\d+)\*)?j\}", lambda m: str(int(m[1]) + int(m[2] or 1) * j), v))
                               for f, v in flags_of(command)])
            out.update(("%s of %s %d" % (flag, command[0], j), port) for flag, port in told)
    for name, port in list(out.items()):
        if name.startswith("data-port") and "skein-prefill-worker" in name + commands[0][0]:
            out[name + " + 1"] = port + 1
    return out


def ports_told(flags):
    return [(flag, int(value)) for flag, value in flags if flag == "port" or flag.endswith("-port")]


def commands_of(container):
    """[program and arguments] of a container: its own, and those behind each `--` of skein-node."""
    out = [list(container["command"])]
    for argument in container.get("args", []):
        if argument == "--":
            out.append([])
        else:
            out[-1].append(argument)
    return out


def flags_of(arguments):
    """[(flag, value)] of --flag=value."""
    return [tuple(a[2:].split("=", 1)) for a in arguments if a.startswith("--") and "=" in a]


def ports_are_those_of_the_programs():
    for folder in kustomizations():
        documents = objects(folder)
        for name, pod, _, _ in skeins_workloads(documents):
            listed = {p["name"]: p["containerPort"] for p in pod["containers"][0]["ports"]}
            told = listens(pod)
            assert sorted(listed.values()) == sorted(told.values()), "%s %s: %s, flags %s" % (folder, name, listed, told)
            assert listed["admin"] == told["admin-port"], (folder, name)
            annotations = documents_annotations(documents, name)
            assert annotations["prometheus.io/port"] == str(listed["admin"]), (folder, name)
        for (kind, name), service in named(documents).items():
            if kind == "Service":
                services_ports_are_the_pods(folder, name, service, workloads(documents))


def documents_annotations(documents, workload):
    (template,) = [template for n, _, _, template in workloads(documents) if n == workload]
    return template["metadata"]["annotations"]


def services_ports_are_the_pods(folder, name, service, pods):
    hit = [p for _, p, labels, _ in pods if service["spec"]["selector"].items() <= labels.items()]
    if name == "metrics":
        assert len(hit) == len(pods), (folder, name)
        return
    assert len(hit) == 1, "%s: Service %s selects %d workloads" % (folder, name, len(hit))
    names = {p["name"]: p["containerPort"] for p in hit[0]["containers"][0]["ports"]}
    for port in service["spec"]["ports"]:
        assert names[port["targetPort"]] == port["port"], (folder, name, port)


def clients_name_the_orchestrators():
    """One orchestrator by its Service; with standbys each pod by its own name, which leads to it before it is ready, too."""
    for folder in kustomizations():
        documents = named(objects(folder))
        orchestrator = documents.get(("StatefulSet", "orchestrator"))
        for name, pod, _, _ in skeins_workloads(documents.values()):
            if name == "orchestrator":
                continue
            told = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
            assert not any(a.startswith("--orchestrator") for a in pod["containers"][0].get("args", [])), (folder, name)
            if orchestrator is None:  # a part of a cluster
                continue
            replicas, service = orchestrator["spec"]["replicas"], "orchestrator"
            wanted = [service] if replicas == 1 else ["orchestrator-%d.%s" % (i, orchestrator["spec"]["serviceName"]) for i in range(replicas)]
            assert told["SKEIN_ORCHESTRATOR"] == "+".join(host + ":7100" for host in wanted), (folder, name, told)
            for host in wanted:
                spec = documents[("Service", host.rpartition(".")[2])]["spec"]
                assert 7100 in [p["port"] for p in spec["ports"]], (folder, host)
                assert replicas == 1 or spec["clusterIP"] == "None" and spec["publishNotReadyAddresses"], (folder, host, spec)


def seconds_of_pre_stop(pod):
    """The maximum time of preStop: its flags --after-s and --timeout-s."""
    hook = pod["containers"][0].get("lifecycle", {}).get("preStop")
    if hook is None:
        return 0
    flags = dict(a[2:].split("=", 1) for a in hook["exec"]["command"] if a.startswith("--") and "=" in a)
    return float(flags.get("after-s", 0)) + float(flags["timeout-s"])


def flag_defaults():
    """{program: {flag: default}} of docs/flags.md."""
    out, program = {}, None
    with open(os.path.join(ROOT, "docs", "flags.md"), encoding="utf-8") as page:
        for line in page:
            if line.startswith("## "):
                program = out.setdefault(line[3:].strip(), {})
            match = re.match(r"\| `--([a-z0-9-]+)[^`]*` \|(?:[^|]|\\\|)*\| (?:`([^`]*)`)?", line)
            if match and program is not None:
                program[match[1]] = match[2] or ""
    assert out["router"]["port"] == "8000", out.get("router")
    return out


def programs(pod):
    """The programs of a pod, named as in docs/flags.md, supervisor first."""
    names = [os.path.basename(command[0]) for command in commands_of(pod["containers"][0])]
    return [n if n in ("skein-node", "skeinctl") else n.replace("skein-", "").replace("-", "_") for n in names]


def value_of(pod, flag, default):
    container = pod["containers"][0]
    for entry in container.get("env", []):
        if entry["name"] == "SKEIN_" + flag.upper().replace("-", "_"):
            default = entry["value"]
    for argument in container.get("args", []):
        if argument.startswith("--%s=" % flag):
            default = argument.split("=", 1)[1]
    return default


def pods_have_time_to_drain():
    """terminationGracePeriodSeconds > preStop + --drain-grace-s + what the program takes after that."""
    defaults = flag_defaults()
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            drain = max(float(value_of(pod, "drain-grace-s", defaults.get(program, {}).get("drain-grace-s", 0)))
                        for program in programs(pod))
            needed = seconds_of_pre_stop(pod) + drain + 8
            assert pod["terminationGracePeriodSeconds"] > needed, "%s %s: %s, not above %s" % (
                folder, name, pod["terminationGracePeriodSeconds"], needed)
            if name != "orchestrator":
                longest = float(defaults["router"]["request-deadline-s"])
                assert seconds_of_pre_stop(pod) >= longest, "%s %s: preStop is shorter than a request may be" % (folder, name)


def starts_have_time():
    """The startup probe's limit is above --wait-for-model-s and half an hour to load; skein-node has no model to wait for."""
    defaults = flag_defaults()
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            probe = pod["containers"][0]["startupProbe"]
            limit_s = probe["periodSeconds"] * probe["failureThreshold"]
            if "skein-node" in programs(pod) or name == "orchestrator":
                continue
            wait_s = float(value_of(pod, "wait-for-model-s", defaults[programs(pod)[0]]["wait-for-model-s"]))
            assert limit_s >= wait_s + 1800, "%s %s: %s s, to wait %s s and to load" % (folder, name, limit_s, wait_s)


GIB = {"Mi": 1 / 1024, "Gi": 1}


def kv_fits_into_memory():
    """Limits are above --kv-gib and 200 MiB for each worker of a pod whose KV is not on a GPU."""
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            container = pod["containers"][0]
            counts = [int(n) for n in dict(flags_of(commands_of(container)[0])).get("instances", "1").split(",")]
            kv_gib = value_of(pod, "kv-gib", None)
            if kv_gib is None or "nvidia.com/gpu" in container["resources"]["limits"]:
                continue
            number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", container["resources"]["limits"]["memory"]).groups()
            needed_gib = sum(counts) * (float(kv_gib) + 0.2)
            assert int(number) * GIB[unit] >= needed_gib, "%s %s: %s%s, needed %.2f GiB" % (folder, name, number, unit, needed_gib)


def jobs_outlive_their_pods():
    """Offline jobs are turned off, or kept in a claim that every orchestrator can mount; never in a volume of the pod."""
    kept = set()
    for folder in kustomizations():
        claims = {d["metadata"]["name"]: d["spec"] for d in objects(folder) if d["kind"] == "PersistentVolumeClaim"}
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            if name != "orchestrator":
                continue
            jobs = value_of(pod, "jobs-dir", "")
            if jobs == "none":
                continue
            (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == jobs]
            (volume,) = [v for v in pod["volumes"] if v["name"] == mount["name"]]
            assert not mount.get("readOnly"), (folder, mount)
            assert claims[volume["persistentVolumeClaim"]["claimName"]]["accessModes"] == ["ReadWriteMany"], (folder, volume)
            kept.add(folder)
    assert kept == {"examples/jobs"}, kept


def every_flag_exists():
    """On command lines, in variables and in preStop."""
    flags = flag_defaults()
    missing = set()
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            container = pod["containers"][0]
            commands = dict(zip(programs(pod), commands_of(container)))
            hook = container.get("lifecycle", {}).get("preStop")
            if hook:
                commands["skeinctl drain"] = hook["exec"]["command"][1:]
                assert hook["exec"]["command"][:2] == ["/usr/bin/skeinctl", "drain"], hook
            for program, command in commands.items():
                used = {a.split("=")[0][2:] for a in command if a.startswith("--")}
                missing |= {"%s %s: %s --%s" % (folder, name, program, f) for f in used - set(flags.get(program, {})) - {"help"}}
            variables = {e["name"][6:].lower().replace("_", "-") for e in container.get("env", []) if e["name"].startswith("SKEIN_")}
            known = {f for program in programs(pod) for f in flags.get(program, {})}
            missing |= {"%s %s: variable of --%s" % (folder, name, f) for f in variables - known}
    assert not missing, "\n".join(sorted(missing))


def images_are_those_that_are_built():
    """One version everywhere, one variant except for pods with GPUs."""
    with open(os.path.join(ROOT, "services", "base", "version.h"), encoding="utf-8") as header:
        version = re.search(r'kVersion\[\] = "([^"]+)"', header.read())[1]
    for folder in kustomizations():
        plain = set()
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            (container,) = pod["containers"]
            gpus = "nvidia.com/gpu" in container["resources"]["limits"]
            assert re.fullmatch(r"localhost/skein(-fledgling)?:%s-%s" % (re.escape(version), "cuda" if gpus else "cpu"), container["image"]), (
                folder, name, container["image"])
            plain |= set() if gpus else {container["image"]}
        assert len(plain) <= 1, "%s: %s" % (folder, plain)


def variables_are_defined_before_they_are_used():
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            known = set()
            for entry in pod["containers"][0].get("env", []):
                used = re.findall(r"\$\((\w+)\)", entry.get("value", ""))
                assert set(used) <= known, "%s %s: %s uses %s" % (folder, name, entry["name"], used)
                known.add(entry["name"])
            assert pod["enableServiceLinks"] is False, "%s %s: Kubernetes' variables would be read as flags" % (folder, name)


def what_is_generated_is_up_to_date():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(KUBERNETES, "generate"), "--output", folder], check=True, stdout=subprocess.DEVNULL)
        made = [os.path.join(d, f) for d, _, files in os.walk(folder) for f in files]
        assert made
        for path in made:
            there = os.path.join(ROOT, os.path.relpath(path, folder))
            with open(path, encoding="utf-8") as new, open(there, encoding="utf-8") as old:
                assert new.read() == old.read(), "%s is not what deploy/kubernetes/generate makes" % os.path.relpath(path, folder)
    component = os.path.join(KUBERNETES, "components", "node-pods", "kustomization.yaml")
    made = subprocess.run([sys.executable, os.path.join(KUBERNETES, "node_pods"), "4", "4"], check=True, stdout=subprocess.PIPE, text=True)
    with open(component, encoding="utf-8") as file:
        assert file.read() == made.stdout, "components/node-pods is not what deploy/kubernetes/node_pods 4 4 makes"


def runbooks_have_addresses():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(KUBERNETES, "generate"), "--output", folder, "--runbook-base", "https://git.example.com/skein/"],
                       check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "deploy", "kubernetes", "components", "monitoring", "rules.yaml"), encoding="utf-8") as file:
            rules = [rule for group in yaml.safe_load(file)["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert {rule["annotations"]["runbook_url"] for rule in rules} == {
        "https://git.example.com/skein/docs/runbooks/%s.md" % rule["alert"] for rule in rules}
    refused = subprocess.run([sys.executable, os.path.join(KUBERNETES, "generate"), "--runbook-url", "x"], check=False, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 2 and "--runbook-url" in refused.stderr and len(refused.stderr.splitlines()) == 1, refused


def autoscalers_find_their_metrics():
    """prometheus_adapter.yaml makes the names in the custom metrics API from existing metrics."""
    with open(os.path.join(KUBERNETES, "prometheus_adapter.yaml"), encoding="utf-8") as file:
        rules = yaml.safe_load(file)["rules"]
    with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as page:
        metrics = re.findall(r"^\| `([a-z_:]+)` \|", page.read(), re.M)
    served = set()
    for rule in rules:
        pattern = re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])[1]
        for metric in metrics:
            if re.fullmatch(pattern, metric):
                served.add(re.sub(rule["name"]["matches"], rule["name"]["as"].replace("${1}", r"\1"), metric))
    documents = named(objects("examples/observed"))
    scalers = {name: d for (kind, name), d in documents.items() if kind == "HorizontalPodAutoscaler"}
    assert set(scalers) == {"router", "prefill", "decode"}
    for name, scaler in scalers.items():
        target = scaler["spec"]["scaleTargetRef"]
        assert "replicas" not in documents[(target["kind"], target["name"])]["spec"], "%s: apply would reset the autoscaler" % name
        for metric in scaler["spec"]["metrics"]:
            if metric["type"] == "Pods":
                assert metric["pods"]["metric"]["name"] in served, (metric, served)


def prometheus_takes_its_configuration():
    promtool = shutil.which("promtool")
    if promtool is None:
        return "skip: there is no promtool"
    with open(os.path.join(KUBERNETES, "prometheus_scrape.yaml"), encoding="utf-8") as file:
        configuration = yaml.safe_load(file)
    job = configuration["scrape_configs"][0]
    # Debian's Prometheus is built without Kubernetes discovery; the schema of that part is small
    # and checked manually.
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["skein"]}}]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(configuration, file)
        file.flush()
        done = subprocess.run([promtool, "check", "config", file.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    # Both ways of scraping give the labels that the rules and dashboards use.
    relabels = job["relabel_configs"]
    monitor = named(objects("examples/observed"))[("ServiceMonitor", "skein")]["spec"]
    expected = {e["port"]: r["replacement"] for e in monitor["endpoints"] for r in e["relabelings"] if r["targetLabel"] == "expected_kv_path"}
    assert expected == {"admin": "tcp", **{"admin-%d" % i: "node" for i in range(8)}}, expected
    assert [(r.get("regex"), r["replacement"]) for r in relabels if r.get("target_label") == "expected_kv_path"] == [
        (None, "tcp"), (r"admin-\d+", "node")], relabels
    theirs = {r["targetLabel"] for r in monitor["endpoints"][0]["relabelings"]} | {"namespace", "pod"} | {
        re.sub(r"\W", "_", label) for label in monitor["podTargetLabels"]}
    assert {r["target_label"] for r in relabels if "target_label" in r} == theirs, theirs
    return None


def programs_are_in_the_image():
    """Uses the names from deploy/local/programs.sh, like images and packages; also for the images."""
    script = '. "$0"; for p in "${deployed[@]}"; do installed_name "$p"; done'
    installed = set(subprocess.run(["bash", "-c", script, os.path.join(ROOT, "deploy", "local", "programs.sh")], check=True,
                                   stdout=subprocess.PIPE, text=True).stdout.split())
    with open(os.path.join(ROOT, "deploy", "images", "build"), encoding="utf-8") as file:
        images = set(re.findall(r"localhost/([a-z-]+):", file.read()))
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            container = pod["containers"][0]
            started = [c[0] for c in commands_of(container)]
            started += container.get("lifecycle", {}).get("preStop", {"exec": {"command": []}})["exec"]["command"][:1]
            assert {os.path.basename(s) for s in started} <= installed, "%s %s: %s, installed %s" % (folder, name, started, installed)
            assert re.fullmatch(r"localhost/(.+):.+", container["image"])[1] in images, (folder, name, container["image"])


def probes_paths_exist():
    """Each is one of the admin ports' pages."""
    pages = set()
    for source in (("services", "http", "admin.cc"), ("services", "admin", "admin_server.cc")):
        with open(os.path.join(ROOT, *source), encoding="utf-8") as file:
            pages |= set(re.findall(r'"(/[a-z]+)"', file.read()))
    for folder in kustomizations():
        for name, pod, _, _ in skeins_workloads(objects(folder)):
            container = pod["containers"][0]
            paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
            assert paths <= pages, "%s %s: %s, there are %s" % (folder, name, paths, pages)
            assert len(paths) == 3, "%s %s: two probes ask the same" % (folder, name)


if __name__ == "__main__":
    run_tests(prometheus_takes_its_configuration, the_program_prints_the_pairs, what_is_generated_is_up_to_date, runbooks_have_addresses, autoscalers_find_their_metrics, the_page_has_the_pairs, render_says_what_kubectl_says, the_policies_allow_who_must_talk_and_nobody_else, a_policy_less_or_more_is_seen,
              without_policies_all_is_open, an_endpoint_picker_may_work, ports_are_those_of_the_programs, every_flag_exists, probes_paths_exist, programs_are_in_the_image, clients_name_the_orchestrators, pods_have_time_to_drain,
              images_are_those_that_are_built, starts_have_time, kv_fits_into_memory, jobs_outlive_their_pods, variables_are_defined_before_they_are_used)
