#!/usr/bin/env python3
"""/metrics of the processes of a real cluster: Skein's and vLLM's dashboards and Skein's alerts find their series,
docs/metrics.md says what is served and nothing else, and tokens are counted once.

Needs Debian's `prometheus` (tools/install_deps test); what needs it is skipped without.
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, HttpFailure, Process, binaries_from_argv, free_ports, run_tests  # noqa: E402
from prometheus import RULES, Prometheus, shortened  # noqa: E402

MODEL = "deploy/models/fledgling"
OF_VLLM = "third_party/interfaces/vllm"
OURS = "deploy/grafana/dashboards"
DOCS = "docs/metrics.md"
# Every prompt on two instances, so that they exchange data.
ORCHESTRATOR = ["--profile=llama3-8b-a100", "--node-size=2", "--policy=fixed2"]
TRACED = ["router"]  # roles that run with --trace-endpoint
ROLES = {"router": "Router", "orchestrator": "Orchestrator", "prefill": "Prefill-worker", "decode": "Decode-worker", "node": "skein-node"}
PLACES = 8  # concurrent choices
NODE = next(os.path.abspath(a) for a in sys.argv[1:] if os.path.basename(a) == "skein-node")


class ClusterWithASpan(Cluster):
    """Every prompt is computed by two instances; and one more decode-worker runs under skein-node."""

    def __init__(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        trace, audit = os.path.join(folder, "trace.jsonl"), os.path.join(folder, "audit.jsonl")
        super().__init__(binaries_from_argv(), MODEL, prefill=2, decode=1, orchestrator_flags=ORCHESTRATOR,
                         router_flags=["--record-trace=" + trace, "--audit-log=" + audit, "--max-streams=%d" % PLACES, "--max-queued=0",
                                       "--trace-endpoint=http://127.0.0.1:9"])  # where nobody listens

    def start_router(self):
        admin = os.path.join(self.folder, "node.admin")
        self.processes["node"] = Process("node", [
            NODE, "--instances=1", "--admin-port=0", "--admin-port-file=" + admin, "--restart-delay-s=0.1", "--",
            self.binaries["decode_worker"], "--orchestrator=" + self.orchestrator, "--model=" + self.model,
            "--served-name=" + self.name, "--kv-gib=0.02", "--admin-port=%d" % free_ports(1)], self.folder)
        super().start_router()

    def stop(self):
        node = self.processes.pop("node")
        node.popen.send_signal(signal.SIGTERM)
        assert node.popen.wait(40) == 0, node.tail()
        super().stop()


GOALS = {"x-llm-d-slo-ttft-ms": "60000", "x-llm-d-slo-tpot-ms": "60000"}


def load(cluster, rounds):
    """Sends every kind of request; returns the token counts of the answers."""
    prompt_tokens = output_tokens = 0
    for i in range(rounds):
        body = {"model": cluster.name, "max_tokens": 4 + i, "temperature": 0, "max_token": 3}  # one name is unknown
        for path, more in (("/v1/completions", {"prompt": ["Once upon a time", "A kite"], "n": 2}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is red?"}]})):
            usage = cluster.post(path, {**body, **more}, headers=GOALS)["usage"]
            prompt_tokens += usage["prompt_tokens"]
            output_tokens += usage["completion_tokens"]
        for path, wrong in (("/v1/completions", {"model": cluster.name, "prompt": []}), ("/nowhere", {})):
            try:
                cluster.post(path, wrong)
            except HttpFailure as failure:
                assert failure.code in (400, 404), failure
    return prompt_tokens, output_tokens


def ask_too_much(cluster):
    """While the router is full, a request is refused because of load."""
    body = {"model": cluster.name, "prompt": "A kite", "max_tokens": 2000, "ignore_eos": True}
    chunks = cluster.stream("/v1/completions", dict(body, n=PLACES))
    next(chunks)
    try:
        cluster.post("/v1/completions", body)
    except HttpFailure as failure:
        assert failure.code == 429, failure
    else:
        raise AssertionError("it was answered")
    finally:
        chunks.close()
    cluster.until(lambda: cluster.metric(cluster.processes["router"], "skein_router_streaming") == 0, "all places are free")


# ---- dashboards ----


def variables_of(board, prometheus):
    """Grafana's values for a board's variables with everything selected."""
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


def boards_in(*folders):
    for folder in folders:
        for name in sorted(n for n in os.listdir(folder) if n.endswith(".json")):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                yield json.load(f)


def empty_series(prometheus):
    """(board, panel, series) without data from any process; and the total number."""
    empty, count = set(), 0
    for board in boards_in(OF_VLLM, OURS):
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


def bind_and_release(cluster):
    """The two decode instances of this machine, while answers stream."""
    def skeinctl(*arguments):
        return subprocess.run([cluster.binaries["skeinctl"], *arguments, "--orchestrator", cluster.orchestrator], text=True,
                              stdout=subprocess.PIPE, timeout=120, check=True).stdout
    group, = [one["name"] for one in json.loads(skeinctl("formation", "--format=json"))["groups"] if one["role"] == "decode"]
    body = {"model": cluster.name, "prompt": "A kite", "max_tokens": 2000, "ignore_eos": True}
    streams = [cluster.stream("/v1/completions", body) for _ in range(2)]
    for stream in streams:
        next(stream)
    for command in ("bind", "release"):
        skeinctl(command, "--group", group)
    for stream in streams:
        stream.close()
    cluster.until(lambda: cluster.metric(cluster.processes["router"], "skein_router_streaming") == 0, "the streams have ended")


def load_until_seen(cluster, prometheus):
    """Sends requests until Prometheus sees the counters of ring steps, of plans and of switches grow. On a busy machine an instance answers late,
    and then some prompts are planned on the other alone."""
    def seen():
        load(cluster, 3)
        bind_and_release(cluster)
        return all(prometheus.query("sum(rate(%s[1m])) > 0" % name) for name in
                   ("skein_comm_bytes_total", "skein_plan_chunks_total", "skein_plan_actual_seconds_total",
                    "skein_formation_cut_over_seconds_count", "skein_formation_drain_seconds_count",
                    "skein_formation_stream_gap_seconds_count"))
    cluster.until(seen, "Prometheus sees prompts computed by two instances, and two bound and released")


def empty_alerts(prometheus):
    """Alerts whose expression finds nothing to compare with its threshold."""
    rules = prometheus.alerting_rules()
    assert len(rules) >= 10, rules
    return [name for name, expression in rules if not prometheus.query(re.sub(r" (?:>=|>|<|==) -?[\d.]+", "", expression))]


def not_numbers(prometheus):
    """(board, panel, legend) of our boards that show NaN. Before the first request the divisors are 0."""
    found = []
    for board in boards_in(OURS):
        variables = variables_of(board, prometheus)
        for panel in panels_of(board["panels"]):
            found += [(board["title"], panel["title"], target["legendFormat"]) for target in panel["targets"]
                      if any(math.isnan(value) for value in prometheus.query(with_variables(target["expr"], variables)))]
    return found


def column_up(prometheus):
    """The values of the column Up of the board Instances."""
    board, = [board for board in boards_in(OURS) if board["uid"] == "skein-instances"]
    target, = [target for panel in panels_of(board["panels"]) for target in panel["targets"] if target["legendFormat"] == "Up"]
    return prometheus.query(with_variables(target["expr"], variables_of(board, prometheus)))


def annotations_of_a_loss(cluster, prometheus):
    """Kills an instance: the series in dashboards and alerts for this case have data, and were empty before."""
    waiting = [one["expr"] for one in next(boards_in(OURS))["annotations"]["list"] if "lost" in one["expr"]]
    waiting += [expression for name, expression in prometheus.alerting_rules() if name in ("SkeinInstanceLost", "SkeinNoScrape")]
    waiting = [expression for expression in waiting if "absent" not in expression]
    assert len(waiting) == 3, waiting
    assert not any(prometheus.query(expression) for expression in waiting)
    assert column_up(prometheus) == [1] * prometheus.targets
    cluster.kill("prefill-1", signal.SIGKILL)
    cluster.until(lambda: all(prometheus.query(expression) for expression in waiting), "the loss of prefill-1 is seen")
    assert sorted(column_up(prometheus)) == [0] + [1] * (prometheus.targets - 1)
    # An alert that fires is an annotation, too.
    firing, = [one["expr"] for one in next(boards_in(OURS))["annotations"]["list"] if "ALERTS" in one["expr"]]
    cluster.until(lambda: prometheus.query(firing), "an alert fires")


def each_panel_and_alert_is_filled_or_said_to_be_empty():
    if not shutil.which("prometheus"):
        return "skip: needs Debian's prometheus"
    with open(RULES, encoding="utf-8") as f:
        rules = shortened(f.read(), factor=60, interval_s=0.5, at_least_s=60)  # the whole run is within each window
    with ClusterWithASpan() as cluster:
        load(cluster, 1)  # so that every series exists before it grows
        ask_too_much(cluster)
        with Prometheus(cluster, rules) as prometheus:
            prometheus.await_scrapes(cluster, 3)
            assert not not_numbers(prometheus), not_numbers(prometheus)
            load_until_seen(cluster, prometheus)
            prometheus.await_scrapes(cluster, prometheus.scrapes() + 3)  # and rules were evaluated since
            empty, count = empty_series(prometheus)
            assert not empty_alerts(prometheus), empty_alerts(prometheus)
            starts, = [one["expr"] for one in next(boards_in(OURS))["annotations"]["list"] if "start_time" in one["expr"]]
            assert len(prometheus.query(starts)) == prometheus.targets
            annotations_of_a_loss(cluster, prometheus)
    documented = documented_as_empty()
    assert empty == documented, "empty and not documented: %s\ndocumented and not empty: %s" % (
        sorted(empty - documented), sorted(documented - empty))
    print("%d series of the boards, %d lines of empty ones" % (count, len(empty)))
    return None


# ---- docs/metrics.md ----


def tables_of(*headings):
    """The rows of the tables under each heading, by heading, without table heads and code quotes."""
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
    sections += ["Tracing"] if role in TRACED else []
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
            if family.startswith("vllm:") and family != "vllm:lora_requests_info":  # vLLM has no such labels there
                assert {"model_name", "engine"} <= labels, (name, family, labels)


def total(page_of, metric):
    """The sum over all processes, like Prometheus's sum(); and which processes serve it."""
    values = {name: [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(metric) + r"[{ ]", line)]
              for name, text in page_of.items()}
    return sum(sum(v) for v in values.values()), {name.split("-")[0] for name, v in values.items() if v}


