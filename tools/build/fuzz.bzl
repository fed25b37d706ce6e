"""fuzz_target: a libFuzzer target and its corpus.

tests/fuzz/run compiles NAME, with the sources of all it depends on, by clang with libFuzzer, ASan and UBSan, and runs it.
Under Bazel the corpus tests/fuzz/corpus/NAME runs through the same function with whatever compiler and sanitizers the
build has, as NAME_corpus_test.
"""

def fuzz_target(name, srcs, deps):
    native.cc_library(name = name, testonly = True, srcs = srcs, tags = ["fuzz"], alwayslink = True, deps = deps)
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        args = ["tests/fuzz/corpus/" + name],
        data = native.glob(["corpus/" + name + "/**"]),
        deps = [":" + name, "//tests/fuzz:corpus_main"],
    )
