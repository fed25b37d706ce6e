#!/usr/bin/env python3
"""The rules are sound by promtool; each alert fires in rules_test.yml and has a runbook; documents name metrics that exist.

Needs Debian's `prometheus` (tools/install_deps observe)."""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join("..", "..", "docs")
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position


def read(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as file:
        return file.read()


def alerts():
    """name -> its parts' text."""
    found = {}
    for part in re.split(r"\n +- alert: ", read("rules.yml"))[1:]:
        found.setdefault(part.split("\n")[0], []).append(part)
    return found


def promtool_is_content():
    if not shutil.which("promtool"):
        return "skip: needs Debian's prometheus for promtool"
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        subprocess.run(["promtool", *command], cwd=HERE, check=True)
    return None


def each_alert_is_tested():
    tested = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", read("rules_test.yml"))
    assert set(tested) == set(alerts()), set(tested) ^ set(alerts())


def each_alert_says_what_to_do():
    for name, parts in alerts().items():
        for part in parts:
            assert re.search(r"labels: \{severity: (page|ticket)\}", part), part
            assert "summary:" in part and "runbook_url: docs/runbooks/%s.md" % name in part, part
        page = read(DOCS, "runbooks", name + ".md")
        for heading in ("# " + name, "**Meaning.**", "**Users notice**", "## Look", "## Cure", "## How it was fired"):
            assert heading in page, (name, heading)
        assert "kubectl -n skein " in page, name + " has no command for Kubernetes"
    pages = {name[:-len(".md")] for name in os.listdir(os.path.join(HERE, DOCS, "runbooks"))}
    assert pages == set(alerts()), pages ^ set(alerts())


def the_page_lists_each_alert():
    listed = dict(re.findall(r"^\| \[(\w+)\]\(runbooks/\1\.md\) \| ([a-z, ]+) \|", read(DOCS, "alerts.md"), re.M))
    assert listed == {name: ", ".join(sorted({re.search(r"severity: (\w+)", part)[1] for part in parts}))
                      for name, parts in alerts().items()}, listed


def names_exist():
    """Every metric that a document, a dashboard or a rule names is in the tables of docs/metrics.md, or is recorded."""
    known = set(re.findall(r"^\| `([\w:]+)` \|", read(DOCS, "metrics.md"), re.M))
    known |= {name + suffix for name in known for suffix in ("_bucket", "_sum", "_count")}
    recorded = set(re.findall(r"- record: (\S+)", read("rules.yml")))
    documented = set(re.findall(r"skein:\w+:\w+", read(DOCS, "alerts.md")))
    assert recorded == documented, recorded ^ documented
    files = [(DOCS, name) for name in os.listdir(os.path.join(HERE, DOCS)) if name.endswith(".md")]
    files += [(DOCS, "runbooks", name) for name in os.listdir(os.path.join(HERE, DOCS, "runbooks"))]
    files += [("..", "grafana", "dashboards", name) for name in os.listdir(os.path.join(HERE, "..", "grafana", "dashboards"))]
    assert len(files) > 20, files
    for path in files + [("rules.yml",)]:
        text = read(*path)
        found = set(re.findall(r"(?<![\w/.-])(?:vllm:\w+|skein:\w+:\w+|skein_[a-z0-9_]+|process_\w+)\b(?!\*)", text))
        families = set(re.findall(r"(?<![\w/.-])skein_[a-z0-9_]*(?=\*)", text))  # skein_handoff_*
        found |= {family for family in families if not any(name.startswith(family) for name in known)}
        assert not found - known - recorded, (path, sorted(found - known - recorded))


if __name__ == "__main__":
    run_tests(promtool_is_content, each_alert_is_tested, each_alert_says_what_to_do, the_page_lists_each_alert, names_exist)
