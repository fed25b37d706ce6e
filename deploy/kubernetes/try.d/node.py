"""A node: containerd, kubelet and kube-proxy in a machine of its own."""
import json
import os

from api import wait_until
from network import DNS_IP, PODS, node_ip, write_cni

CGROUPS = "/sys/fs/cgroup"
CTR = ("ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io")
PAUSE = "localhost/skein-try/busybox:1"
CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/nowhere"
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def controllers():
    """The folders of the cgroup hierarchies: one in version 2, one for each controller in version 1."""
    if os.path.exists(CGROUPS + "/cgroup.controllers"):
        return [CGROUPS]
    return [CGROUPS + "/" + c for c in sorted(os.listdir(CGROUPS)) if os.path.isdir(CGROUPS + "/" + c)
            and not os.path.islink(CGROUPS + "/" + c)]


def make_cgroup(name):
    for controller in controllers():
        folder = controller
        for part in name.strip("/").split("/"):
            above, folder = folder, folder + "/" + part
            os.makedirs(folder, exist_ok=True)
            for inherited in ("cpuset.cpus", "cpuset.mems"):
                if controller.endswith("/cpuset"):
                    write(folder + "/" + inherited, open(above + "/" + inherited, encoding="ascii").read())


def cgroups_of(name):
    """The folders of a cgroup that exist, in all hierarchies."""
    return [controller + name for controller in controllers() if os.path.isdir(controller + name)]


def remove_cgroup(name):
    for controller in controllers():
        for folder, _, _ in sorted(os.walk(controller + name), reverse=True):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # a dying process holds it still; said by the caller when it stays


class Node:
    def __init__(self, machine, control):
        self.machine, self.control, self.name = machine, control, machine.name
        self.cgroup = "/skein-try/" + self.name

    def start(self, images):
        folder = self.machine.folder
        make_cgroup(self.cgroup)
        write_cni(os.path.join(folder, "cni"), self.name)
        write(os.path.join(folder, "containerd.toml"), CONTAINERD % (PAUSE, os.path.join(folder, "cni")))
        self.machine.run("containerd", "containerd", "-c", os.path.join(folder, "containerd.toml"))
        wait_until(lambda: self.ctr("version", check=False).returncode and "no answer", self.name + ": containerd", 60)
        for image in images:
            self.load(image)
        config = os.path.join(folder, "kubelet.json")
        write(config, json.dumps(self._kubelet()))
        programs = self.control.bin
        self.machine.run("kubelet", programs + "/kubelet", "--config=" + config, "--kubeconfig=" + self.control.kubeconfig(self.name),
                         "--hostname-override=" + self.name, "--node-ip=" + node_ip(self.name), "--container-runtime=remote",
                         "--container-runtime-endpoint=unix:///run/containerd/containerd.sock")
        self.machine.run("kube-proxy", programs + "/kube-proxy", "--kubeconfig=" + self.control.kubeconfig("proxy"),
                         "--hostname-override=" + self.name, "--proxy-mode=iptables", "--cluster-cidr=" + PODS,
                         "--conntrack-max-per-core=0")

    def has_services(self):
        """kube-proxy has written its rules once."""
        return self.machine.sh("curl", "-sf", "--max-time", "2", "http://127.0.0.1:10256/healthz", check=False).returncode == 0

    def _kubelet(self):
        return {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                                   "x509": {"clientCAFile": self.control.file("ca.crt")}},
                "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "cgroupRoot": self.cgroup,
                "failSwapOn": False, "oomScoreAdj": 0, "address": node_ip(self.name), "healthzPort": 10248,
                "clusterDNS": [DNS_IP], "clusterDomain": "cluster.local", "nodeStatusUpdateFrequency": "2s", "maxPods": 60,
                "evictionHard": {"nodefs.available": "1%", "memory.available": "200Mi", "imagefs.available": "1%"},
                "imageGCHighThresholdPercent": 99, "imageGCLowThresholdPercent": 98, "protectKernelDefaults": False,
                "serializeImagePulls": False, "registryPullQPS": 0}

    def ctr(self, *arguments, check=True):
        return self.machine.sh(*CTR, *arguments, check=check)

    def load(self, archive):
        self.ctr("images", "import", archive)
