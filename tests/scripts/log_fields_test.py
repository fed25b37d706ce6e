#!/usr/bin/env python3
"""The fields of log lines are those of the table in docs/glossary.md, each under one name."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
CALL = re.compile(r"\bLog(?:Debug|Info|Warning|Error|Limited)?(\()|<LogField> \w+ = (\{)")


def arguments(text, start):
    """The text between the parentheses or braces that open before `start`. Assumes that those in literals match."""
    depth, end = 1, start
    opens, closes = {"(": "()", "{": "{}"}[text[start - 1]]
    while depth > 0:
        depth += {opens: 1, closes: -1}.get(text[end], 0)
        end += 1
    return text[start:end - 1]


def fields_of_the_sources():
    fields = {}
    for parent, _, names in os.walk(os.path.join(ROOT, "services")):
        for name in names:
            if not name.endswith((".cc", ".h")) or name.endswith("_test.cc") or parent.endswith("/testing"):
                continue
            with open(os.path.join(parent, name), encoding="utf-8") as file:
                text = file.read()
            for call in CALL.finditer(text):
                for field in re.findall(r'\{\s*"(\w+)",', arguments(text, call.end())):
                    fields.setdefault(field, set()).add(name)
    return fields


def every_field_stands_in_the_glossary():
    with open(os.path.join(ROOT, "docs", "glossary.md"), encoding="utf-8") as file:
        section = file.read().split("## Fields of log lines\n", 1)[1].split("\n## ", 1)[0]
    table = set()
    for row in re.findall(r"^\| (`.*?) \|", section, re.M):
        table.update(re.findall(r"`(\w+)`", row))
    fields = fields_of_the_sources()
    assert len(fields) > 30, fields
    unknown = {field: files for field, files in fields.items() if field not in table}
    assert not unknown, "docs/glossary.md lacks: %s" % unknown
    # log.cc adds these to every line.
    stale = table - set(fields) - {"ts", "level", "role", "msg", "lines"}
    assert not stale, "no log line has: %s" % stale


if __name__ == "__main__":
    run_tests(every_field_stands_in_the_glossary)
