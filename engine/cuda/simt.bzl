"""simt_library: kernel sources that nvcc compiles for the GPU and g++ for the emulator."""

load("//tools/build:cuda.bzl", "cuda_library")

# Hopper with its own instructions, and everything since Ampere.
ARCHS = ["80", "90a"]

def simt_library(name, srcs, hdrs = [], deps = [], emulated_deps = [], cuda_deps = [], **kwargs):
    """Makes `name` (with --config=cuda) and `name`_emulated (anywhere) of the same .cu files.

    Both define the same functions, so a binary has one of them. `deps` are for both.
    """
    cuda_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        archs = ARCHS,
        tags = ["cuda"],
        deps = deps + cuda_deps + ["//engine/cuda:simt"],
        **kwargs
    )
    for src in srcs:
        native.genrule(
            name = name + "_" + src.replace(".", "_"),
            outs = ["emulated_" + src[:-3] + ".cc"],
            cmd = "echo '#include \"%s/%s\"' >$@" % (native.package_name(), src),
        )
    native.cc_library(
        name = name + "_emulated",
        testonly = True,
        srcs = ["emulated_" + src[:-3] + ".cc" for src in srcs],
        hdrs = hdrs,
        textual_hdrs = srcs,
        copts = ["-O2", "-Wno-unknown-pragmas"],
        deps = deps + emulated_deps + ["//engine/cuda:simt", "//engine/cuda/emulator"],
        **kwargs
    )
