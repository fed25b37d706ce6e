"""Flags and metrics that people's scripts, manifests and dashboards name, and the rule that later versions keep them
(docs/compatibility.md). Run as a program in the root of a checkout, it prints the list for tests/compatibility/released when
a version is released:

    python3 tests/compatibility/names.py

A line is `flag PROGRAM --NAME` or `metric NAME TYPE [LABEL,...]`. Both are read from docs/flags.md and docs/metrics.md, which
other tests hold to the programs.
"""
import os
import re


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def flags_of(page):
    """{"flag PROGRAM --NAME"} of docs/flags.md. What every program has is listed once, as of `every`."""
    found, program = set(), None
    for line in page.splitlines():
        if line.startswith("## "):
            program = line[3:].strip().replace("Every program", "every").replace(" ", "-")
        row = re.match(r"\| `(--[a-z0-9-]+)", line)
        if row:
            found.add("flag %s %s" % (program, row[1]))
    return found


def metrics_of(page):
    """{"metric NAME TYPE": its labels} of docs/metrics.md."""
    found = {}
    for row in re.finditer(r"^\| `([\w:]+)` \| (\w+) \|([^|]*)\|", page, re.M):
        name, kind, labels = row.groups()
        found.setdefault("metric %s %s" % (name, kind), set()).update(re.findall(r"`(\w+)`", labels))
    return found


def names_of(docs):
    """{line without labels: labels} of the pages in the folder `docs`."""
    return {**{flag: set() for flag in flags_of(read(docs, "flags.md"))}, **metrics_of(read(docs, "metrics.md"))}


def parsed(listing):
    """The same from a list of a release."""
    found = {}
    for line in listing.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        words = line.split(" ")
        found[" ".join(words[:3])] = set(words[3].split(",")) if len(words) > 3 else set()
    return found


def minor(version):
    """A version as a number that grows by 1 from one minor version to the next."""
    major, middle, _ = version.split(".")
    return 1000 * int(major) + int(middle)


def deprecations_of(page):
    """{line: (version that announced it, version without it)} of the table "Deprecated" of docs/compatibility.md."""
    rows = re.findall(r"^\| `((?:flag|metric) [^`]+)` \| (\d+\.\d+\.\d+) \| (\d+\.\d+\.\d+) \| [^|]*\w[^|]*\|$", page, re.M)
    return {what: (since, gone) for what, since, gone in rows}


def broken_by(now, released, deprecated, version):
    """What is wrong with the names of `version`, a sentence each."""
    problems = []
    for name, labels in sorted(released.items()):
        if name not in now:
            since, gone = deprecated.get(name, (None, None))
            if since is None:
                problems.append("%s: is gone and was never announced as deprecated" % name)
            elif minor(gone) > minor(version):
                problems.append("%s: stays until %s" % (name, gone))
        elif labels - now[name]:
            problems.append("%s: has lost its labels %s" % (name, ", ".join(sorted(labels - now[name]))))
    for name, (since, gone) in sorted(deprecated.items()):
        if minor(gone) < minor(since) + 1:
            problems.append("%s: deprecated in %s, it stays for one minor version; it cannot go in %s" % (name, since, gone))
        if minor(gone) <= minor(version) and name in now:
            problems.append("%s: is still there, although docs/compatibility.md says that it went in %s" % (name, gone))
    return problems


if __name__ == "__main__":
    for text, its_labels in sorted(names_of("docs").items()):
        print(" ".join([text, *([",".join(sorted(its_labels))] if its_labels else [])]))
