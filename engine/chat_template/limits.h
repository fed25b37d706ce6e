// Bounds that no template and no input can exceed; past one, parsing or rendering ends with
// INVALID_ARGUMENT. Together they keep the stack below 1 MiB in release builds, memory
// proportional to `steps_max`, and time linear in it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::engine {

// Limits of one parse; fixed, because a template is part of a model.
inline constexpr size_t kTemplateBytesMax = size_t{1} << 20;
inline constexpr int kTemplateNestingMax = 64;   // blocks and brackets inside one another
inline constexpr int kExpressionDepthMax = 200;  // height of an expression's tree

// Limits of one render.
struct RenderLimits {
  size_t output_bytes_max = size_t{16} << 20;  // of the result and of every string on the way
  // A step is a node evaluated, an item visited, or 16 bytes of string made.
  uint64_t steps_max = 16'000'000;
  uint64_t loop_iterations_max = 1'000'000;  // of all loops together
  int call_depth_max = 400;                  // nodes being evaluated, one inside the other
  int value_depth_max = 200;                 // lists and dicts inside one another
};

}  // namespace skein::engine
