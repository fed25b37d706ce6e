"""A real Skein cluster for tests: the four binaries as processes on loopback, on free ports, with bounded waits.

    with Cluster(binaries_from_argv(), model=DIR) as cluster:
        answer = cluster.post("/v1/completions", {...})

Leaving the block stops every process with SIGTERM, router first, and fails if one of them did not end well by itself.
Only Python's standard library is used.
"""
import http.client
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

NAMES = ("router", "orchestrator", "prefill_worker", "decode_worker", "skeinctl")
START_S = 60
STOP_S = 40


def shared(*parts):
    """A path in ../shared, or None if it does not exist."""
    root = os.environ.get("SKEIN_SHARED", "")
    path = os.path.join(root, *parts)
    return path if root and os.path.exists(path) else None


def binaries_from_argv(argv=None):
    """Binaries by name, from the paths that the BUILD file gives as arguments."""
    found = {}
    for path in (argv or sys.argv)[1:]:
        name = os.path.basename(path)
        if name in NAMES:
            found[name] = os.path.abspath(path)
    missing = [n for n in NAMES if n not in found]
    assert not missing, "no path of %s among the arguments" % missing
    return found


def device_from_argv(argv=None):
    """The workers' --device, if the BUILD file gives one."""
    return [a for a in (argv or sys.argv)[1:] if a.startswith("--device=")]


class HttpFailure(Exception):
    def __init__(self, code, body, headers):
        super().__init__("HTTP %d: %s" % (code, body[:500]))
        self.code, self.body, self.headers = code, body, headers

    def error(self):
        return json.loads(self.body)["error"]


