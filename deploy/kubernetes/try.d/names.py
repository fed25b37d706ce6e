"""Names of services and pods, as Kubernetes' DNS specification 1.1 has them, served by dnsmasq from a file of hosts.

  SERVICE.NAMESPACE.svc.cluster.local             the Service's address; of a headless one the addresses of its pods
  POD.SERVICE.NAMESPACE.svc.cluster.local         a pod with a hostname behind a headless Service
The file is written anew at each change of Services or Endpoints, and dnsmasq reads it again at SIGHUP.
"""
import os
import signal
import threading

from api import wait_until
from machine import sh
from network import NAMES_IP

DOMAIN = "svc.cluster.local"


def hosts(services, endpoints):
    """Lines "ADDRESS NAME" of a file of hosts, sorted."""
    lines = set()
    for service in services:
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        address = service["spec"].get("clusterIP")
        if address and address != "None":
            lines.add("%s %s.%s.%s" % (address, name, namespace, DOMAIN))
    headless = {(s["metadata"]["namespace"], s["metadata"]["name"]) for s in services if s["spec"].get("clusterIP") == "None"}
    for endpoint in endpoints:
        name, namespace = endpoint["metadata"]["name"], endpoint["metadata"]["namespace"]
        if (namespace, name) in headless:
            lines.update(_pods(endpoint, "%s.%s.%s" % (name, namespace, DOMAIN)))
    return sorted(lines)


def _pods(endpoint, service):
    # An address that is not ready is in the set only where the Service publishes it: the controller has put it among the ready ones.
    for subset in endpoint.get("subsets") or []:
        for address in subset.get("addresses") or []:
            yield "%s %s" % (address["ip"], service)
            if address.get("hostname"):
                yield "%s %s.%s" % (address["ip"], address["hostname"], service)


class NameServer:
    def __init__(self, machine, api):
        self.machine, self.api = machine, api
        self.file = os.path.join(machine.folder, "hosts")
        self.lock, self.services, self.endpoints, self.pid = threading.Lock(), {}, {}, 0

    def start(self, stop):
        with open(self.file, "w", encoding="ascii"):
            pass
        self.machine.run("dnsmasq", "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--no-resolv", "--no-hosts",
                         "--addn-hosts=" + self.file, "--listen-address=" + NAMES_IP, "--bind-interfaces", "--local=/cluster.local/",
                         "--local-ttl=1", "--user=root", "--pid-file=/run/dnsmasq.pid")
        wait_until(self._not_started, "dnsmasq", 60)  # before it has its handlers SIGHUP would end it
        self.api.watch("services", self._services, stop)
        self.api.watch("endpoints", self._endpoints, stop)

    def _not_started(self):
        with open(self.machine.log("dnsmasq"), encoding="utf-8") as log:
            return None if ": started" in log.read() else "it has not said that it started"

    def _services(self, things, _):
        with self.lock:
            self.services = things
            self._write()

    def _endpoints(self, things, _):
        with self.lock:
            self.endpoints = things
            self._write()

    def _write(self):
        with open(self.file, encoding="ascii") as file:
            before = file.read()
        text = "".join(line + "\n" for line in hosts(self.services.values(), self.endpoints.values()))
        if text == before:
            return
        with open(self.file + ".draft", "w", encoding="ascii") as file:
            file.write(text)
        os.replace(self.file + ".draft", self.file)
        self.pid = self.pid or int(sh("pgrep", "--ns", self.machine.init, "-x", "dnsmasq").split()[0])
        os.kill(self.pid, signal.SIGHUP)
