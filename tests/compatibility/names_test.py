#!/usr/bin/env python3
"""Flags and metrics of released versions are still there, or were deprecated for a minor version first (names.py)."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402
from names import broken_by, deprecations_of, flags_of, metrics_of, names_of, parsed, read  # noqa: E402

RELEASED = ("0.3.0",)

PAGE = """
| `flag router --old-flag` | 0.4.0 | 0.5.0 | `--flag` |
| `metric skein_old counter` | 0.4.0 | 0.5.0 | `skein_new` |
| `flag router --without-successor` | 0.4.0 | 0.5.0 | |
"""


def version():
    """Of the programs of this tree."""
    return re.search(r'kVersion\[\] = "([^"]+)"', read("services/base", "version.h"))[1]


def what_was_released_is_still_there():
    now = names_of("docs")
    assert len(now) > 250 and "flag router --port" in now and "flag every --log-level" in now, sorted(now)
    for release in RELEASED:
        released = parsed(read("tests/compatibility/released", release + ".names.txt"))
        assert len(released) > 250, len(released)
        problems = broken_by(now, released, deprecations_of(read("docs", "compatibility.md")), version())
        assert not problems, "released in %s (see docs/compatibility.md):\n%s" % (release, "\n".join(problems))


def pages_are_read_as_they_are_written():
    page = "## Every program\n| `--config FILE` | x |\n## skeinctl status\n| `--watch` | | `false` | x |\n"
    assert flags_of(page) == {"flag every --config", "flag skeinctl-status --watch"}, flags_of(page)
    page = "| `skein_a_total` | counter | `x`, `y` | meaning |\n| `vllm:b` | gauge | | meaning |\n"
    assert metrics_of(page) == {"metric skein_a_total counter": {"x", "y"}, "metric vllm:b gauge": set()}, metrics_of(page)
    listed = parsed("# comment\nmetric skein_a_total counter x,y\nflag router --port\n")
    assert listed == {"metric skein_a_total counter": {"x", "y"}, "flag router --port": set()}, listed
    assert deprecations_of(PAGE) == {"flag router --old-flag": ("0.4.0", "0.5.0"), "metric skein_old counter": ("0.4.0", "0.5.0")}


def a_name_goes_only_a_minor_version_after_it_was_deprecated():
    old = {"flag router --old-flag": set()}
    announced = deprecations_of(PAGE)
    assert broken_by(old, old, {}, "0.4.0") == []
    assert broken_by({}, old, {}, "0.4.0") == ["flag router --old-flag: is gone and was never announced as deprecated"]
    assert broken_by({}, old, announced, "0.4.2") == ["flag router --old-flag: stays until 0.5.0"]
    assert broken_by({}, old, announced, "0.5.0") == []
    assert broken_by(old, old, announced, "0.5.0") == [
        "flag router --old-flag: is still there, although docs/compatibility.md says that it went in 0.5.0"]
    too_soon = {"flag router --old-flag": ("0.4.0", "0.4.1")}
    assert "cannot go in 0.4.1" in broken_by({}, old, too_soon, "0.4.1")[0]


def a_metric_keeps_its_type_and_its_labels():
    old = {"metric skein_a_total counter": {"x", "y"}}
    assert broken_by({"metric skein_a_total counter": {"x", "y", "z"}}, old, {}, "0.4.0") == []
    assert broken_by({"metric skein_a_total counter": {"x"}}, old, {}, "0.4.0") == [
        "metric skein_a_total counter: has lost its labels y"]
    assert len(broken_by({"metric skein_a_total gauge": {"x", "y"}}, old, {}, "0.4.0")) == 1


if __name__ == "__main__":
    run_tests(what_was_released_is_still_there, pages_are_read_as_they_are_written,
              a_name_goes_only_a_minor_version_after_it_was_deprecated, a_metric_keeps_its_type_and_its_labels)
