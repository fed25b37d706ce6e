"""What tests of whole models share."""

# Tests of real text on deploy/models/fledgling, in its own dtype and in f32.
PARITY_DEPS = [
    "//engine/model:model_engine",
    "//engine/device:cpu_device",
    "//engine/model/testing:parity_text",
    "//engine/model/testing:widen_checkpoint",
    "//engine/ops/cpu:cpu_ops",
    "@gtest_main",
]

# Tests of random checkpoints.
RANDOM_MODEL_DEPS = [
    "//engine/model:model_engine",
    "//engine/device:cpu_device",
    "//engine/ops/cpu:cpu_ops",
    "//tools/random_checkpoint",
    "@gtest_main",
    "@json",
]