def bound(command):
    """The command, which the kernel kills (SIGKILL) when the thread that started it ends. So no child outlives this process,
    however it ends. Start long-lived processes on the main thread."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def end_by_sigterm():
    """From now on SIGTERM raises SystemExit in the main thread, so that blocks end what they started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def module_of(tree, name):
    """The module `name` of tests/cluster in another checkout."""
    spec = importlib.util.spec_from_file_location("other_" + name, os.path.join(tree, "tests", "cluster", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Process:
    """A process that ends with the thread that makes this object (`bound`). Its standard error goes to `stderr`, else to its log.
    `environment`: variables beside our own. `scheme`: of its admin port."""

    def __init__(self, name, command, folder, stderr=None, environment=None, scheme="http"):
        self.name, self.scheme = name, scheme
        self.log = os.path.join(folder, name + ".log")
        self.admin_port_file = os.path.join(folder, name + ".admin")
        for argument in command:  # files of a killed process must not be read for this one
            if "port-file=" in argument and os.path.exists(argument.split("=", 1)[1]):
                os.remove(argument.split("=", 1)[1])
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(bound(command), stdout=log, stderr=log if stderr is None else stderr,
                                          stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def tail(self, lines=15):
        return "".join(self.text().splitlines(keepends=True)[-lines:])

    def admin(self):
        """The URL of its admin pages; waits until it listens."""
        end = time.monotonic() + START_S
        while not os.path.exists(self.admin_port_file):  # written atomically, by a rename
            assert self.popen.poll() is None, "%s ended with %s:\n%s" % (self.name, self.popen.returncode, self.tail())
            assert time.monotonic() < end, self.name + " does not listen:\n" + self.tail()
            time.sleep(0.02)
        with open(self.admin_port_file, encoding="utf-8") as port:
            return self.scheme + "://127.0.0.1:" + port.read().strip()

    def rss_kib(self):
        for line in open("/proc/%d/status" % self.popen.pid, encoding="utf-8"):
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0


class Cluster:
    scheme, ssl = "http", None  # of routers and admin ports; the context of Python's clients

    def __init__(self, binaries, model, prefill=2, decode=2, worker_flags=(), prefill_flags=(), decode_flags=(),
                 router_flags=(), orchestrator_flags=(), name=None):
        self.binaries, self.model = binaries, os.path.abspath(model)
        self.name = name or os.path.basename(self.model)
        self.counts = {"prefill": prefill, "decode": decode}
        self.flags = {"prefill": [*worker_flags, *prefill_flags], "decode": [*worker_flags, *decode_flags],
                      "router": list(router_flags), "orchestrator": list(orchestrator_flags)}
        self.folder = tempfile.mkdtemp(prefix="cluster-", dir=os.environ.get("TEST_TMPDIR"))
        self.processes = {}
        self.stderr = {}  # name: descriptor, of processes whose standard error is no file
        self.environments = {}  # name: variables of its own

    # ---- life cycle ----

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
            else:
                self.dump()
        finally:
            self.kill_all()

    def start(self):
        port = self.port_file("orchestrator")
        self.run("orchestrator", "orchestrator", ["--port=0", "--port-file=" + port])
        self.orchestrator = "127.0.0.1:" + self.await_file(port, "orchestrator")
        for role in ("prefill", "decode"):
            for i in range(self.counts[role]):
                self.start_worker(role, i)
        self.start_router()
        if all(self.counts.values()):
            self.await_ready()
            self.until(lambda: self.serving() >= len(self.workers()), "each worker serves")

    def serving(self):
        return sum(instance["state"] == "serving" for instance in self.status()["instances"])

    def start_worker(self, role, index):
        self.run("%s-%d" % (role, index), role + "_worker",
                 ["--orchestrator=" + self.orchestrator, "--model=" + self.model, "--served-name=" + self.name,
                  "--kv-gib=0.02", *device_from_argv(), *self.flags[role]])

    def start_router(self):
        port = self.port_file("router")
        self.run("router", "router", ["--orchestrator=" + self.orchestrator, "--port=0", "--port-file=" + port,
                                      "--model=%s=%s" % (self.name, self.model)])
        self.url = self.scheme + "://127.0.0.1:" + self.await_file(port, "router")

    def run(self, name, binary, arguments):
        admin = os.path.join(self.folder, name + ".admin")
        command = [self.binaries[binary], *arguments, "--admin-port=0", "--admin-port-file=" + admin,
                   *self.flags.get(name, [])]
        self.processes[name] = Process(name, command, self.folder, self.stderr.get(name), self.environments.get(name),
                                       self.scheme)

    def port_file(self, name):
        return os.path.join(self.folder, name + ".port")

    def await_file(self, path, name):
        self.until(lambda: os.path.exists(path) and os.path.getsize(path) > 0, name + " listens")
        return open(path, encoding="utf-8").read().strip()

    def until(self, condition, what, seconds=START_S):
        """Waits for a condition; fails after the time limit or if one of our processes has ended."""
        end = time.monotonic() + seconds
        while not condition():
            for process in self.processes.values():
                assert process.popen.poll() is None, "%s ended with %s:\n%s" % (
                    process.name, process.popen.returncode, process.tail())
            assert time.monotonic() < end, "not within %d s: %s" % (seconds, what)
            time.sleep(0.02)

    def await_ready(self):
        def ready():
            try:
                return self.get("/readyz", raw=True) is not None
            except (HttpFailure, OSError):
                return False
        self.until(ready, "/readyz is 200")

    def stop(self):
        order = ["router"] + [n for n in self.processes if "-" in n] + ["orchestrator"]
        bad = [problem for name in order if name in self.processes and (problem := self.end(name))]
        assert not bad, "\n".join(bad)

    def end(self, name):
        """Ends a process by SIGTERM; what was wrong with its end, if anything was."""
        process = self.processes[name]
        process.popen.send_signal(signal.SIGTERM)
        try:
            code = process.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.popen.kill()
            process.popen.wait()
            code = "no end within %d s" % STOP_S
        del self.processes[name]
        return "%s: %s\n%s" % (name, code, process.tail()) if code != 0 else ""

    def kill(self, name, how=signal.SIGKILL):
        process = self.processes[name]
        process.popen.send_signal(how)
        process.popen.wait()
        del self.processes[name]
        # ThreadSanitizer reports through the exit code of a process that ends by itself; this one
        # is killed.
        assert "WARNING: ThreadSanitizer" not in process.text(), process.text()

    def kill_all(self):
        for process in self.processes.values():
            process.popen.kill()
        for process in self.processes.values():
            process.popen.wait()
        self.processes.clear()

    def dump(self):
        for process in self.processes.values():
            print("--- %s\n%s" % (process.name, process.tail()), file=sys.stderr)

    # ---- requests ----

    def request(self, method, path, body=None, headers=None, base=None, timeout=60):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        request = urllib.request.Request((base or self.url) + path, data,
                                         {"Content-Type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.ssl) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise HttpFailure(error.code, error.read().decode(errors="replace"), error.headers) from None

    def get(self, path, raw=False, base=None):
        text = self.request("GET", path, base=base)
        return text if raw else json.loads(text)

    def post(self, path, body, timeout=60, headers=None):
        return json.loads(self.request("POST", path, body, headers, timeout=timeout))

    def stream(self, path, body, timeout=60, headers=None):
        """Yields the parsed chunks of a streamed answer; ends after [DONE]. Closing it drops the connection."""
        address = self.url.partition("://")[2]
        connection = (http.client.HTTPSConnection(address, timeout=timeout, context=self.ssl) if self.ssl is not None
                      else http.client.HTTPConnection(address, timeout=timeout))
        try:
            connection.request("POST", path, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            if answer.status != 200:
                raise HttpFailure(answer.status, answer.read().decode(errors="replace"), answer.headers)
            for line in answer:
                line = line.strip()
                if line == b"data: [DONE]":
                    return
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
            raise AssertionError("the stream ended without [DONE]")
        finally:
            connection.close()

    # ---- invariants ----

    def workers(self):
        return [p for n, p in sorted(self.processes.items()) if "-" in n]

    def status(self):
        done = subprocess.run([self.binaries["skeinctl"], "status", "--orchestrator", self.orchestrator,
                               "--format=json"], check=False, stdout=subprocess.PIPE, timeout=START_S,
                              env={**os.environ, **self.environments.get("skeinctl", {})})
        assert done.returncode in (0, 3, 4), done  # healthy, degraded, cannot serve
        # While the orchestrator does not answer, no state is known; that counts as "cannot serve".
        assert done.stdout or done.returncode == 4, done
        return json.loads(done.stdout) if done.stdout else {"instances": [], "routers": []}

    def try_skeinctl(self, *arguments):
        """How skeinctl ended on this cluster, and what it wrote."""
        return subprocess.run([self.binaries["skeinctl"], *arguments, "--orchestrator", self.orchestrator], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)

    def skeinctl(self, *arguments):
        """What skeinctl wrote; it has to end well."""
        done = self.try_skeinctl(*arguments)
        assert done.returncode == 0, done
        return done.stdout

    def metric(self, process, name, labels=""):
        """The value of one series, 0.0 if it does not exist."""
        for line in self.get("/metrics", raw=True, base=process.admin()).splitlines():
            if line.startswith(name) and labels in line:
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def held_blocks(self):
        return sum(self.metric(p, "skein_kv_blocks", 'state="held"') for p in self.workers())

    def assert_idle_and_whole(self, seconds=20):
        """Every block is free again and every core's invariants hold."""
        self.until(lambda: self.held_blocks() == 0, "all blocks are free", seconds)
        for process in self.workers():
            assert self.get("/debug/invariants", base=process.admin()) == {"ok": True}, process.name
            counts = {s: self.metric(process, "skein_kv_blocks", 'state="%s"' % s)
                      for s in ("free", "held", "cached", "total")}
            assert counts["free"] + counts["held"] + counts["cached"] == counts["total"] > 0, counts
        orchestrator = self.processes["orchestrator"]
        assert self.get("/debug/invariants", base=orchestrator.admin()) == {"ok": True}


RESERVED = []  # sockets that reserve this test's ports until it ends


def free_ports(count):
    """The first of this many adjacent free ports (up to 20), for flags that must name a port. They are below the range
    that the kernel takes itself, and a name in the network namespace keeps other tests from taking the same."""
    blocks = list(range(10000, 32000, 20))
    random.SystemRandom().shuffle(blocks)
    for first in blocks:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind("\0skein-test-ports-%d" % first)
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("0.0.0.0", port))
        except OSError:
            name.close()
            continue
        RESERVED.append(name)
        return first
    raise AssertionError("no free ports")


def run_tests(*tests):
    """Runs test functions, prints how many passed, failed, or were skipped (by returning "skip: why"); exits with 1 if any failed."""
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for test in tests:
        start = time.monotonic()
        try:
            result = test()
            outcome = "skipped" if isinstance(result, str) and result.startswith("skip") else "passed"
            why = result if outcome == "skipped" else ""
        except Exception as error:  # pylint: disable=broad-except
            import traceback
            traceback.print_exc()
            outcome, why = "failed", repr(error)[:200]
        count[outcome] += 1
        print("%-8s %s (%.1f s) %s" % (outcome, test.__name__, time.monotonic() - start, why), flush=True)
    print("CASES %(passed)d passed, %(failed)d failed, %(skipped)d skipped" % count)
    sys.exit(1 if count["failed"] else 0)
