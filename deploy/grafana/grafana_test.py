#!/usr/bin/env python3
"""The dashboards are what their source gives; provision gives them to a Grafana, by files and over its API."""
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

BOARDS = os.path.join(HERE, "dashboards")
PROMETHEUS = "http://127.0.0.1:9090"


def boards():
    found = {}
    for name in sorted(os.listdir(BOARDS)):
        with open(os.path.join(BOARDS, name), encoding="utf-8") as file:
            found[name] = json.load(file)
    return found


def the_boards_are_what_their_source_gives():
    if not os.environ.get("SKEIN_NPM"):
        return "skip: needs SKEIN_NPM (tests/tools/fetch_npm)"
    subprocess.run([os.path.join(HERE, "generate"), "--check"], check=True)
    return None


def each_panel_says_what_it_shows():
    uids = set()
    for name, board in boards().items():
        uids.add(board["uid"])
        variables = [v["name"] for v in board["templating"]["list"]]
        assert {"datasource", "namespace", "job", "model", "node", "instance"} <= set(variables), (name, variables)
        panels = [p for p in board["panels"] if p["type"] != "row"]
        assert len({p["title"] for p in panels}) == len(panels), name
        for panel in panels:
            assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"], (name, panel["title"])
            assert all(t["legendFormat"] for t in panel["targets"]), (name, panel["title"])
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, (name, panel["title"], place)
    assert len(uids) == len(boards()) >= 4, uids


def queries():
    """(board, panel, query) of all panels."""
    for name, board in boards().items():
        for panel in (p for p in board["panels"] if p["type"] != "row"):
            for target in panel["targets"]:
                yield name, panel["title"], target


def each_query_asks_the_chosen_deployment():
    """Deployments scraped by one Prometheus are never summed, and a legend that names a process also names the pod."""
    for name, title, target in queries():
        for selector in re.findall(r"(?:vllm:|skein_|skein:|process_|up\b)[\w:]*(\{[^}]*\})?", target["expr"]):
            joined = selector == "" or selector.startswith("{service=")  # the right side of a join on namespace, job, instance
            assert joined or 'namespace=~"$namespace"' in selector, (name, title, target["expr"])
        assert " on (job" not in target["expr"], (name, title)
        assert "{{instance}}" not in target["legendFormat"] or "{{pod}} {{instance}}" in target["legendFormat"], (name, title)


def gauges_have_no_rate():
    with open(os.path.join(HERE, "..", "..", "docs", "metrics.md"), encoding="utf-8") as page:
        kinds = dict(re.findall(r"^\| `([\w:]+)` \| (counter|gauge) \|", page.read(), re.M))
    for name, title, target in queries():
        for function, metric in re.findall(r"(\w+) ?\(([a-z]+[_:]\w+)\{", target["expr"]):
            expected = {"rate": "counter", "increase": "counter", "deriv": "gauge", "delta": "gauge", "changes": "gauge"}.get(function)
            assert metric not in kinds or expected in (None, kinds[metric]), (name, title, function, metric)


class Grafana(http.server.BaseHTTPRequestHandler):
    """The part of Grafana's API that provision uses, like a Grafana without our data source."""

    def do_GET(self):  # pylint: disable=invalid-name
        self.answer(200 if self.server.has_source else 404)

    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.command, self.path, self.headers["Authorization"], body))
        self.answer(200)

    do_PUT = do_POST

    def answer(self, code):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def provision(*arguments, **environment):
    return subprocess.run([os.path.join(HERE, "provision"), *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, **environment), timeout=60)


def provision_speaks_to_grafana():
    server = http.server.HTTPServer(("127.0.0.1", 0), Grafana)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:%d" % server.server_port
    for has_source, first in ((False, ("POST", "/api/datasources")), (True, ("PUT", "/api/datasources/uid/skein-prometheus"))):
        server.has_source = has_source
        server.asked.clear()
        done = provision("--prometheus", PROMETHEUS, "--grafana", url, GRAFANA_TOKEN="t")
        assert done.returncode == 0, done
        assert server.asked[0][:3] == (*first, "Bearer t") and server.asked[0][3]["url"] == PROMETHEUS, server.asked[0]
        assert [body["dashboard"]["uid"] for _, path, _, body in server.asked[1:] if path == "/api/dashboards/db"] == [
            board["uid"] for board in boards().values()]
    server.shutdown()
    server.server_close()
    done = provision("--prometheus", PROMETHEUS, "--grafana", url)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and url in done.stderr, done


def provision_writes_files():
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            done = provision("--prometheus", PROMETHEUS, "--dir", folder)
            assert done.returncode == 0, done
        with open(os.path.join(folder, "datasources", "skein.yaml"), encoding="utf-8") as file:
            assert json.load(file)["datasources"][0]["url"] == PROMETHEUS
        with open(os.path.join(folder, "dashboards", "skein.yaml"), encoding="utf-8") as file:
            path = json.load(file)["providers"][0]["options"]["path"]
        assert sorted(os.listdir(path)) == sorted(boards()), path
        done = provision("--prometheus", PROMETHEUS, "--dir", os.path.join(folder, "datasources", "skein.yaml"))
        assert done.returncode == 1 and done.stderr.startswith("provision: --dir: cannot write"), done


if __name__ == "__main__":
    run_tests(the_boards_are_what_their_source_gives, each_panel_says_what_it_shows, each_query_asks_the_chosen_deployment,
              gauges_have_no_rate, provision_speaks_to_grafana,
              provision_writes_files)
