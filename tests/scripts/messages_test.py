#!/usr/bin/env python3
"""Every message quoted in docs/troubleshooting.md exists in the sources."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FOLDERS = ("deploy/local", "engine", "scheduler", "services")
QUOTED = re.compile(r"^```text\n(.*?)^```|^\| \d+ \| `([^`]+)`", re.M | re.S)


def sources():
    """The text of all sources, with adjacent literals joined."""
    texts = []
    for folder in FOLDERS:
        for parent, folders, names in os.walk(os.path.join(ROOT, folder)):
            folders[:] = [f for f in folders if f not in ("run", "models")]
            for name in names:
                if name.endswith((".cc", ".h")) and not name.endswith("_test.cc") or name in ("up", "down", "ask"):
                    with open(os.path.join(parent, name), encoding="utf-8") as file:
                        texts.append(re.sub(r'"\s*\n?\s*"', "", file.read()))
    return "\n".join(texts)


def quoted_messages_exist():
    with open(os.path.join(ROOT, "docs", "troubleshooting.md"), encoding="utf-8") as file:
        quoted = [block or cell for block, cell in QUOTED.findall(file.read())]
    assert len(quoted) > 12, quoted
    text = sources()
    lost = [part.strip() for message in quoted for part in message.split("…")
            if part.strip() and part.strip() not in text and re.sub(r"127\.0\.0\.1:$", "", part.strip()) not in text]
    assert not lost, "no source says: %s" % lost


if __name__ == "__main__":
    run_tests(quoted_messages_exist)
