#!/usr/bin/env python3
"""tools/compile_commands: from Bazel's actions to compile commands."""
import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TOOLS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(os.path.dirname(TOOLS), "tests", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("compile_commands", os.path.join(TOOLS, "compile_commands"))
commands = importlib.util.module_from_spec(importlib.util.spec_from_loader("compile_commands", LOADER))
LOADER.exec_module(commands)


def compiled(source, *flags):
    return {"arguments": ["/usr/bin/gcc", *flags, "-c", source, "-o", source + ".o"]}


def each_source_has_one_entry_in_order():
    found = commands.entries([compiled("b.cc", "-O1"), compiled("a.cc"), compiled("b.cc", "-fPIC")], "/root", "/base")
    assert [e["file"] for e in found] == ["a.cc", "b.cc"], found
    assert "-O1" in found[1]["arguments"] and "-fPIC" not in found[1]["arguments"], found[1]
    assert found[0]["directory"] == "/root"


def external_folders_are_found_from_anywhere():
    found = commands.entries([compiled("a.cc", "-iquote", "external/grpc", "-Iexternal/absl", "-iquote", ".")], "/root", "/base")
    assert found[0]["arguments"][1:6] == ["-iquote", "/base/external/grpc", "-I/base/external/absl", "-iquote", "."], found


def flags_that_clang_does_not_know_are_left_out():
    found = commands.entries([compiled("a.cc", "-fno-canonical-system-headers", "-Wall")], "/root", "/base")
    assert found[0]["arguments"][1] == "-Wall", found


if __name__ == "__main__":
    run_tests(each_source_has_one_entry_in_order, external_folders_are_found_from_anywhere,
              flags_that_clang_does_not_know_are_left_out)