def check_tokens(page_of, prompt_tokens, output_tokens):
    assert total(page_of, "vllm:prompt_tokens_total") == (prompt_tokens, {"router"})
    assert total(page_of, "vllm:generation_tokens_total") == (output_tokens, {"router"})
    # Prefill samples the first token of each choice, decode the others.
    assert total(page_of, "vllm:request_generation_tokens_sum")[0] == output_tokens
    # Nothing waits or runs, in any metric.
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert total(page_of, gauge) == (0, {"router", "prefill", "decode"}), gauge


def check_times(page_of):
    """The parts of a request's time were measured, and do not exceed the total."""
    parts = {part: total(page_of, "vllm:request_%s_time_seconds_sum" % part)[0]
             for part in ("queue", "prefill", "decode", "inference")}
    handoff = total(page_of, "skein_request_handoff_time_seconds_sum")[0]
    choices = total(page_of, "vllm:request_queue_time_seconds_count")[0]
    whole = total(page_of, "vllm:e2e_request_latency_seconds_sum")[0]
    assert parts["queue"] > 0 and parts["prefill"] > 0 and parts["decode"] > 0, parts
    assert abs(parts["inference"] - (parts["prefill"] + handoff + parts["decode"])) < 1e-6 * choices, (parts, handoff)
    assert total(page_of, "skein_request_decode_queue_time_seconds_count")[0] > 0
    most = 4  # choices of a request: each has its own times, the request has one end
    assert parts["queue"] + parts["inference"] <= most * whole, (parts, whole)


