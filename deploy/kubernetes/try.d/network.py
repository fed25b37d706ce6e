"""The network of the trial: one bridge, three namespaces (control plane and two nodes), a range of pod addresses for each node."""
import json
import os

from machine import sh

CONTROL = "skein-try"
NODES = ("node1", "node2")
CONTROL_IP = "10.99.0.1"
SERVICES = "10.96.0.0/16"
API_IP, DNS_IP = "10.96.0.1", "10.96.0.10"
NAMES_IP = "10.99.0.2"  # where the name server listens
PODS = "10.244.0.0/16"


def node_ip(node):
    return "10.99.0.%d" % (11 + NODES.index(node))


def pods_of(node):
    return "10.244.%d" % (1 + NODES.index(node))


def namespace(node):
    return "skein-try-" + node


def make():
    remove()
    sh("ip", "netns", "add", CONTROL)
    ip = ("ip", "-n", CONTROL)
    sh(*ip, "link", "set", "lo", "up")
    sh(*ip, "link", "add", "br0", "type", "bridge")
    sh(*ip, "addr", "add", CONTROL_IP + "/24", "dev", "br0")
    sh(*ip, "addr", "add", NAMES_IP + "/24", "dev", "br0")
    sh(*ip, "link", "set", "br0", "up")
    for node in NODES:
        _join(node)
    sh("nsenter", "--net=/run/netns/" + CONTROL, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    # Programs ask for a default route before they choose an address; this one leads nowhere.
    sh(*ip, "route", "add", "default", "via", node_ip(NODES[0]))


def _join(node):
    name, ip = namespace(node), ("ip", "-n", namespace(node))
    sh("ip", "netns", "add", name)
    sh("ip", "-n", CONTROL, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", name)
    sh("ip", "-n", CONTROL, "link", "set", node, "master", "br0", "up")
    sh(*ip, "link", "set", "lo", "up")
    sh(*ip, "addr", "add", node_ip(node) + "/24", "dev", "eth0")
    sh(*ip, "link", "set", "eth0", "up")
    sh(*ip, "route", "add", "default", "via", CONTROL_IP)
    sh("ip", "-n", CONTROL, "route", "add", pods_of(node) + ".0/24", "via", node_ip(node))
    for other in NODES:
        if other != node:
            sh(*ip, "route", "add", pods_of(other) + ".0/24", "via", node_ip(other))
    # Packets between two pods of one node pass the bridge; kube-proxy and the policies must see these, too.
    for setting in ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1", "net.netfilter.nf_conntrack_timestamp=1"):
        sh("nsenter", "--net=/run/netns/" + name, "sysctl", "-qw", setting)


def cut(node):
    """Nothing gets in or out of the node, as when its cable is pulled; what runs there runs on and does not know."""
    sh("ip", "-n", CONTROL, "link", "set", node, "down")


def mend(node):
    sh("ip", "-n", CONTROL, "link", "set", node, "up")


def remove():
    for name in (*map(namespace, NODES), CONTROL):
        if os.path.exists("/run/netns/" + name):
            sh("ip", "netns", "delete", name)


def write_cni(folder, node):
    """What containerd calls for a pod's network: a bridge of the node, and addresses from the node's range."""
    os.makedirs(folder, exist_ok=True)
    bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipMasq": False, "hairpinMode": True,
              "ipam": {"type": "host-local", "ranges": [[{"subnet": pods_of(node) + ".0/24"}]]}}
    with open(os.path.join(folder, "10-skein-try.conflist"), "w", encoding="utf-8") as file:
        json.dump({"cniVersion": "0.4.0", "name": "skein-try", "plugins": [bridge]}, file)
