#!/usr/bin/env python3
"""A cluster in TLS: the four programs with --tls-dir and --mtls answer over https, renewed certificates are used without a restart,
and processes without the right certificate or token do not get in."""
import os
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, Process, binaries_from_argv, free_ports, run_tests  # noqa: E402
from tls import ROLES, TlsCluster  # noqa: E402

MODEL = os.path.join("deploy", "models", "fledgling")
PROMPT = {"prompt": "A red kite is", "max_tokens": 8, "temperature": 0}


def it_answers_over_https_and_refuses_the_rest():
    with TlsCluster(binaries_from_argv(), MODEL, prefill=1, decode=1) as cluster:
        answer = cluster.post("/v1/completions", dict(PROMPT, model=cluster.name))
        assert answer["choices"][0]["text"], answer
        expires = cluster.metric(cluster.processes["decode-0"], "skein_tls_certificate_expires_timestamp_seconds")
        assert expires > 1.7e9, expires
        # Plain text at the router's port.
        try:
            cluster.request("GET", "/v1/models", base=cluster.url.replace("https:", "http:"))
            raise AssertionError("plain text was answered")
        except HttpFailure as failure:
            assert failure.code == 400 and "https://" in failure.error()["message"], failure
        # A worker's certificate may not ask for the status; an operator's may.
        ask = [cluster.binaries["skeinctl"], "status", "--orchestrator", cluster.orchestrator, "--format=json"]
        refused = subprocess.run([*ask, "--tls-dir=" + cluster.tls("decode-worker")], check=False, capture_output=True, text=True)
        assert refused.returncode != 0 and "operator" in refused.stderr, refused
        # A decode-worker with the certificate of another role does not register.
        for index, (role, why) in enumerate((("router", "the caller's certificate is for router of this trust domain"),
                                             ("prefill-worker", "a decode-worker registers with a certificate for prefill-worker"))):
            name = "decode-%d" % (8 + index)
            cluster.environments[name] = {"SKEIN_TLS_DIR": cluster.tls(role), "SKEIN_MTLS": "cluster"}
            cluster.start_worker("decode", 8 + index)
            cluster.until(lambda name=name, why=why: why in cluster.processes[name].text(), "it says why it is refused")
            assert cluster.serving() == 2
            cluster.kill(name)


def what_a_workers_admin_port_was_told_reaches_the_orchestrator():
    with TlsCluster(binaries_from_argv(), MODEL, prefill=1, decode=2) as cluster:
        admin = cluster.processes["decode-1"].admin().split("//")[1]
        subprocess.run([cluster.binaries["skeinctl"], "drain", "--admin=" + admin, "--tls-dir=" + cluster.tls("operator")], check=True)
        cluster.until(lambda: cluster.lines("orchestrator", "drain ordered"), "the orchestrator takes the worker's own order")
        assert not cluster.lines("orchestrator", "drain refused"), cluster.processes["orchestrator"].text()


def renewed_certificates_are_used_without_a_restart():
    with TlsCluster(binaries_from_argv(), MODEL, prefill=1, decode=1) as cluster:
        def serial():
            host, port = cluster.url[len("https://"):].split(":")
            with socket.create_connection((host, int(port)), timeout=20) as plain:
                with cluster.ssl.wrap_socket(plain, server_hostname=host) as tls:
                    return tls.getpeercert()["serialNumber"]
        before = serial()
        stream = cluster.stream("/v1/completions", dict(PROMPT, model=cluster.name, max_tokens=64))
        next(stream)
        for role in ROLES:
            cluster.authority.issue(cluster.tls(role), role)
        cluster.until(lambda: serial() != before, "the router shows its new certificate")
        assert list(stream), "the stream went on"
        cluster.until(lambda: all(cluster.lines(name, "TLS files reloaded") for name in cluster.processes), "all have read theirs")
        assert cluster.post("/v1/completions", dict(PROMPT, model=cluster.name))["choices"][0]["text"]
        # A file that cannot be used changes nothing.
        with open(os.path.join(cluster.tls("router"), "tls.crt"), "w", encoding="utf-8") as file:
            file.write("nothing")
        cluster.until(lambda: cluster.lines("router", "TLS files not reloaded"), "the router says that it cannot use the file")
        assert cluster.metric(cluster.processes["router"], "skein_tls_reloads_total", 'result="failed"') == 1
        serial()


