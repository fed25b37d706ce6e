"""A Prometheus that scrapes the processes of a test's cluster, and Skein's rules with shortened times."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from cluster import bound, free_ports

RULES = "deploy/prometheus/rules.yml"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def shortened(rules, factor, interval_s, at_least_s):
    """A rules file with each window and each `for` shorter by `factor`, but at least `at_least_s`, and evaluated
    every `interval_s`. Names of recorded series stay, so that what asks for them works."""
    def shorter(seconds):
        return "%dms" % (1000 * max(at_least_s, seconds / factor))
    out = re.sub(r"\[(\d+)([smhd])\]", lambda m: "[%s]" % shorter(int(m[1]) * SECONDS[m[2]]), rules)
    out = re.sub(r"(?m)^( +for: )(\d+)([smhd])$", lambda m: m[1] + "%dms" % (1000 * int(m[2]) * SECONDS[m[3]] / factor), out)
    return re.sub(r"(?m)^( +interval: )\d+[smhd]$", lambda m: m[1] + "%dms" % (1000 * interval_s), out)


class Prometheus:
    """Started with the block, stopped at its end. Processes are scraped as Skein's several jobs, each as a pod of the
    namespace `skein`, on the node `node-1`."""

    def __init__(self, cluster, rules=None, alertmanager=None, scrape_ms=500):
        self.folder = tempfile.mkdtemp(prefix="prometheus-", dir=os.environ.get("TEST_TMPDIR"))
        self.set_targets(cluster)
        config = {"global": {"scrape_interval": "%dms" % scrape_ms, "scrape_timeout": "%dms" % scrape_ms},
                  "scrape_configs": [{"job_name": "skein", "file_sd_configs": [{"files": ["targets.json"]}]}]}
        if rules:
            self.write("rules.yml", rules)
            config["rule_files"] = ["rules.yml"]
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        self.write("prometheus.yml", json.dumps(config))  # JSON is YAML
        port = free_ports(1)  # Prometheus cannot say which port it took
        self.url = "http://127.0.0.1:%d" % port
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.popen = subprocess.Popen(bound(
                ["prometheus", "--config.file=" + os.path.join(self.folder, "prometheus.yml"),
                 "--storage.tsdb.path=" + os.path.join(self.folder, "data"), "--web.listen-address=127.0.0.1:%d" % port]),
                stdout=log, stderr=log)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path + ".draft", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(path + ".draft", path)

    def set_targets(self, cluster):
        """Sets its targets: the cluster's processes."""
        targets = [{"targets": [process.admin()[len("http://"):]], "labels": {
            "job": "skein-" + name.split("-")[0], "namespace": "skein", "pod": name, "node": "node-1"}}
                   for name, process in cluster.processes.items()]
        self.targets = len(targets)
        self.write("targets.json", json.dumps(targets))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.terminate()
        self.popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def api(self, path, **arguments):
        url = self.url + path + "?" + urllib.parse.urlencode(arguments, doseq=True)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                raise
            raise AssertionError("%s %s: %s" % (path, arguments, error.read().decode())) from None

    def query(self, expression):
        """The values of an instant query."""
        data = self.api("/api/v1/query", query=expression)
        if data["resultType"] == "scalar":
            return [float(data["result"][1])]
        return [float(one["value"][1]) for one in data["result"]]

    def scrapes(self):
        """Successful scrapes of the target with the fewest."""
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

    def alerting_rules(self):
        """(name, expression) of each alert that was loaded."""
        return [(rule["name"], rule["query"]) for group in self.api("/api/v1/rules", type="alert")["groups"] for rule in group["rules"]]