def check_with_promtool(page_of):
    for name, text in page_of.items():
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line]
        ours = [line for line in said if not line.startswith("vllm:")]  # those names are vLLM's
        assert not ours, "%s: %s" % (name, ours)


def what_is_served_is_what_the_page_says():
    with ClusterWithASpan() as cluster:
        prompt_tokens, output_tokens = load(cluster, 2)
        cluster.assert_idle_and_whole()
        decode = cluster.processes["decode-0"]
        cluster.until(lambda: "skein_comm_bytes_total{" in cluster.get("/metrics", raw=True, base=decode.admin()),
                      "the decode instances' group has its communicators")
        page_of = pages(cluster)
        check_tokens(page_of, prompt_tokens, output_tokens)
        check_times(page_of)
        check_labels(page_of)
        check_documented(page_of)
        if not shutil.which("promtool"):
            return "skip: needs Debian's prometheus for promtool; all else passed"
        check_with_promtool(page_of)
    return None


# The metrics that a Gateway API endpoint picker reads from a pod, and their labels.
OF_A_PICKER = {
    "vllm:num_requests_running": {"model_name", "engine"},
    "vllm:num_requests_waiting": {"model_name", "engine"},
    "vllm:kv_cache_usage_perc": {"model_name", "engine"},
    "vllm:cache_config_info": {"model_name", "engine", "block_size", "num_gpu_blocks"},
    "vllm:lora_requests_info": {"max_lora", "running_lora_adapters", "waiting_lora_adapters"},
}


