// What the ranks of a test send, and what they must receive. Thread-safe; made once, since every
// rank of every test asks for the same few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"

namespace skein::engine {

using Bytes = std::vector<std::byte>;

// `count` elements of `dtype` of rank `rank`: not exact in any order of summing.
const Bytes& ValuesOf(int rank, int64_t count, DType dtype);

// Of all ranks' values the sum, in pairs of ranks, in f32, rounded once.
const Bytes& SumOf(int ranks, int64_t count, DType dtype);

const Bytes& Text(int seed, size_t bytes);

}  // namespace skein::engine
