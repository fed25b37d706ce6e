#!/usr/bin/env python3
"""The rules are sound by promtool, each alert fires in rules_test.yml. Needs Debian's `prometheus` (tools/install_deps observe)."""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
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


if __name__ == "__main__":
    run_tests(promtool_is_content, each_alert_is_tested, each_alert_says_what_to_do)
