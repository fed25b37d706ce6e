"""A cluster in TLS, each process with a certificate of its role by an authority of the cluster's own."""
import json
import os
import ssl
import subprocess

from cluster import Cluster

ROLES = ("orchestrator", "router", "prefill-worker", "decode-worker", "operator")


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Authority:
    def __init__(self, folder):
        os.makedirs(folder)
        self.key, self.certificate = os.path.join(folder, "ca.key"), os.path.join(folder, "ca.crt")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test",
                "-keyout", self.key, "-out", self.certificate)

    def issue(self, folder, role):
        """A key and certificate of the role, in the layout of --tls-dir; each file is replaced by a rename."""
        os.makedirs(folder, exist_ok=True)
        path = lambda name: os.path.join(folder, name)  # noqa: E731
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + role,
                "-keyout", path("key.new"), "-out", path("csr"))
        with open(path("names"), "w", encoding="utf-8") as names:
            names.write("subjectAltName=URI:spiffe://test/skein/%s,IP:127.0.0.1" % role)
        serial = str(int.from_bytes(os.urandom(8), "big"))
        openssl("x509", "-req", "-days", "1", "-CA", self.certificate, "-CAkey", self.key, "-set_serial", serial, "-extfile", path("names"),
                "-in", path("csr"), "-out", path("crt.new"))
        with open(self.certificate, "rb") as source, open(path("ca.new"), "wb") as target:
            target.write(source.read())
        for new, name in (("ca.new", "ca.crt"), ("key.new", "tls.key"), ("crt.new", "tls.crt")):
            os.rename(path(new), path(name))


class TlsCluster(Cluster):
    scheme = "https"
    mtls = "cluster"

    def start(self):
        self.authority = Authority(os.path.join(self.folder, "authority"))
        for role in ROLES:
            self.authority.issue(self.tls(role), role)
        self.ssl = ssl.create_default_context(cafile=self.authority.certificate)
        self.environments["skeinctl"] = {"SKEIN_TLS_DIR": self.tls("operator")}
        self.before_start()
        super().start()

    def before_start(self):
        """What the cluster needs, with certificates of its authority."""

    def tls(self, role):
        return os.path.join(self.folder, "tls", role)

    def run(self, name, binary, arguments):
        self.environments.setdefault(name, {"SKEIN_TLS_DIR": self.tls(binary.replace("_", "-")), "SKEIN_MTLS": self.mtls})
        super().run(name, binary, arguments)

    def lines(self, name, msg):
        whole = self.processes[name].text().rpartition("\n")[0]
        return [line for line in map(json.loads, filter(lambda one: one.startswith("{"), whole.splitlines())) if line["msg"] == msg]
