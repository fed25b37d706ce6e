#!/usr/bin/env python3
"""A type that scheduler/vocabulary defines is defined nowhere else: no twins, no conversions."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FOLDERS = ("engine", "scheduler", "services")
VOCABULARY = os.path.join("scheduler", "vocabulary")
SOURCES = (".h", ".cc", ".cu", ".cuh")
# `struct Name {`, `class Name final : Base {`, `enum class Name : int {`, `using Name = Other;`. Neither a forward
# declaration nor `using skein::Name;` defines anything.
DEFINED = re.compile(
    r"^\s*(?:template\s*<[^>]*>\s*)?(?:(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\([^)]*\)\s*)?"
    r"(\w+)\s*(?:final\s*)?(?::[^:][^;{]*)?\{|using\s+(\w+)\s*=)", re.M)


def defined_in(text):
    """The names of the types that a source defines."""
    return [name or alias for name, alias in DEFINED.findall(re.sub(r"//[^\n]*", "", text))]


def definitions(folders):
    """(name, file) of each type that a source below the folders defines."""
    found = []
    for folder in folders:
        for parent, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if not name.endswith(SOURCES):
                    continue
                path = os.path.join(parent, name)
                with open(path, encoding="utf-8") as file:
                    found += [(type_name, os.path.relpath(path, ROOT)) for type_name in defined_in(file.read())]
    return found


def a_definition_is_told_from_a_declaration():
    assert defined_in("struct A {\n  int a;\n};\nenum class B : uint8_t { kC = 0 };\n  class C final : public D {\n"
                      "using E = int;\ntemplate <typename T>\nstruct F {") == ["A", "B", "C", "E", "F"]
    assert not defined_in("struct A;\nclass B;\nusing skein::C;\nusing namespace d;\n// struct E {\n"
                          "struct F f() { return {}; }")


def no_type_of_the_vocabulary_stands_twice():
    everywhere = definitions(FOLDERS)
    shared = {name for name, path in everywhere if os.path.dirname(path) == VOCABULARY}
    assert {"BlockId", "DType", "Epoch", "KvShape", "RequestId", "TokenSpan"} <= shared, sorted(shared)
    assert len(everywhere) > 1000, len(everywhere)
    twins = [(name, path) for name, path in everywhere if name in shared and os.path.dirname(path) != VOCABULARY]
    names = [name for name, path in everywhere if os.path.dirname(path) == VOCABULARY]
    assert not twins, "defined in %s, and again: %s" % (VOCABULARY, twins)
    assert len(names) == len(shared), "twice in %s: %s" % (VOCABULARY, sorted(names))


if __name__ == "__main__":
    run_tests(a_definition_is_told_from_a_declaration, no_type_of_the_vocabulary_stands_twice)
