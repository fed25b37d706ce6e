#include "engine/comm/algorithms/host_memory.h"

#include <cstring>

#include "engine/comm/algorithms/reduce.h"

namespace skein::engine {

int64_t HostMemory::PieceBytes() const { return 128 << 10; }  // a few of them fit in the cache

absl::StatusOr<std::byte*> HostMemory::Scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void HostMemory::Copy(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void HostMemory::Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) {
  SumInOrder(sources, out, count, dtype);
}

}  // namespace skein::engine
