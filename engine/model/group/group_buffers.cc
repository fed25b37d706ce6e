#include "engine/model/group/group_buffers.h"

#include <cstddef>
#include <utility>

namespace skein::engine {

absl::StatusOr<GroupBuffers> AllocateGroupBuffers(const ModelConfig& config, DType activation,
                                                  int64_t tokens_max, int64_t logit_rows_max,
                                                  int ranks_max, Device* device) {
  GroupBuffers buffers;
  absl::Status status;
  const auto allocate = [&](DType dtype, int64_t rows, int64_t cols) -> Matrix {
    if (!status.ok()) return {};
    auto buffer = DeviceBuffer::Allocate(device, static_cast<size_t>(rows * cols) * BytesOf(dtype));
    if (!buffer.ok()) {
      status = buffer.status();
      return {};
    }
    buffers.owned.push_back(*std::move(buffer));
    return {buffers.owned.back().data(), dtype, rows, cols, cols};
  };
  const int64_t rows = tokens_max + ranks_max;
  const int64_t query = int64_t{(config.num_heads + 1) / 2} * config.head_dim;
  const int64_t row = query + int64_t{2} * ((config.num_kv_heads + 1) / 2) * config.head_dim;
  buffers.send = allocate(DType::kF32, rows, row);
  buffers.receive = allocate(DType::kF32, rows, row);
  buffers.returned = allocate(activation, rows, query);
  buffers.joined = allocate(activation, rows, query);
  buffers.logits = allocate(DType::kF32, logit_rows_max, config.vocab_size + ranks_max);
  if (!status.ok()) return status;
  return buffers;
}

}  // namespace skein::engine
