#!/usr/bin/env python3
"""docs/scale.md has the tables of tools/scale/scale, made from figures on the pages that it names."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("scale", os.path.join(HERE, "scale"))
scale = importlib.util.module_from_spec(importlib.util.spec_from_loader("scale", LOADER))
LOADER.exec_module(scale)
COSTS = scale.load_costs()


def page():
    with open(scale.PAGE, encoding="utf-8") as file:
        return file.read()


def every_figure_stands_on_its_page():
    stale = scale.stale_quotes(COSTS)
    assert not stale, "\n".join(stale) + "\nThe page has changed: correct costs.json, then run tools/scale/scale --write"


def a_figure_that_is_on_no_page_is_found():
    wrong = {"x": dict(COSTS["plan_1024_us"], quote="| in sequence | 1 us |")}
    assert len(scale.stale_quotes(wrong)) == 1


def the_page_has_the_tables_as_they_are_made():
    text = page()
    names = [name for _, name, _ in scale.MARKED.findall(text)]
    assert sorted(names) == sorted(scale.TABLES), names
    assert scale.remade(text, COSTS) == text, "docs/scale.md is older than its figures: run tools/scale/scale --write"


def the_arithmetic():
    load = scale.Load(100_000)
    assert (load.requests_s, load.cells, load.decode) == (1_000_000, 98, 50_000)
    assert load.in_flight == 1_000_000 * 211 / 20
    assert load.routers == 5152                       # 10.55 million answers, 2,048 at each
    assert scale.kv_bytes(COSTS) == 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, numbers, bytes
    costs = {"core_at_100000": {"value": 105}, "gateway_stream_us": {"value": [152, 92]},
             "gateway_token_us": {"value": [10, 2]}}
    assert scale.small_cell(costs) == 448             # 500,000 us / 105 us / 10 requests/s = 476 instances
    assert scale.process_us(costs, 0) == (152, 152 + 2110)
    assert scale.process_us(costs, 1) == (92, 92 + 422)
    assert abs(scale.instances_per_core(50) - 1000) < 1e-9  # half a core: 10,000 requests/s of 50 us


def numbers_have_three_digits():
    for value, text in ((12345, "12,345"), (12345.6, "12,300"), (0.4567, "0.457"), (9.999, "10.00"), (1.0, "1.00")):
        assert scale.number(value) == text, scale.number(value)


def unknown_arguments_are_refused():
    run = subprocess.run([os.path.join(HERE, "scale"), "--wrote"], stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 2 and "--wrote" in run.stderr, run


if __name__ == "__main__":
    run_tests(every_figure_stands_on_its_page, a_figure_that_is_on_no_page_is_found,
              the_page_has_the_tables_as_they_are_made, the_arithmetic, numbers_have_three_digits,
              unknown_arguments_are_refused)
