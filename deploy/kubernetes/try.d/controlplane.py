"""The control plane: certificates, etcd, API server, controller manager and scheduler, in one machine."""
import os

from api import Api, ApiError, wait_until
from machine import sh
from network import API_IP, CONTROL_IP, DNS_IP, NAMES_IP, NODES, SERVICES

USERS = {"admin": ("admin", "system:masters"), "manager": ("system:kube-controller-manager", ""),
         "scheduler": ("system:kube-scheduler", ""), "proxy": ("system:kube-proxy", ""),
         **{node: ("system:node:" + node, "system:nodes") for node in NODES}}


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class ControlPlane:
    def __init__(self, machine, cache):
        self.machine, self.bin = machine, os.path.join(cache, "bin")
        self.pki = os.path.join(machine.folder, "pki")
        self.api = None

    def file(self, name):
        return os.path.join(self.pki, name)

    def kubeconfig(self, user):
        return self.file(user + ".kubeconfig")

    def make_certificates(self):
        os.makedirs(self.pki, mode=0o700, exist_ok=True)
        names = "DNS:kubernetes,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:%s,IP:%s" % (CONTROL_IP, API_IP)
        sh("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=skein-try",
           "-keyout", self.file("ca.key"), "-out", self.file("ca.crt"))
        self._certificate("api", "/CN=kube-apiserver", "subjectAltName=" + names)
        self._certificate("kubelet-client", "/O=system:masters/CN=kube-apiserver", "extendedKeyUsage=clientAuth")
        sh("openssl", "genrsa", "-out", self.file("sa.key"), "2048")
        sh("openssl", "rsa", "-in", self.file("sa.key"), "-pubout", "-out", self.file("sa.pub"))
        tokens = {user: os.urandom(16).hex() for user in USERS}
        write(self.file("tokens.csv"), "".join('%s,%s,%d,"%s"\n' % (tokens[user], name, number, group) for number, (user, (name, group))
                                                in enumerate(USERS.items())))
        for user in USERS:
            write(self.kubeconfig(user), KUBECONFIG % (CONTROL_IP, self.file("ca.crt"), tokens[user]))
        self.api = Api(CONTROL_IP, self.file("ca.crt"), tokens["admin"])

    def _certificate(self, name, subject, extension):
        request, extensions = self.file(name + ".csr"), self.file(name + ".ext")
        write(extensions, extension + "\n")
        sh("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", self.file(name + ".key"), "-out", request)
        sh("openssl", "x509", "-req", "-in", request, "-CA", self.file("ca.crt"), "-CAkey", self.file("ca.key"), "-CAcreateserial",
           "-days", "30", "-out", self.file(name + ".crt"), "-extfile", extensions)

    def start(self):
        self.make_certificates()
        url = "http://127.0.0.1:2379"
        self.machine.run("etcd", "etcd", "--data-dir", os.path.join(self.machine.folder, "etcd"), "--listen-client-urls", url,
                         "--advertise-client-urls", url, "--log-level", "error", "--unsafe-no-fsync")
        self.machine.run("kube-apiserver", self.bin + "/kube-apiserver", *self._api_server_flags(url))
        wait_until(self._not_ready, "the API server's /readyz", 180)
        self.machine.run("kube-controller-manager", self.bin + "/kube-controller-manager",
                         "--kubeconfig=" + self.kubeconfig("manager"), "--service-account-private-key-file=" + self.file("sa.key"),
                         "--root-ca-file=" + self.file("ca.crt"), "--use-service-account-credentials=true", "--leader-elect=false",
                         "--node-monitor-period=1s", "--node-monitor-grace-period=16s")
        self.machine.run("kube-scheduler", self.bin + "/kube-scheduler", "--kubeconfig=" + self.kubeconfig("scheduler"),
                         "--leader-elect=false")
        self._make_dns_service()

    def _api_server_flags(self, etcd):
        return ["--etcd-servers=" + etcd, "--service-cluster-ip-range=" + SERVICES, "--advertise-address=" + CONTROL_IP,
                "--tls-cert-file=" + self.file("api.crt"), "--tls-private-key-file=" + self.file("api.key"),
                "--client-ca-file=" + self.file("ca.crt"), "--token-auth-file=" + self.file("tokens.csv"),
                "--kubelet-client-certificate=" + self.file("kubelet-client.crt"), "--kubelet-client-key=" + self.file("kubelet-client.key"),
                "--kubelet-preferred-address-types=InternalIP", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
                "--service-account-key-file=" + self.file("sa.pub"), "--service-account-signing-key-file=" + self.file("sa.key"),
                "--service-account-issuer=https://kubernetes.default.svc", "--profiling=false", "--event-ttl=3h"]

    def _not_ready(self):
        try:
            self.api.call("GET", "/readyz", timeout_s=2)
            return None
        except (OSError, ApiError) as error:
            return str(error)

    def _make_dns_service(self):
        """The name server runs beside the control plane, outside any pod; a Service without a selector leads to it."""
        name = {"metadata": {"name": "kube-dns", "namespace": "kube-system"}}
        ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
        self.api.create("services", "kube-system", {**name, "spec": {"clusterIP": DNS_IP, "ports": ports}})
        self.api.create("endpoints", "kube-system", {**name, "subsets": [{"addresses": [{"ip": NAMES_IP}], "ports": ports}]})


KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: try, cluster: {server: "https://%s:6443", certificate-authority: %s}}]
users: [{name: user, user: {token: %s}}]
contexts: [{name: try, context: {cluster: try, user: user}}]
current-context: try
"""
