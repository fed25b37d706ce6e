// Every buffer that a forward pass writes, allocated once for the largest step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/device/device.h"
#include "engine/kv/kv_spec.h"

namespace skein::engine {

// Memory of a device, freed with the object.
class DeviceBuffer {
 public:
  static absl::StatusOr<DeviceBuffer> Allocate(Device* device, size_t bytes);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;  // outlives the buffer
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// T = tokens of the largest step, R = rows whose logits are computed at a time (Ops::SkinnyRowsMax
// at most); H, Q, K, F as in weights.h, V the vocabulary. `act` is ModelWeights::activation, `head`
// its head_activation.
struct RunState {
  Matrix residual;        // f32 [T, H]   the stream that every layer adds to
  Matrix normed;          // act [T, H]   input of the layer's products
  Matrix qkv;             // f32 [T, Q + 2 K], of which the next three are columns
  Matrix query;           // [T, Q]
  Matrix key;             // [T, K]
  Matrix value;           // [T, K]
  Matrix attention;       // act [T, Q]   heads' outputs
  Matrix projected;       // f32 [T, H]   what a layer adds to the residual
  Matrix gate_up;         // f32 [T, 2 F] gate | up
  Matrix ffn;             // act [T, F]
  Matrix last_normed;     // head [R, H]  rows that need logits
  Matrix logits;          // f32 [R, V]
  std::vector<void*> kv;  // one per layer, num_blocks * BlockBytes() each

  std::vector<DeviceBuffer> owned;
};

// All but the KV. RESOURCE_EXHAUSTED when the device has not the memory.
absl::StatusOr<RunState> AllocateRunState(const ModelConfig& config, DType activation,
                                          DType head_activation, int64_t tokens_max,
                                          int64_t logit_rows_max, Device* device);

// The KV of an allocated state. RESOURCE_EXHAUSTED when the device has not the memory.
absl::Status AllocateKv(const KvSpec& kv, Device* device, RunState* state);

// The first `rows` rows.
Matrix FirstRows(const Matrix& matrix, int64_t rows);
// Columns [begin, begin + cols) of the first `rows` rows. f32 only.
Matrix Columns(const Matrix& matrix, int64_t rows, int64_t begin, int64_t cols);
// The first rows * cols elements of a buffer's memory as a matrix without gaps.
Matrix Compact(const Matrix& buffer, int64_t rows, int64_t cols);

}  // namespace skein::engine
