// PagedTables: the sequences of a call as kernels read them, in host memory. Kept from call to
// call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cuda/kernels/paged.h"
#include "engine/ops/ops.h"

namespace skein::engine {

class PagedTables {
 public:
  // REQUIRES: block tables cover what the sequences see.
  void Build(std::span<const SequenceSpan> sequences, const KvSpec& spec);

  // One of each sequence; valid until the next Build, as all that follows.
  std::span<const DeviceSpan> spans() const { return spans_; }
  // The block ids of all sequences, as far as they reach.
  std::span<const int32_t> ids() const { return ids_; }
  int32_t rows() const { return rows_; }

 private:
  std::vector<DeviceSpan> spans_;
  std::vector<int32_t> ids_;
  int32_t rows_ = 0;
};

}  // namespace skein::engine
