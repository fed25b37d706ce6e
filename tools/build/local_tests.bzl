"""For tests that need as a whole what is not part of the repository: target_compatible_with = REQUIRES_..., env = ..._ENV.

Bazel then shows such a test as SKIPPED where that is missing, and tools/build/test_summary.py counts it so. A test of which
only some cases need it skips these itself.
"""

load("@local_tests//:defs.bzl", "HAS_TORCH", "NPM", "SHARED")

def _requires(there):
    return [] if there else ["//tools/build:incompatible"]

REQUIRES_NPM = _requires(NPM)
NPM_ENV = {"SKEIN_NPM": NPM}
REQUIRES_SHARED = _requires(SHARED)
REQUIRES_TORCH = _requires(HAS_TORCH)
