#!/usr/bin/env python3
"""What the processes of a real cluster serve on /metrics: vLLM's dashboards find what they ask for, docs/metrics.md says what is
served and nothing else, and tokens are counted once.

Needs Debian's `prometheus` (tools/install_deps test); what needs it is skipped without.
"""
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, binaries_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"
BOARDS = "third_party/interfaces/vllm"
DOCS = "docs/metrics.md"
# Every prompt on two instances, so that they exchange something.
ORCHESTRATOR = ["--profile=llama3-8b-a100", "--node-size=2", "--policy=fixed2"]
ROLES = {"router": "Router", "orchestrator": "Orchestrator", "prefill": "Prefill-worker", "decode": "Decode-worker"}


def cluster_with_a_span():
    trace = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "trace.jsonl")
    return Cluster(binaries_from_argv(), MODEL, prefill=2, decode=1, orchestrator_flags=ORCHESTRATOR,
                   router_flags=["--record-trace=" + trace])


def load(cluster, rounds):
    """Every kind of request; returns the tokens that answers say they cost."""
    prompt_tokens = output_tokens = 0
    for i in range(rounds):
        body = {"model": cluster.name, "max_tokens": 4 + i, "temperature": 0, "max_token": 3}  # one name is unknown
        for path, more in (("/v1/completions", {"prompt": ["Once upon a time", "A kite"], "n": 2}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is red?"}]})):
            usage = cluster.post(path, {**body, **more})["usage"]
            prompt_tokens += usage["prompt_tokens"]
            output_tokens += usage["completion_tokens"]
        for path, wrong in (("/v1/completions", {"model": cluster.name, "prompt": []}), ("/nowhere", {})):
            try:
                cluster.post(path, wrong)
            except HttpFailure as failure:
                assert failure.code in (400, 404), failure
    return prompt_tokens, output_tokens


# ---- dashboards ----


class Prometheus:
    """A Prometheus that scrapes every process of a cluster, as Skein's several jobs."""

    def __init__(self, cluster):
        self.folder = tempfile.mkdtemp(prefix="prometheus-", dir=os.environ.get("TEST_TMPDIR"))
        jobs = {}
        for name, process in cluster.processes.items():
            jobs.setdefault(name.split("-")[0], []).append(process.admin()[len("http://"):])
        self.targets = sum(len(targets) for targets in jobs.values())
        config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
                  "scrape_configs": [{"job_name": "skein-" + job, "static_configs": [{"targets": targets}]}
                                     for job, targets in jobs.items()]}
        path = os.path.join(self.folder, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(config, out)  # JSON is YAML
        with socket.socket() as free:  # Prometheus cannot say which port it took
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = "http://127.0.0.1:%d" % port
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.popen = subprocess.Popen(
                ["prometheus", "--config.file=" + path, "--storage.tsdb.path=" + os.path.join(self.folder, "data"),
                 "--web.listen-address=127.0.0.1:%d" % port], stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.terminate()
        self.popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def api(self, path, **arguments):
        url = self.url + path + "?" + urllib.parse.urlencode(arguments, doseq=True)
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """The values of an instant query."""
        data = self.api("/api/v1/query", query=expression)
        if data["resultType"] == "scalar":
            return [float(data["result"][1])]
        return [float(one["value"][1]) for one in data["result"]]

    def scrapes(self):
        """Good scrapes of the target that has the fewest."""
        counts = self.query("sum_over_time(up[10m])")
        return min(counts) if len(counts) == self.targets else 0

    def await_scrapes(self, cluster, count):
        def enough():
            try:
                return self.scrapes() >= count
            except OSError:  # it starts
                assert self.popen.poll() is None, open(os.path.join(self.folder, "log"), encoding="utf-8").read()[-2000:]
                return False
        cluster.until(enough, "%d scrapes" % count)

    def values(self, label, series):
        arguments = {"match[]": series} if series else {}
        return self.api("/api/v1/label/%s/values" % label, **arguments)


def variables_of(board, prometheus):
    """What Grafana puts for a board's variables with everything selected."""
    found = {"__rate_interval": "1m", "__range": "1m"}
    for variable in board["templating"]["list"]:
        if variable["type"] == "custom":
            found[variable["name"]] = variable["current"]["value"]
        elif variable["type"] == "query":
            query = variable["query"] if isinstance(variable["query"], str) else variable["query"]["query"]
            series, label = re.fullmatch(r"label_values\((?:(.*), )?(\w+)\)", query).groups()
            values = prometheus.values(label, series and with_variables(series, found))
            assert values, "nothing to choose from for $%s: %s" % (variable["name"], query)
            many = variable.get("multi")  # a regular expression, in a string of PromQL
            found[variable["name"]] = "(%s)" % "|".join(re.escape(v).replace("\\", "\\\\") for v in values) if many else values[0]
    return found


def with_variables(expression, variables):
    out = re.sub(r"\$(\w+)", lambda match: variables[match.group(1)], expression)
    assert "$" not in out, expression
    return out


def panels_of(panels):
    for panel in panels:
        if panel["type"] != "row":
            yield panel
        yield from panels_of(panel.get("panels", []))


def empty_series(prometheus):
    """(board, panel, series) of all that no process of the cluster fills; and how many there are in all."""
    empty, count = set(), 0
    for name in sorted(n for n in os.listdir(BOARDS) if n.endswith(".json")):
        with open(os.path.join(BOARDS, name), encoding="utf-8") as f:
            board = json.load(f)
        variables = variables_of(board, prometheus)
        for panel in panels_of(board["panels"]):
            assert panel["targets"], panel["title"]
            for target in panel["targets"]:
                count += 1
                values = prometheus.query(with_variables(target["expr"], variables))
                if all(math.isnan(value) for value in values):
                    only = len(panel["targets"]) == 1
                    empty.add((board["title"], panel["title"], "all" if only else target["legendFormat"]))
        all_of = {}
        for panel in panels_of(board["panels"]):
            all_of.setdefault((board["title"], panel["title"]), [t["legendFormat"] for t in panel["targets"]])
        for (title, panel), legends in all_of.items():  # a panel without any series: one line
            if len(legends) > 1 and all((title, panel, legend) in empty for legend in legends):
                empty = {e for e in empty if e[:2] != (title, panel)} | {(title, panel, "all")}
    return empty, count


def documented_as_empty():
    """The table "Empty, because" of docs/metrics.md."""
    rows = tables_of("Panels that stay empty").get("Panels that stay empty", [])
    found = set()
    for board, panels, series, because in rows:
        assert because, panels
        for panel in panels.split("; "):
            found |= {(board, panel, one) for one in series.split("; ")}
    return found


def each_panel_is_filled_or_said_to_be_empty():
    if not shutil.which("prometheus"):
        return "skip: needs Debian's prometheus"
    with cluster_with_a_span() as cluster:
        load(cluster, 1)  # so that every series is there before it grows
        with Prometheus(cluster) as prometheus:
            prometheus.await_scrapes(cluster, 2)
            load(cluster, 3)
            prometheus.await_scrapes(cluster, prometheus.scrapes() + 2)
            empty, count = empty_series(prometheus)
    documented = documented_as_empty()
    assert empty == documented, "empty and not documented: %s\ndocumented and not empty: %s" % (
        sorted(empty - documented), sorted(documented - empty))
    print("%d series of vLLM's boards, %d lines of empty ones" % (count, len(empty)))
    return None


# ---- docs/metrics.md ----


def tables_of(*headings):
    """The rows of the tables under each heading, by heading, without the head of the table and without code quotes."""
    found, heading = {}, None
    with open(DOCS, encoding="utf-8") as f:
        for line in f:
            if line.startswith("#"):
                heading = line.strip("# \n")
            elif line.startswith("|") and heading in headings:
                cells = line.strip()[1:-1].split("|")
                found.setdefault(heading, []).append([cell.replace("`", "").strip() for cell in cells])
    return {heading: [row for row in rows if row[0] not in ("name", "board") and not row[0].startswith("---")]
            for heading, rows in found.items()}


def documented_families(role):
    sections = ["Every process", ROLES[role]] + (["Workers, both roles"] if role in ("prefill", "decode") else [])
    tables = tables_of(*sections)
    assert sorted(tables) == sorted(sections), tables.keys()
    families = {}
    for rows in tables.values():
        for name, kind, labels, _ in rows:
            assert name not in families, name + " is documented twice for " + role
            families[name] = (kind, frozenset(labels.split(", ")) - {""})
    return families


def served_families(text):
    """name -> (type, label names) of a page in Prometheus's text format."""
    kinds, labels = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif line and not line.startswith("#"):
            series = line.rsplit(" ", 1)[0]
            name, _, inside = series.partition("{")
            family = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
            names = set(re.findall(r'(\w+)="', inside)) - {"le"}
            assert labels.setdefault(family, names) == names, "%s has labels %s and %s" % (name, labels[family], names)
    return {name: (kind, frozenset(labels[name])) for name, kind in kinds.items()}


def pages(cluster):
    return {name: cluster.get("/metrics", raw=True, base=process.admin()) for name, process in cluster.processes.items()}


def check_documented(page_of):
    served = {role: {} for role in ROLES}
    for name, text in page_of.items():
        served[name.split("-")[0]].update(served_families(text))
    for role, families in served.items():
        documented = documented_families(role)
        unlike = {name for name in families.keys() & documented.keys() if families[name] != documented[name]}
        assert families == documented, "%s\nserved only: %s\ndocumented only: %s\nother type or labels: %s" % (
            role, sorted(families.keys() - documented.keys()), sorted(documented.keys() - families.keys()),
            [(name, families[name], documented[name]) for name in sorted(unlike)])


def check_labels(page_of):
    for name, text in page_of.items():
        for family, (_, labels) in served_families(text).items():
            if family.startswith("vllm:"):
                assert {"model_name", "engine"} <= labels, (name, family, labels)


def total(page_of, metric):
    """Over all processes, as Prometheus's sum() has it; and who serves it."""
    values = {name: [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(metric) + r"[{ ]", line)]
              for name, text in page_of.items()}
    return sum(sum(v) for v in values.values()), {name.split("-")[0] for name, v in values.items() if v}


def check_tokens(page_of, prompt_tokens, output_tokens):
    assert total(page_of, "vllm:prompt_tokens_total") == (prompt_tokens, {"router"})
    assert total(page_of, "vllm:generation_tokens_total") == (output_tokens, {"router"})
    # Prefill samples the first token of each choice and decode the others.
    assert total(page_of, "vllm:request_generation_tokens_sum")[0] == output_tokens
    # Nothing waits and nothing runs, wherever one looks.
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert total(page_of, gauge) == (0, {"router", "prefill", "decode"}), gauge


def check_times(page_of):
    """The parts of a request's time were measured, and are no longer than the whole."""
    parts = {part: total(page_of, "vllm:request_%s_time_seconds_sum" % part)[0]
             for part in ("queue", "prefill", "decode", "inference")}
    handoff = total(page_of, "skein_request_handoff_time_seconds_sum")[0]
    choices = total(page_of, "vllm:request_queue_time_seconds_count")[0]
    whole = total(page_of, "vllm:e2e_request_latency_seconds_sum")[0]
    assert parts["queue"] > 0 and parts["prefill"] > 0 and parts["decode"] > 0, parts
    assert abs(parts["inference"] - (parts["prefill"] + handoff + parts["decode"])) < 1e-6 * choices, (parts, handoff)
    most = 4  # choices of a request: each has times of its own, the request has one end
    assert parts["queue"] + parts["inference"] <= most * whole, (parts, whole)


def check_with_promtool(page_of):
    for name, text in page_of.items():
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line]
        ours = [line for line in said if not line.startswith("vllm:")]  # those names are vLLM's
        assert not ours, "%s: %s" % (name, ours)


def what_is_served_is_what_the_page_says():
    with cluster_with_a_span() as cluster:
        prompt_tokens, output_tokens = load(cluster, 2)
        cluster.assert_idle_and_whole()
        page_of = pages(cluster)
        check_tokens(page_of, prompt_tokens, output_tokens)
        check_times(page_of)
        check_labels(page_of)
        check_documented(page_of)
        if not shutil.which("promtool"):
            return "skip: needs Debian's prometheus for promtool; all else passed"
        check_with_promtool(page_of)
    return None


def admin_ports_are_fixed():
    """Those of one process of each role are known without its log, and do not collide."""
    with open(DOCS, encoding="utf-8") as f:
        documented = dict(re.findall(r"^\| (router|orchestrator|prefill-worker|decode-worker) \| (\d+) \|", f.read(), re.M))
    assert len(set(documented.values())) == 4, documented
    for role, port in documented.items():
        text = subprocess.run([binaries_from_argv()[role.replace("-", "_")], "--help"], capture_output=True, text=True,
                              check=False).stdout
        flag = re.search(r"--admin-port\b(?!-file).*?(?=\n *--)", text, re.S)
        assert flag and port in flag.group(0), (role, port, flag and flag.group(0))


if __name__ == "__main__":
    run_tests(each_panel_is_filled_or_said_to_be_empty, what_is_served_is_what_the_page_says, admin_ports_are_fixed)