def a_worker_without_the_cluster_token_does_not_register():
    with Cluster(binaries_from_argv(), MODEL, prefill=1, decode=1) as cluster:
        cluster.stop()
        token = os.path.join(cluster.folder, "token")
        wrong = os.path.join(cluster.folder, "wrong")
        for path, text in ((token, "the-secret-of-this-cluster"), (wrong, "the-secret-of-another")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        for name in ("orchestrator", "prefill-0", "decode-0", "router", "skeinctl"):
            cluster.environments[name] = {"SKEIN_CLUSTER_TOKEN_FILE": token}
        cluster.start()
        assert cluster.post("/v1/completions", dict(PROMPT, model=cluster.name))["choices"][0]["text"]
        cluster.start_worker("decode", 8)
        cluster.until(lambda: "carries no cluster token" in cluster.processes["decode-8"].text(), "it is told that it has no token")
        cluster.environments["decode-9"] = {"SKEIN_CLUSTER_TOKEN_FILE": wrong}
        cluster.start_worker("decode", 9)
        cluster.until(lambda: "carries a wrong cluster token" in cluster.processes["decode-9"].text(), "it is told that its token is wrong")
        assert cluster.serving() == 2
        for name in ("decode-8", "decode-9"):
            cluster.kill(name)


class WithEtcd(TlsCluster):
    """The orchestrator's store is an etcd that asks its clients for certificates."""

    def before_start(self):
        folder = self.tls("etcd")
        self.authority.issue(folder, "etcd")
        port = free_ports(2)
        client, peer = "https://127.0.0.1:%d" % port, "http://127.0.0.1:%d" % (port + 1)
        self.processes["etcd"] = Process("etcd", [
            "etcd", "--name=one", "--data-dir=" + os.path.join(self.folder, "etcd"), "--log-level=warn",
            "--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
            "--initial-advertise-peer-urls=" + peer, "--initial-cluster=one=" + peer, "--client-cert-auth",
            "--trusted-ca-file=" + os.path.join(folder, "ca.crt"), "--cert-file=" + os.path.join(folder, "tls.crt"),
            "--key-file=" + os.path.join(folder, "tls.key")], self.folder)
        self.flags["orchestrator"] = ["--store=etcd", "--etcd=" + client]

    def stop(self):
        super().stop()
        self.kill("etcd")


def the_store_is_an_etcd_in_tls():
    if shutil.which("etcd") is None:
        return "skip: there is no etcd on this machine (tools/install_deps etcd)"
    with WithEtcd(binaries_from_argv(), MODEL, prefill=1, decode=1) as cluster:
        assert cluster.post("/v1/completions", dict(PROMPT, model=cluster.name))["choices"][0]["text"]
        assert cluster.metric(cluster.processes["orchestrator"], "skein_orchestrator_leader") == 1
    return None


def a_bad_folder_is_one_line_at_start():
    folder = os.path.join(os.environ["TEST_TMPDIR"], "empty")
    os.makedirs(folder)
    for name, program in binaries_from_argv().items():
        if name == "skeinctl":
            continue
        model = [] if name == "orchestrator" else ["--model=" + MODEL]
        done = subprocess.run([program, "--tls-dir=" + folder, *model], check=False, capture_output=True, text=True)
        assert done.returncode == 2, done
        assert done.stderr.splitlines()[0].endswith("error: --tls-dir: %s/ca.crt: cannot be read" % folder), done.stderr


if __name__ == "__main__":
    run_tests(it_answers_over_https_and_refuses_the_rest, what_a_workers_admin_port_was_told_reaches_the_orchestrator,
              renewed_certificates_are_used_without_a_restart, a_worker_without_the_cluster_token_does_not_register, the_store_is_an_etcd_in_tls, a_bad_folder_is_one_line_at_start)
