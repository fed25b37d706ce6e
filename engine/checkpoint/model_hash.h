// The hash by which both ends of a handoff know that they serve the same model.
//
// Hex SHA-256 over: the bytes of config.json; then, for every tensor in order of names, its name,
// dtype, shape, byte count and a sample of its bytes (32 stretches of 64 bytes, evenly spaced, each
// preceded by its offset; all bytes of a tensor smaller than that). The cost is a few pages per
// tensor, whatever the model's size; how the tensors are dealt to shards does not matter.
#pragma once

#include <string>
#include <string_view>

#include "engine/checkpoint/tensor_store.h"

namespace skein::engine {

std::string ModelHash(std::string_view config_text, const TensorStore& tensors);

}  // namespace skein::engine
