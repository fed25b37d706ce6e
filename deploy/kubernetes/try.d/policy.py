"""NetworkPolicies, enforced by nftables in the nodes' namespaces, and the pairs of pods that are seen to connect.

Kubernetes leaves policies to a network plug-in; this is the trial's own, for IPv4. Each node has a table with two chains that
are written anew whenever a pod, a policy or a namespace changes, and two sets to which the kernel adds on its own: `seen` (new
connections that passed) and `refused` (those that a policy stopped). A rule names addresses and ports, never a component, so
what is seen is independent of how deploy/kubernetes/policy_pairs computes what is allowed.
"""
import json
import threading

from network import NAMES_IP, SERVICES

TABLE = "skein_try"
SERVICE_PREFIX = ".".join(SERVICES.split(".")[:2]) + "."
SETS = """table ip %s {
  set seen { type ipv4_addr . ipv4_addr . inet_proto . inet_service; size 65535; flags dynamic; }
  set refused { type ipv4_addr . ipv4_addr . inet_proto . inet_service; size 65535; flags dynamic; }
  chain egress { }
  chain ingress { }
  chain forward { type filter hook forward priority 10; policy accept;
    ct state established,related accept
    meta l4proto != { tcp, udp } accept
    jump egress
    jump ingress
    add @seen { ip saddr . ip daddr . meta l4proto . th dport }
  }
}
""" % TABLE
REFUSE = "add @refused { ip saddr . ip daddr . meta l4proto . th dport } drop"
# The name server is no pod here; policies know it by the labels that it has in other clusters.
NAME_SERVER = {"metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
               "spec": {"containers": []}, "status": {"podIP": NAMES_IP, "phase": "Running"}}


def selects(selector, labels):
    """Does a LabelSelector select these labels? An empty one selects all, None nothing."""
    if selector is None:
        return False
    labels = labels or {}
    if any(labels.get(k) != v for k, v in selector.get("matchLabels", {}).items()):
        return False
    for e in selector.get("matchExpressions", []):
        has, value = e["key"] in labels, labels.get(e["key"])
        holds = {"In": value in e.get("values", []), "NotIn": value not in e.get("values", []), "Exists": has, "DoesNotExist": not has}
        if not holds[e["operator"]]:
            return False
    return True


def address(pod):
    running = pod["status"].get("phase") in ("Pending", "Running")
    return pod["status"].get("podIP", "") if running and not pod["spec"].get("hostNetwork") else ""


class Rules:
    """The chains for one state of the cluster."""

    def __init__(self, policies, pods, namespaces):
        self.policies = policies
        self.pods = [p for p in pods if address(p)]
        self.labels = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in namespaces}

    def text(self):
        lines = ["flush chain ip %s egress" % TABLE, "flush chain ip %s ingress" % TABLE]
        for chain, side, other in (("egress", "saddr", "daddr"), ("ingress", "daddr", "saddr")):
            for pod in self.pods:
                lines += ["add rule ip %s %s %s" % (TABLE, chain, rule) for rule in self._of_pod(pod, chain, side, other)]
        return "\n".join(lines) + "\n"

    def _of_pod(self, pod, chain, side, other):
        policies = [p for p in self.policies if p["metadata"]["namespace"] == pod["metadata"]["namespace"]
                    and chain in types(p) and selects(p["spec"]["podSelector"], pod["metadata"].get("labels"))]
        if not policies:
            return []
        me, rules = "ip %s %s " % (side, address(pod)), []
        for policy in policies:
            for rule in policy["spec"].get(chain) or []:
                for peers in self._peers(policy, rule.get("from" if chain == "ingress" else "to")):
                    match = me + ("ip %s { %s } " % (other, ", ".join(peers)) if peers is not None else "")
                    rules += [match + port + "return" for port in self._ports(rule.get("ports"), pod, chain)]
        return rules + [me + REFUSE]

    def _peers(self, policy, peers):
        """Lists of addresses; None stands for any."""
        if not peers:
            return [None]
        found = []
        for peer in peers:
            if "ipBlock" in peer:
                found.append([peer["ipBlock"]["cidr"]])
            else:
                found.append([address(p) for p in self.pods if self._is_peer(policy, peer, p)])
        return [sorted(set(f)) for f in found if f]

    def _is_peer(self, policy, peer, pod):
        namespace = pod["metadata"]["namespace"]
        if "namespaceSelector" in peer:
            if not selects(peer["namespaceSelector"], self.labels.get(namespace, {})):
                return False
        elif namespace != policy["metadata"]["namespace"]:
            return False
        return selects(peer.get("podSelector", {}), pod["metadata"].get("labels"))

    @staticmethod
    def _ports(ports, pod, chain):
        for port in ports or [{}]:
            number, protocol = port.get("port"), port.get("protocol", "TCP").lower()
            if isinstance(number, str):
                named = {p.get("name"): p["containerPort"] for c in pod["spec"]["containers"] for p in c.get("ports", [])}
                if chain == "egress" or number not in named:
                    continue  # a named port of a peer: none of ours; it stays closed
                number = named[number]
            yield "%s dport %d " % (protocol, number) if number else "meta l4proto %s " % protocol


