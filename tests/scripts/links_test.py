#!/usr/bin/env python3
"""Every link of every page in the repository leads to an existing file or folder."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)


def every_link_leads_somewhere():
    pages = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.splitlines()
    assert "README.md" in pages and len(pages) > 15, pages
    lost = []
    for page in pages:
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            targets = LINK.findall(CODE.sub("", file.read()))
        lost += ["%s: there is no %s" % (page, t) for t in targets
                 if not os.path.exists(os.path.join(ROOT, os.path.dirname(page), t))]
    assert not lost, "\n".join(lost)


if __name__ == "__main__":
    run_tests(every_link_leads_somewhere)
