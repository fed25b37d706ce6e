#!/usr/bin/env python3
"""A process runs out of descriptors, of address space, or of room for its log, while streams run: streams go on, new requests are answered,
and when the limit is raised again everything is as before."""
import http.client
import os
import resource
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from standbys import ROUTERS, Standbys, new_requests_succeed, nobody_notices  # noqa: E402  pylint: disable=wrong-import-position

PAGE = 4096


class Limited:
    """A process with a lower soft limit."""

    def __init__(self, process, limit, value):
        self.pid, self.limit = process.popen.pid, limit
        self.before = resource.prlimit(self.pid, limit)
        resource.prlimit(self.pid, limit, (value, self.before[1]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if os.path.exists("/proc/%d" % self.pid):
            resource.prlimit(self.pid, self.limit, self.before)


def open_descriptors(process):
    """All below it are in use, as far as it has not closed some in between."""
    return 1 + max(int(name) for name in os.listdir("/proc/%d/fd" % process.popen.pid))


def a_router_without_descriptors_refuses_and_its_streams_go_on():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder) as cluster:
        router = cluster.processes[ROUTERS[0]]
        full, other = cluster.doors()

        def connect():
            """A connection that stays open, and the answer to a request on it."""
            connection = http.client.HTTPConnection(full.url[len("http://"):], timeout=60)
            connection.request("GET", "/v1/models")
            return connection, connection.getresponse()

        def starve():
            with Limited(router, resource.RLIMIT_NOFILE, open_descriptors(router)):
                held = []
                while True:
                    connection, answer = connect()
                    text = answer.read().decode()
                    held.append(connection)
                    if answer.status != 200:
                        break
                assert answer.status == 503 and "no file descriptor" in text, (answer.status, text)
                assert answer.headers["Retry-After"] == "1", answer.headers
                assert other.get("/v1/models")["data"], "the other router serves"
                for connection in held:
                    connection.close()
            full.await_ready()
        nobody_notices(cluster, starve)
        refusals = cluster.metric(router, "skein_router_answers_total", 'status="503"')
        assert refusals >= 1, cluster.get("/metrics", raw=True, base=router.admin())
        cluster.await_whole()


def workers_and_orchestrators_without_descriptors_serve_those_they_have():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder, lease_s=30) as cluster:
        def starve_each():
            for name, process in cluster.processes.items():
                if name in ROUTERS:
                    continue
                with Limited(process, resource.RLIMIT_NOFILE, open_descriptors(process)):
                    new_requests_succeed(cluster)
        nobody_notices(cluster, starve_each)
        cluster.await_whole()


def no_address_space_costs_no_answer():
    with tempfile.TemporaryDirectory() as folder, Standbys(folder, lease_s=30) as cluster:
        def starve_each():
            for name, process in cluster.processes.items():
                if name in ROUTERS:  # one that dies takes its streams with it
                    continue
                with Limited(process, resource.RLIMIT_AS, PAGE):  # nothing can be mapped any more
                    new_requests_succeed(cluster)
        nobody_notices(cluster, starve_each)
        cluster.await_whole()


def a_full_disk_of_the_log_costs_no_answer():
    with tempfile.TemporaryDirectory() as folder, open("/dev/full", "wb") as full:  # each write fails: no space is left
        cluster = Standbys(folder)
        for name in ("orchestrator", "standby", "prefill-0", "prefill-1", "decode-0", "decode-1", *ROUTERS):
            cluster.stderr[name] = full.fileno()
        with cluster:
            nobody_notices(cluster, lambda: None)
            for process in cluster.processes.values():
                lost = cluster.metric(process, "skein_log_lines_lost_total")
                assert lost >= 1, (process.name, lost)


if __name__ == "__main__":
    run_tests(a_router_without_descriptors_refuses_and_its_streams_go_on,
              workers_and_orchestrators_without_descriptors_serve_those_they_have,
              no_address_space_costs_no_answer,
              a_full_disk_of_the_log_costs_no_answer)