def types(policy):
    given = policy["spec"].get("policyTypes")
    return [t.lower() for t in given] if given else ["ingress"] + (["egress"] if "egress" in policy["spec"] else [])


class Enforcer:
    """Writes the rules of both nodes at each change, and knows which pod had which address."""

    def __init__(self, machines, api):
        self.machines, self.api, self.lock = machines, api, threading.Lock()
        self.state = {"networkpolicies": {}, "pods": {}, "namespaces": {}}
        self.owners = {NAMES_IP: "dns"}  # address: component, of every pod that ever had one
        self.written, self.errors = "", []

    def start(self, stop):
        for machine in self.machines:
            machine.sh("nft", "-f", "-", input=SETS)
        for kind in self.state:
            self.api.watch(kind, lambda things, _, kind=kind: self._changed(kind, things), stop)

    def _changed(self, kind, things):
        with self.lock:
            self.state[kind] = things
            pods = [*self.state["pods"].values(), NAME_SERVER]
            self.owners.update({address(p): component(p) for p in pods[:-1] if address(p)})
            text = Rules(list(self.state["networkpolicies"].values()), pods, list(self.state["namespaces"].values())).text()
            if text == self.written:
                return
            self.written = text
            for machine in self.machines:
                done = machine.sh("nft", "-f", "-", input=text, check=False)
                if done.returncode:
                    self.errors.append("%s: nft: %s" % (machine.name, done.stderr.strip()[:500]))

    def pairs(self, name):
        """Pairs "FROM TO PORT/PROTOCOL" in the sets `seen` or `refused` of all nodes."""
        found = set()
        for machine in self.machines:
            listing = json.loads(machine.sh("nft", "--json", "--numeric", "list", "set", "ip", TABLE, name))
            for thing in listing["nftables"]:
                for element in thing.get("set", {}).get("elem", []):
                    element = element.get("elem", {}).get("val", element) if "elem" in element else element
                    source, target, protocol, port = element["concat"]
                    if target.startswith(SERVICE_PREFIX):
                        continue  # to a Service that leads nowhere yet: no pair of pods
                    found.add("%s %s %d/%s" % (self.owner(source), self.owner(target), port, {6: "TCP", 17: "UDP"}.get(protocol, str(protocol).upper())))
        return found

    def owner(self, ip):
        return self.owners.get(ip, "anyone" if not ip.startswith("10.244.") else ip)

    def forget(self):
        for machine in self.machines:
            machine.sh("nft", "flush", "set", "ip", TABLE, "seen")
            machine.sh("nft", "flush", "set", "ip", TABLE, "refused")


def component(pod):
    labels = pod["metadata"].get("labels", {})
    if pod["metadata"]["namespace"] == "monitoring":
        return labels.get("app.kubernetes.io/name", "anyone")
    return labels.get("app.kubernetes.io/component", "anyone")

