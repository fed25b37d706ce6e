"""Compiler flags of kernels that are compiled once for each ISA; the rest of the program keeps the baseline."""

# A sum is contracted where the code says so only: a row gets the same bits in any loop.
# -O3 in every configuration: unoptimised intrinsics are too slow even for tests.
KERNEL_COPTS = ["-O3", "-fno-math-errno", "-ffp-contract=off"]

# gcc 12's own AVX-512 intrinsics start from "undefined" registers and are warned about.
AVX512_COPTS = [
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mfma",
    "-mf16c",
    "-mprefer-vector-width=512",
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
]

AVX2_COPTS = ["-mavx2", "-mfma", "-mf16c"]
