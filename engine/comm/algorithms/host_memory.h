// LinkMemory of the host: memcpy and SumInOrder, at once. Internal to engine/comm.
#pragma once

#include <vector>

#include "engine/comm/algorithms/link.h"

namespace skein::engine {

class HostMemory : public LinkMemory {
 public:
  int64_t PieceBytes() const override;
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override;
  void Copy(std::byte* to, std::span<const std::byte> from) override;
  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override;

 private:
  std::vector<std::byte> scratch_;
};

}  // namespace skein::engine
