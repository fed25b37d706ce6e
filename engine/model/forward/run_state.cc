#include "engine/model/forward/run_state.h"

#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// Allocates matrices one by one; remembers the first error.
class Allocator {
 public:
  Allocator(Device* device, RunState* state) : device_(device), state_(state) {}

  void* Bytes(size_t bytes) {
    if (!status_.ok()) return nullptr;
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(device_, bytes);
    if (!buffer.ok()) {
      status_ = buffer.status();
      return nullptr;
    }
    state_->owned.push_back(*std::move(buffer));
    return state_->owned.back().data();
  }

  Matrix Rows(DType dtype, int64_t rows, int64_t cols) {
    return {Bytes(static_cast<size_t>(rows * cols) * BytesOf(dtype)), dtype, rows, cols, cols};
  }

  const absl::Status& status() const { return status_; }

 private:
  Device* device_;
  RunState* state_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(Device* device, size_t bytes) {
  const absl::StatusOr<void*> data = device->Alloc(bytes);
  if (!data.ok()) return data.status();
  DeviceBuffer buffer;
  buffer.device_ = device;
  buffer.data_ = *data;
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->Free(data_, bytes_);
}

absl::StatusOr<RunState> AllocateRunState(const ModelConfig& config, DType activation,
                                          DType head_activation, int64_t tokens_max,
                                          int64_t logit_rows_max, Device* device) {
  RunState state;
  Allocator allocator(device, &state);
  const int64_t hidden = config.hidden_size;
  state.residual = allocator.Rows(DType::kF32, tokens_max, hidden);
  state.normed = allocator.Rows(activation, tokens_max, hidden);
  const int64_t query = config.QueryColumns(), kv = config.KvColumns();
  state.qkv = allocator.Rows(DType::kF32, tokens_max, query + 2 * kv);
  state.attention = allocator.Rows(activation, tokens_max, config.QueryColumns());
  state.projected = allocator.Rows(DType::kF32, tokens_max, hidden);
  state.gate_up = allocator.Rows(DType::kF32, tokens_max, int64_t{2} * config.intermediate_size);
  state.ffn = allocator.Rows(activation, tokens_max, config.intermediate_size);
  state.last_normed = allocator.Rows(head_activation, logit_rows_max, hidden);
  state.logits = allocator.Rows(DType::kF32, logit_rows_max, config.vocab_size);
  if (!allocator.status().ok()) return allocator.status();
  state.query = Columns(state.qkv, tokens_max, 0, query);
  state.key = Columns(state.qkv, tokens_max, query, kv);
  state.value = Columns(state.qkv, tokens_max, query + kv, kv);
  return state;
}

absl::Status AllocateKv(const KvSpec& kv, Device* device, RunState* state) {
  Allocator allocator(device, state);
  for (int layer = 0; layer < kv.num_layers; ++layer) {
    state->kv.push_back(allocator.Bytes(static_cast<size_t>(kv.num_blocks * kv.BlockBytes())));
  }
  return allocator.status();
}

Matrix FirstRows(const Matrix& matrix, int64_t rows) {
  SKEIN_CHECK(rows >= 0 && rows <= matrix.rows);
  return {matrix.data, matrix.dtype, rows, matrix.cols, matrix.stride};
}

Matrix Columns(const Matrix& matrix, int64_t rows, int64_t begin, int64_t cols) {
  SKEIN_CHECK(matrix.dtype == DType::kF32);
  SKEIN_CHECK(rows <= matrix.rows && begin >= 0 && begin + cols <= matrix.cols);
  return {static_cast<float*>(matrix.data) + begin, DType::kF32, rows, cols, matrix.stride};
}

Matrix Compact(const Matrix& buffer, int64_t rows, int64_t cols) {
  SKEIN_CHECK(rows * cols <= buffer.rows * buffer.cols);
  return {buffer.data, buffer.dtype, rows, cols, cols};
}

}  // namespace skein::engine
