"""What is built twice: over the GPU's kernels, and over the emulator's. A binary has one of the two.

simt_library: kernel sources, which nvcc and g++ compile; twin_library: hosts' code on them;
twin_test: a test of both.
"""

load("//tools/build:cuda.bzl", "REQUIRES_CUDA", "cuda_library")

# Hopper with its own instructions, and everything since Ampere; what comes after runs the PTX of the
# latter.
ARCHS = ["80", "90a"]

def simt_library(name, srcs, hdrs = [], deps = [], emulated_deps = [], cuda_deps = [], archs = ARCHS, **kwargs):
    """Makes `name` (with --config=cuda) and `name`_emulated (anywhere) of the same .cu files.

    Both define the same functions, so a binary has one of them. `deps` are for both.
    """
    cuda_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        archs = archs,
        tags = ["cuda"],
        deps = deps + cuda_deps + ["//engine/cuda/simt"],
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
        deps = deps + emulated_deps + ["//engine/cuda/simt", "//engine/cuda/emulator"],
        **kwargs
    )

def twin_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        emulated_srcs = [],
        emulated_deps = [],
        cuda_srcs = [],
        cuda_deps = [],
        **kwargs):
    """Makes `name` (with --config=cuda) and `name`_emulated (for tests, anywhere)."""
    native.cc_library(
        name = name,
        srcs = srcs + cuda_srcs,
        hdrs = hdrs,
        tags = ["cuda"],
        target_compatible_with = REQUIRES_CUDA,
        deps = deps + cuda_deps,
        **kwargs
    )
    native.cc_library(
        name = name + "_emulated",
        srcs = srcs + emulated_srcs,
        hdrs = hdrs,
        deps = deps + emulated_deps,
        **dict(kwargs, testonly = True)
    )

def twin_test(name, deps = [], emulated_deps = [], cuda_deps = [], **kwargs):
    """Makes emulated_`name`, and gpu_`name` for tests/gpu/run, which is only built elsewhere."""
    native.cc_test(
        name = "emulated_" + name,
        tags = ["no_tsan"],
        deps = deps + emulated_deps,
        **kwargs
    )
    native.cc_test(
        name = "gpu_" + name,
        tags = ["cuda", "gpu"],
        target_compatible_with = REQUIRES_CUDA,
        deps = deps + cuda_deps,
        **kwargs
    )
