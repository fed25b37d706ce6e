#!/usr/bin/env python3
"""down stops what up started and nothing else; what up takes from the machine; ask, against a server made here."""
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position


class Local:
    """A run folder, and sleeping processes that are started as up starts its own."""

    def __init__(self, folder):
        self.run = os.path.join(os.path.realpath(folder), "run")
        os.makedirs(os.path.join(self.run, "bin"))
        self.processes = {}

    def start(self, name, mark=True):
        binary = os.path.join(self.run, "bin", name)
        shutil.copy("/bin/sleep", binary)
        environment = dict(os.environ, SKEIN_RUN_DIR=self.run)
        if mark:
            environment["SKEIN_UP"] = name + " " + self.run
        process = subprocess.Popen([binary, "1000"], env=environment, cwd=self.run, start_new_session=True)
        self.processes[name] = process
        with open(os.path.join(self.run, name + ".pid"), "w", encoding="utf-8") as file:
            file.write("%d\n" % process.pid)
        while os.readlink("/proc/%d/exe" % process.pid) != binary:  # not yet past exec
            time.sleep(0.01)
        # Whoever is the parent reaps, as init does for what up started; a zombie has no environment.
        threading.Thread(target=process.wait, daemon=True).start()
        return process

    def down(self, *arguments, run=None):
        return subprocess.run([os.path.join(HERE, "down"), *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ, SKEIN_RUN_DIR=run or self.run), timeout=60)

    def lives(self, name):
        return self.processes[name].poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()


def local():
    return Local(tempfile.mkdtemp(prefix="local-", dir=os.environ.get("TEST_TMPDIR")))


def down_stops_router_then_workers_then_orchestrator():
    with local() as cluster:
        for name in ("orchestrator", "prefill-0", "decode-10", "router"):
            cluster.start(name)
        state = os.path.join(cluster.run, "local.json")
        with open(state, "w", encoding="utf-8") as file:
            file.write('{"orchestrator": "127.0.0.1:1", "run_dir": "%s"}\n' % cluster.run)
        done = cluster.down()
        lines = done.stdout.splitlines()
        assert done.returncode == 0 and lines[-1] == "down: 4 processes stopped", done
        assert lines[0].startswith("router") and lines[3].startswith("orchestrator"), lines
        assert not os.path.exists(state) and not [f for f in os.listdir(cluster.run) if f.endswith(".pid")]
        assert cluster.down().stdout == "down: 0 processes stopped\n"


def down_stops_all_routers_first_and_what_orchestrators_use_last():
    with local() as cluster:
        for name in ("etcd", "orchestrator-0", "orchestrator-1", "decode-0", "router-0", "router-1"):
            cluster.start(name)
        done = cluster.down()
        order = [line.split()[0].split("-")[0] for line in done.stdout.splitlines()]
        assert done.returncode == 0 and order == ["router", "router", "decode", "orchestrator", "orchestrator", "etcd", "down:"], done


def help_and_wrong_words_stop_nothing():
    with local() as cluster:
        cluster.start("router")
        for arguments, code in ((["--help"], 0), (["--hlep"], 2), (["now"], 2), (["--quiet", "--hlep"], 2)):
            done = cluster.down(*arguments)
            assert done.returncode == code, done
            assert cluster.lives("router"), arguments


def down_needs_no_file():
    for lose in (lambda run: [os.remove(os.path.join(run, f)) for f in os.listdir(run) if f.endswith(".pid")],
                 lambda run: shutil.rmtree(os.path.join(run, "bin")),
                 lambda run: shutil.copy("/bin/true", shutil.rmtree(os.path.join(run, "bin")) or run + "/x"),
                 shutil.rmtree):
        with local() as cluster:
            cluster.start("router")
            cluster.start("prefill-0")
            lose(cluster.run)
            assert "down: 2 processes stopped" in cluster.down().stdout
            assert not cluster.lives("router") and not cluster.lives("prefill-0")


def down_finds_a_checkout_that_was_moved():
    with local() as cluster:
        cluster.start("router")
        moved = cluster.run + "-moved"
        os.rename(cluster.run, moved)
        assert cluster.down(run=moved).stdout.endswith("down: 1 processes stopped\n")
        assert not cluster.lives("router")


def down_spares_strangers():
    with local() as cluster, local() as other:
        cluster.start("router", mark=False)  # a stale pid file names it, and its shell exported SKEIN_RUN_DIR
        other.start("prefill-0")
        os.rename(os.path.join(other.run, "prefill-0.pid"), os.path.join(cluster.run, "decode-0.pid"))
        with open(os.path.join(cluster.run, "local.json"), "w", encoding="utf-8") as file:
            file.write('{"run_dir": "%s"}\n' % other.run)
        assert cluster.down().stdout == "down: 0 processes stopped\n"
        assert cluster.lives("router") and other.lives("prefill-0")
        assert os.path.exists(os.path.join(cluster.run, "local.json"))


def machine(call, **environment):
    return int(subprocess.run(["bash", "-ec", '. "%s/machine.sh"; %s' % (HERE, call)], check=True, text=True,
                              stdout=subprocess.PIPE, env=dict(os.environ, **environment)).stdout)


