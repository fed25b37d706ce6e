#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/f16.h"
#include "engine/cuda/attention/attention.h"
#include "engine/cuda/attention/wide_choice.h"

namespace skein::engine {
namespace {

constexpr int kHeads = 4, kKvHeads = 2, kGroup = kHeads / kKvHeads, kBlockTokens = 16;
// With it, each row has more tiles of keys and values than the kernel's ring has places.
constexpr int kHistory = 570;

struct Shape {
  DType dtype;
  int head_dim;
  bool split;
};
// Each of the kernel's four kinds.
constexpr Shape kShapes[] = {{DType::kBF16, 128, false},
                             {DType::kF16, 128, true},
                             {DType::kBF16, 64, true},
                             {DType::kF16, 64, false}};

// Device memory for a while.
class Buffer {
 public:
  static absl::StatusOr<Buffer> Make(Device* device, size_t bytes) {
    absl::StatusOr<void*> data = device->Alloc(bytes);
    if (!data.ok()) return data.status();
    return Buffer(device, *data, bytes);
  }
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) device_->Free(data_, bytes_);
  }
  void* data() const { return data_; }

 private:
  Buffer(Device* device, void* data, size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

struct Result {
  std::vector<float> out;  // [tokens, heads * head_dim]
  std::vector<float> lse;  // [tokens, heads]
};

// One span's attention on the device.
class Trial {
 public:
  Trial(Device* device, CudaStream stream, const Shape& shape, int tokens)
      : device_(device),
        stream_(stream),
        shape_(shape),
        tokens_(tokens),
        span_{0, kHistory, -1, tokens, 0, 0, kBlockTokens, kKvHeads, 0},
        plan_(AttentionPolicy{1 << 20, 64, 64, shape.split ? 3 : 1}) {
    plan_.Build({&span_, 1}, kHeads, shape.head_dim);
  }

  absl::Status Upload() {
    std::mt19937 random(7);
    std::vector<int32_t> table(static_cast<size_t>(Blocks()));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    std::uniform_real_distribution<float> draw(-1.0f, 1.0f);
    std::vector<float> q(OutElements());
    for (float& value : q) value = draw(random);
    std::vector<uint16_t> pool(static_cast<size_t>(Blocks() * BlockElements()));
    for (uint16_t& bits : pool) bits = Round(draw(random));
    absl::Status status = Put(&span_, sizeof span_, &device_span_);
    if (status.ok()) status = Put(table.data(), table.size() * sizeof table[0], &table_);
    if (status.ok()) status = Put(q.data(), q.size() * sizeof q[0], &q_);
    if (status.ok()) status = Put(pool.data(), pool.size() * sizeof pool[0], &pool_);
    if (status.ok()) status = Put(plan_.bytes().data(), plan_.bytes().size(), &device_plan_);
    if (status.ok()) status = Take(OutElements() * sizeof(float), &out_);
    if (status.ok()) status = Take(LseElements() * sizeof(float), &lse_);
    const size_t scratch = AttentionScratchBytes(plan_.partial_rows(), shape_.head_dim);
    if (status.ok() && scratch > 0) status = Take(scratch, &scratch_);
    return status;
  }

  absl::StatusOr<Result> Run(WideKernel wide) {
    // Elements that the kernel does not write are NaN.
    Result result{std::vector<float>(OutElements(), NAN), std::vector<float>(LseElements(), NAN)};
    absl::Status status = Copy(out_.data(), result.out, CopyKind::kHostToDevice);
    if (status.ok()) status = Copy(lse_.data(), result.lse, CopyKind::kHostToDevice);
    if (!status.ok()) return status;
    const int64_t cols = int64_t{kHeads} * shape_.head_dim;
    FlashAttention({{q_.data(), DType::kF32, tokens_, cols, cols},
                    {static_cast<const DeviceSpan*>(device_span_.data()),
                     static_cast<const int32_t*>(table_.data()), 1, tokens_},
                    {pool_.data(), shape_.dtype, shape_.head_dim, BlockElements()},
                    // Few keys have most of a row's weight: one that is missed shows.
                    12.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
                    {out_.data(), DType::kF32, tokens_, cols, cols},
                    {lse_.data(), DType::kF32, tokens_, kHeads, kHeads}},
                   {plan_.grid(), device_plan_.data(), scratch_.data(), plan_.partial_rows(), wide},
                   stream_);
    status = Copy(out_.data(), result.out, CopyKind::kDeviceToHost);
    if (status.ok()) status = Copy(lse_.data(), result.lse, CopyKind::kDeviceToHost);
    if (status.ok()) status = device_->Synchronize();
    if (!status.ok()) return status;
    return result;
  }

  // The first of `values`, of `each` for a head, that is further from its reference than that may.
  absl::Status Compare(const char* what, int each, const std::vector<float>& values,
                       const std::vector<float>& reference, float tolerance) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::abs(values[i] - reference[i]) <= tolerance * (1.0f + std::abs(reference[i]))) {
        continue;
      }
      const size_t head = i / static_cast<size_t>(each);
      return absl::InternalError(
          absl::StrCat(std::string(NameOf(shape_.dtype)), ", head_dim ", shape_.head_dim,
                       shape_.split ? ", split" : "", ": ", what, " of token ", head / kHeads,
                       ", head ", head % kHeads, ", element ", i % static_cast<size_t>(each),
                       " is ", values[i], ", not ", reference[i]));
    }
    return absl::OkStatus();
  }

  const Shape& shape() const { return shape_; }

 private:
  int64_t Blocks() const { return (kHistory + tokens_ + kBlockTokens - 1) / kBlockTokens; }
  int64_t BlockElements() const { return int64_t{2} * kKvHeads * kBlockTokens * shape_.head_dim; }
  size_t LseElements() const { return static_cast<size_t>(tokens_) * kHeads; }
  size_t OutElements() const { return LseElements() * static_cast<size_t>(shape_.head_dim); }
  uint16_t Round(float value) const {
    return shape_.dtype == DType::kBF16 ? ToBF16(value).bits
                                        : std::bit_cast<uint16_t>(static_cast<F16>(value));
  }
  absl::Status Take(size_t bytes, Buffer* to) {
    absl::StatusOr<Buffer> buffer = Buffer::Make(device_, bytes);
    if (!buffer.ok()) return buffer.status();
    *to = *std::move(buffer);
    return absl::OkStatus();
  }
  absl::Status Put(const void* from, size_t bytes, Buffer* to) {
    const absl::Status status = Take(bytes, to);
    if (!status.ok()) return status;
    return device_->Copy(to->data(), from, bytes, CopyKind::kHostToDevice);
  }
  absl::Status Copy(void* device, std::vector<float>& host, CopyKind kind) {
    const bool up = kind == CopyKind::kHostToDevice;
    return device_->Copy(up ? device : host.data(), up ? host.data() : device,
                         host.size() * sizeof(float), kind);
  }

  Device* const device_;
  const CudaStream stream_;
  const Shape shape_;
  const int tokens_;
  const DeviceSpan span_;
  AttentionPlan plan_;
  Buffer device_span_, table_, q_, pool_, device_plan_, out_, lse_, scratch_;
};