def values_of(text, metric):
    return [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(metric) + r"[{ ]", line)]


def the_public_port_tells_an_endpoint_picker_of_the_cluster():
    with Cluster(binaries_from_argv(), MODEL, prefill=1, decode=2) as cluster:
        stop, seen = threading.Event(), {}

        def ask():
            while not stop.is_set():
                cluster.post("/v1/completions", {"model": cluster.name, "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True})

        def tells_of_work():
            text = cluster.get("/metrics", raw=True)
            served = served_families(text)
            for name, labels in OF_A_PICKER.items():
                assert served[name] == ("gauge", frozenset(labels)), (name, served.get(name))
                seen[name] = values_of(text, name)
            return seen["vllm:num_requests_running"][0] >= 1 and seen["vllm:kv_cache_usage_perc"][0] > 0

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            cluster.until(tells_of_work, "the router's HTTP port tells of a request that runs and of held blocks")
        finally:
            stop.set()
            asking.join()
        blocks = sum(cluster.metric(p, "skein_kv_blocks", 'state="total"') for n, p in cluster.processes.items() if n.startswith("decode"))
        assert 'num_gpu_blocks="%d"' % blocks in cluster.get("/metrics", raw=True), blocks
        # The admin port, which Prometheus scrapes, has this process's own counts.
        own = cluster.get("/metrics", raw=True, base=cluster.processes["router"].admin())
        assert values_of(own, "vllm:num_requests_running") == [0] and "kv_cache_usage_perc" not in own


def admin_ports_are_fixed():
    """With one process per role, the default ports are known without its log and do not collide."""
    with open(DOCS, encoding="utf-8") as f:
        documented = dict(re.findall(r"^\| (router|orchestrator|prefill-worker|decode-worker) \| (\d+) \|", f.read(), re.M))
    assert len(set(documented.values())) == 4, documented
    for role, port in documented.items():
        text = subprocess.run([binaries_from_argv()[role.replace("-", "_")], "--help"], capture_output=True, text=True,
                              check=False).stdout
        flag = re.search(r"--admin-port\b(?!-file).*?(?=\n *--)", text, re.S)
        assert flag and port in flag.group(0), (role, port, flag and flag.group(0))


if __name__ == "__main__":
    run_tests(each_panel_and_alert_is_filled_or_said_to_be_empty, what_is_served_is_what_the_page_says,
              the_public_port_tells_an_endpoint_picker_of_the_cluster, admin_ports_are_fixed)
