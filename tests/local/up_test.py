#!/usr/bin/env python3
"""deploy/local/up with prebuilt programs: what it requests, what it leaves running, and its final message."""
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
from batches import Job  # noqa: E402  pylint: disable=wrong-import-position
from cluster import binaries_from_argv, free_ports, run_tests, shared  # noqa: E402  pylint: disable=wrong-import-position

FLEDGLING = os.path.join(ROOT, "deploy", "models", "fledgling")
LIMIT_S = 300
EXTRA = "<|extra|>"


class Up:
    """One run of up in its own folder; leaving the block runs down."""

    def __init__(self, *arguments, prefill=1, decode=1, key=""):
        self.folder = tempfile.mkdtemp(prefix="up-", dir=os.environ.get("TEST_TMPDIR"))
        self.run = os.path.join(self.folder, "run")
        self.url = "http://127.0.0.1:%d" % free_ports(1)
        self.environment = dict(os.environ, SKEIN_RUN_DIR=self.run, HOME=self.folder, SKEIN_API_KEY=key)
        programs = os.path.join(self.folder, "bin")
        os.mkdir(programs)
        for name, path in binaries_from_argv().items():
            os.symlink(path, os.path.join(programs, name))
        self.arguments = ["--bin", programs, "--port", self.url.rsplit(":", 1)[1], "--prefill", str(prefill), "--decode", str(decode)]
        self.result = self.again(*arguments)
        print(self.result.stdout, flush=True)
        self.code, self.last_line = self.result.returncode, self.result.stdout.splitlines()[-1]

    def again(self, *arguments):
        return self.call("up", *self.arguments, *arguments)

    def call(self, script, *arguments):
        return subprocess.run([os.path.join(ROOT, "deploy", "local", script), *arguments], env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)

    def ready(self):
        try:
            return urllib.request.urlopen(self.url + "/readyz", timeout=5).status == 200
        except OSError:
            return False

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def state(self):
        with open(os.path.join(self.run, "local.json"), encoding="utf-8") as file:
            return json.load(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("down")


def folder_with(changes):
    """A copy of fledgling's folder with replaced files: {name: text}, or None to omit one."""
    folder = os.path.join(tempfile.mkdtemp(prefix="model-", dir=os.environ.get("TEST_TMPDIR")), "changed")
    os.mkdir(folder)
    for name in os.listdir(FLEDGLING):
        if name not in changes and name != "BUILD":
            shutil.copy(os.path.join(FLEDGLING, name), folder)
    for name, text in changes.items():
        if text is not None:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
    return folder


def read(name):
    with open(os.path.join(FLEDGLING, name), encoding="utf-8") as file:
        return json.load(file)


def the_shipped_model_answers():
    with Up(prefill=2, decode=2) as up:
        assert up.code == 0 and up.last_line == "up: the cluster answers on " + up.url, up.result
        assert "it does)" in up.result.stdout and "assistant> Ana's red kite is in the barn." in up.result.stdout
        state = up.state()
        assert state["url"] == up.url and state["run_dir"] == up.run, state
        names = [p["name"] for p in state["processes"]]
        assert names == ["orchestrator", "prefill-0", "prefill-1", "decode-0", "decode-1", "router"], names
        assert len({p["admin"] for p in state["processes"]}) == 6, state
        for process in state["processes"]:
            assert process["role"] in ("orchestrator", "prefill", "decode", "router") and os.path.exists(process["log"])
            assert os.path.basename(os.readlink("/proc/%d/exe" % process["pid"])).split("_")[0] == process["role"]
            assert urllib.request.urlopen("http://%s/livez" % process["admin"], timeout=10).status == 200
        shutil.rmtree(up.run)
        done = up.call("down")
        assert done.stdout.endswith("down: 6 processes stopped\n") and "killed" not in done.stdout, done
        assert not any(os.path.exists("/proc/%d/cmdline" % p["pid"]) and
                       b"skein" in open("/proc/%d/cmdline" % p["pid"], "rb").read() for p in state["processes"])


def leaders(state):
    """The orchestrators that lead, by their metrics."""
    found = []
    for process in state["processes"]:
        if process["role"] == "orchestrator":
            with urllib.request.urlopen("http://%s/metrics" % process["admin"], timeout=10) as answer:
                if re.search(r"^skein_orchestrator_leader(\{[^}]*\})? 1$", answer.read().decode(), re.M):
                    found.append(process["name"])
    return found


def check_job(job):
    """The job ends, and each of its lines is answered once."""
    state = job.await_end(120)
    assert state["status"] == "completed", state
    names = [line["custom_id"] for line in job.output(state) if line["response"]["status_code"] == 200]
    assert sorted(names) == sorted(job.lines), names


def several_routers_and_orchestrators_run():
    """Each router answers; one orchestrator leads, and the other one after it was restarted, with the job that was there."""
    lines = {"line-%d" % i: {"model": "fledgling", "prompt": "Once %d" % i, "max_tokens": 40, "ignore_eos": True} for i in range(64)}
    for store in ("embedded", "etcd"):
        if store == "etcd" and not shutil.which("etcd"):
            print("without etcd: needs tools/install_deps etcd")
            continue
        with Up("--routers", "2", "--orchestrators", "2", "--store", store) as up:
            assert up.code == 0, up.result
            names = [p["name"] for p in up.state()["processes"]]
            assert names == ["orchestrator-0", "orchestrator-1", "prefill-0", "decode-0", "router-0", "router-1"], names
            second = "http://127.0.0.1:%d" % (int(up.url.rsplit(":", 1)[1]) + 1)
            assert second + "/v1" in up.result.stdout, up.result
            (first,) = leaders(up.state())
            job = Job([up.url, second], lines)
            job.submit()
            job.await_completed(1, 60)
            done = up.call("restart", first)
            assert done.returncode == 0, done
            check_job(job)
            for up.url in (up.url, second):
                answer = up.post("/v1/completions", {"model": "fledgling", "prompt": "Once", "max_tokens": 2})
                assert answer["usage"]["completion_tokens"] >= 1, answer
            assert leaders(up.state()) == [n for n in ("orchestrator-0", "orchestrator-1") if n != first]


def metrics_are_scraped():
    """--observe: Prometheus scrapes every process, also one that was killed and restarted; down stops all."""
    if not shutil.which("prometheus-alertmanager"):
        return "skip: needs tools/install_deps observe"
    with Up("--observe") as up:
        assert up.code == 0, up.result
        prometheus, alertmanager = re.search(r"Prometheus (http://\S+), Alertmanager (http://\S+)", up.result.stdout).groups()

        def scraped():
            with urllib.request.urlopen(prometheus + "/api/v1/query?query=up", timeout=10) as answer:
                return {one["metric"]["instance"]: (one["metric"]["job"], one["value"][1]) for one in json.load(answer)["data"]["result"]}

        def await_all():
            wanted = {p["admin"]: ("skein-" + p["role"], "1") for p in up.state()["processes"]}
            end = time.monotonic() + 60
            while not wanted.items() <= scraped().items():
                assert time.monotonic() < end, (wanted, scraped())
                time.sleep(0.2)
        await_all()
        with urllib.request.urlopen(prometheus + "/api/v1/rules?type=alert", timeout=10) as answer:
            assert "SkeinInstanceLost" in answer.read().decode()
        with urllib.request.urlopen(prometheus + "/api/v1/alertmanagers", timeout=10) as answer:
            assert alertmanager in json.load(answer)["data"]["activeAlertmanagers"][0]["url"]
        before = {p["name"]: p["admin"] for p in up.state()["processes"]}
        for pid in [p["pid"] for p in up.state()["processes"] if p["name"] == "decode-0"]:
            os.kill(pid, 9)
        done = up.call("restart", "decode-0")
        assert done.returncode == 0 and "decode-0 runs again" in done.stdout, done
        assert up.state()["processes"][2]["admin"] != before["decode-0"], up.state()
        await_all()
        wrong = up.call("restart", "decode-7")
        assert wrong.returncode == 1 and "'decode-7'" in wrong.stdout and "prefill-0" in wrong.stdout, wrong
        assert up.call("down").stdout.endswith("down: 6 processes stopped\n")
    return None


def a_base_model_is_asked_through_completions():
    config = read("tokenizer_config.json")
    del config["chat_template"]
    with Up("--model", folder_with({"tokenizer_config.json": json.dumps(config)})) as up:
        assert up.code == 0 and up.last_line == "up: the cluster answers on " + up.url, up.result
        assert "through /v1/completions" in up.result.stdout, up.result


def a_tokenizer_may_have_more_ids_than_the_embedding():
    """Ids beyond the embedding are refused; everything else works, and a demonstration that uses them leaves the cluster up."""
    tokenizer = read("tokenizer.json")
    size = read("config.json")["vocab_size"]
    tokenizer["added_tokens"].append({"id": size, "content": EXTRA, "single_word": False, "lstrip": False, "rstrip": False,
                                      "normalized": False, "special": True})
    demonstration = {"messages": [{"role": "user", "content": "Say %s." % EXTRA}]}
    with Up("--model", folder_with({"tokenizer.json": json.dumps(tokenizer),
                                    "demonstration.json": json.dumps(demonstration)})) as up:
        assert up.code == 3 and up.last_line.startswith("up: the cluster is up on %s, but the question" % up.url), up.result
        assert "ask: HTTP 400" in up.last_line and up.ready(), up.result
        question = read("demonstration.json")
        answer = up.post("/v1/chat/completions", {"model": "changed", "temperature": 0, "messages": question["messages"]})
        assert answer["choices"][0]["message"]["content"] == question["expect"], answer


def keys_guard_the_api():
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    plain, hashed = os.path.join(folder, "plain"), os.path.join(folder, "hashed")
    for path, line in ((plain, "a-key"), (hashed, "sha256:" + hashlib.sha256(b"a-key").hexdigest())):
        with open(path, "w", encoding="utf-8") as file:
            file.write("# keys\n%s\n" % line)
        os.chmod(path, 0o600)
    with Up("--api-key-file", plain) as up:
        assert up.code == 0 and up.last_line == "up: the cluster answers on " + up.url and "it does)" in up.result.stdout
        try:
            up.post("/v1/completions", {"model": "fledgling", "prompt": "Once"})
        except urllib.error.HTTPError as error:
            assert error.code == 401, error.code
        else:
            raise AssertionError("an answer without a key")
    with Up("--api-key-file", hashed) as up:
        assert up.code == 0 and "no question was asked" in up.last_line and up.ready(), up.result
    with Up("--api-key-file", hashed, key="a-key") as up:
        assert up.code == 0 and "it does)" in up.result.stdout, up.result


def what_cannot_start_leaves_nothing():
    config = read("config.json")
    config["hidden_act"] = "no-such-function"
    with Up("--model", folder_with({"config.json": json.dumps(config)})) as up:
        assert up.code == 1 and "ended at start; everything was stopped" in up.last_line, up.result
        assert "no-such-function" in up.result.stdout and up.result.stdout.count("\n--- ") == 1, up.result
        assert up.call("down").stdout == "down: 0 processes stopped\n" and not up.ready()


def wrong_words_leave_the_running_cluster():
    with Up() as up:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            for arguments, says in ((["--profile", "no-such-profile"], "--profile: "), (["--kv-gib", "0"], "--kv-gib: '0'"),
                                    (["--profile", "llama3-8b-a100", "--policy", "no-such"], "--policy: "),
                                    (["--port", str(s.getsockname()[1])], "--port: 127.0.0.1:%d is in use" % s.getsockname()[1]),
                                    (["--model", "--kv-gib", "1"], "--model needs a value")):
                again = up.again(*arguments)
                last = again.stdout.splitlines()[-1]
                assert again.returncode == 2 and last.startswith("up: " + says), again
                assert up.ready(), arguments
        again = up.again()  # on the same port, which the old cluster releases
        assert again.returncode == 0 and up.ready(), again


def a_profile_of_formations_binds_the_idle_group():
    """Without it the group stays independent, and skeinctl says why. What such a profile lacks, or has wrong, is refused."""
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    profile, wrong = os.path.join(folder, "profile.json"), os.path.join(folder, "wrong.json")
    for path, gain in ((profile, 1.5), (wrong, -3)):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"model": "fledgling", "device": "cpu", "date": "2026-01-01", "formations": [{"instances": 2, "gain": gain}]}, file)
    with Up(decode=4) as up:
        def group():
            done = subprocess.run([os.path.join(up.run, "bin", "skeinctl"), "formation", "--format=json"], env=up.environment,
                                  stdout=subprocess.PIPE, timeout=60, check=True)
            found, = [one for one in json.loads(done.stdout)["groups"] if one["role"] == "decode"]
            return found

        def await_group(says):
            end = time.monotonic() + 60
            while not says(found := group()):
                assert time.monotonic() < end, found
                time.sleep(0.2)

        assert up.code == 0, up.result
        await_group(lambda one: one["ready"] == 4 and "names no size that gains by binding" in one["why"])
        assert [one["name"] for one in group()["formations"]] == ["independent"], group()
        for arguments, says in ((["--profile", wrong], "formations[0].gain"), (["--profile", wrong], "-3"),
                                (["--profile", profile, "--policy", "single"], "sp is missing")):
            again = up.again(*arguments)
            last = again.stdout.splitlines()[-1]
            assert again.returncode == 2 and last.startswith("up: --profile: '") and says in last and up.ready(), again
        up.environment["SKEIN_FORMATION_DWELL_S"] = "0.2"
        again = up.again("--profile", profile)
        assert again.returncode == 0, again
        await_group(lambda one: [part["name"] for part in one["formations"] if part["stage"] == "stands"] == ["bound(2)"] * 2)
        assert not any(part["pinned"] for part in group()["formations"]), group()