def defaults_suit_the_machine():
    assert 1 <= machine("machine_cores") <= os.cpu_count()
    assert 0 < machine("machine_free_mib") <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    # (cores, MiB free) -> compilers
    for case, jobs in (((2, 3600), 2), ((2, 2500), 1), ((2, 900), 1), ((16, 64000), 16), ((16, 8192), 7)):
        assert machine("build_jobs %d %d" % case) == jobs, (case, jobs)
    for case, threads in (((2, 4), 1), ((1, 4), 1), ((16, 4), 4), ((17, 4), 4), ((4, 6), 1)):
        assert machine("worker_threads %d %d" % case) == threads, (case, threads)
    # (MiB free, MiB of weights, workers) -> MiB for KV of each
    for case, mib in (((3600, 10, 4), 384), ((700, 10, 4), 22), ((100, 10, 4), 16), ((64000, 16000, 2), 4096)):
        assert machine("worker_kv_mib %d %d %d" % case) == mib, (case, mib)


def limits_of_cgroups_count():
    with tempfile.TemporaryDirectory() as folder:
        def write(name, text):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        free = 'cgroup_free_bytes "%s"' % folder
        write("memory.max", "4294967296\n")
        write("memory.current", "3221225472\n")
        write("memory.stat", "anon 1\nfile 1073741824\nshmem 268435456\n")
        assert machine(free) == (1 << 30) + (3 << 28)
        write("memory.max", "max\n")
        assert machine(free + " | wc -l") == 0
        os.remove(os.path.join(folder, "memory.max"))
        write("memory.limit_in_bytes", "2147483648\n")
        write("memory.usage_in_bytes", "1073741824\n")
        write("memory.stat", "cache 5\ntotal_cache 1048576\ntotal_shmem 0\n")
        assert machine(free) == (1 << 30) + (1 << 20)
        write("memory.limit_in_bytes", "9223372036854771712\n")
        assert machine(free + " | wc -l") == 0


class Api(http.server.BaseHTTPRequestHandler):
    """A model without chat template, behind a key if the server has one; `asked` keeps what came."""

    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        if self.server.key and self.headers.get("Authorization") != "Bearer " + self.server.key:
            return self.answer(401, '{"error": {"message": "a key is needed"}}')
        if self.path == "/v1/chat/completions":
            return self.answer(400, '{"error": {"message": "The model \'m\' has no chat template; use /v1/completions."}}')
        if self.server.broken:
            return self.answer(200, 'data: {"error": {"message": "it broke"}}\n\n')
        return self.answer(200, 'data: {"choices": [{"text": " cat."}]}\n\ndata: {"choices": [], "usage": '
                           '{"prompt_tokens": 8, "completion_tokens": 2}}\n\ndata: [DONE]\n\n')

    def answer(self, code, text):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def asked_of(key="", broken=False, arguments=(), key_known=""):
    """(the finished ask, what the server was asked)."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Api)
    server.asked, server.key, server.broken = [], key, broken
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = subprocess.run([os.path.join(HERE, "ask"), "--url", "http://127.0.0.1:%d" % server.server_port, "--model", "m",
                               *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                              env=dict(os.environ, SKEIN_API_KEY=key_known))
        return done, server.asked
    finally:
        server.shutdown()
        server.server_close()


def a_base_model_is_asked_through_completions():
    done, asked = asked_of()
    assert done.returncode == 0 and "there was a cat." in done.stdout, done
    assert [path for path, _, _ in asked] == ["/v1/chat/completions", "/v1/completions"], asked
    assert asked[1][2]["temperature"] == 0 and asked[1][2]["stream"]


def a_broken_answer_is_a_failure():
    done, _ = asked_of(broken=True)
    assert done.returncode == 1 and done.stderr.strip() == "ask: it broke", done


def what_cannot_be_asked_is_said():
    for arguments, code, says in ((["--url", "foo"], 2, "--url: 'foo' is not http://HOST:PORT"),
                                  (["--api-key-file", "/no/such/file"], 1, "/no/such/file")):
        done, asked = asked_of(arguments=arguments)
        assert done.returncode == code and says in done.stderr and "Traceback" not in done.stderr and not asked, done


def the_key_comes_from_the_file_or_the_environment():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write("# keys\nsha256:00\n  plain-key \nother\n")
        file.flush()
        done, asked = asked_of(key="plain-key", arguments=["--api-key-file", file.name])
        assert done.returncode == 0 and asked[0][1] == "Bearer plain-key", (done, asked)
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write("sha256:00\n")
        file.flush()
        arguments = ["--api-key-file", file.name]
        done, _ = asked_of(key="k", arguments=arguments, key_known="k")
        assert done.returncode == 0, done
        done, asked = asked_of(key="k", arguments=arguments)
        assert done.returncode == 4 and asked[0][1] is None, (done, asked)
        done, _ = asked_of(key="k", arguments=arguments, key_known="wrong")
        assert done.returncode == 1 and "401: a key is needed" in done.stderr, done


if __name__ == "__main__":
    run_tests(down_stops_all_routers_first_and_what_orchestrators_use_last, down_stops_router_then_workers_then_orchestrator,
              help_and_wrong_words_stop_nothing, down_needs_no_file,
              down_finds_a_checkout_that_was_moved, down_spares_strangers, defaults_suit_the_machine,
              limits_of_cgroups_count, a_base_model_is_asked_through_completions, a_broken_answer_is_a_failure,
              what_cannot_be_asked_is_said, the_key_comes_from_the_file_or_the_environment)