absl::Status Check(Trial* trial) {
  absl::Status status = trial->Upload();
  if (!status.ok()) return status;
  const absl::StatusOr<Result> reference = trial->Run(WideKernel::kMmaSync);
  if (!reference.ok()) return reference.status();
  const absl::StatusOr<Result> first = trial->Run(WideKernel::kWgmma);
  if (!first.ok()) return first.status();
  const absl::StatusOr<Result> again = trial->Run(WideKernel::kWgmma);
  if (!again.ok()) return again.status();
  // Both round weights to KV's dtype, relative to another largest score.
  const float rounding = trial->shape().dtype == DType::kBF16 ? 8e-3f : 1e-3f;
  const int head_dim = trial->shape().head_dim;
  status = trial->Compare("log-sum-exp", 1, first->lse, reference->lse, 1e-4f);
  if (status.ok())
    status = trial->Compare("output", head_dim, first->out, reference->out, rounding);
  if (status.ok()) status = trial->Compare("a second run's", head_dim, again->out, first->out, 0);
  return status;
}

}  // namespace

absl::Status CheckWgmmaAttention(Device* device, CudaStream stream, int multiprocessors) {
  // More tiles than blocks.
  const int tiles = multiprocessors / kKvHeads + 2;
  const int rows = kAttentionRows[static_cast<int>(AttentionKind::kWide)] * tiles;
  for (const Shape& shape : kShapes) {
    Trial trial(device, stream, shape, rows / kGroup - 5);
    const absl::Status status = Check(&trial);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