def its_last_lines_can_be_pasted():
    with Up() as up:
        lines = {line.split()[0]: line.split(None, 1)[1] for line in up.result.stdout.splitlines() if line.startswith("  ")
                 and len(line.split()) > 1}
        stranger = dict(os.environ, HOME=up.folder)  # a shell without SKEIN_RUN_DIR
        stranger.pop("SKEIN_RUN_DIR", None)
        for word, says in (("status", "fledgling"), ("stop", "down: 4 processes stopped")):
            done = subprocess.run(["bash", "-c", lines[word]], cwd=ROOT, env=stranger, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=LIMIT_S)
            assert done.returncode == 0 and says in done.stdout, (word, done)


def models_of_others_answer():
    model = shared("models", "stories260K")
    if model is None:
        return "skip: no SKEIN_SHARED"
    with Up("--model", model) as up:
        assert up.code == 0 and "through /v1/completions" in up.result.stdout, up.result
    return None


if __name__ == "__main__":
    run_tests(several_routers_and_orchestrators_run, the_shipped_model_answers, metrics_are_scraped, a_base_model_is_asked_through_completions,
              a_tokenizer_may_have_more_ids_than_the_embedding, keys_guard_the_api, what_cannot_start_leaves_nothing,
              wrong_words_leave_the_running_cluster, a_profile_of_formations_binds_the_idle_group, its_last_lines_can_be_pasted,
              models_of_others_answer)
