// DeviceSampler: samples tokens from logits that are in device memory, so that only tokens cross to
// the host. The same choice as engine/sampling/sampler.h makes from the same logits (see
// kernels/sampling.h for the one exception). Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/cuda/device/device_tables.h"
#include "engine/cuda/kernels/sampling.h"
#include "engine/cuda/simt/stream.h"
#include "engine/device/device.h"
#include "engine/sampling/sampling_params.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

class DeviceSampler final : public TokenSampler {
 public:
  // For up to `rows_max` requests a call. Candidates and edited logits have room for
  // kRowsAtOnce of them: more are sampled launch by launch. RESOURCE_EXHAUSTED.
  static constexpr int kRowsAtOnce = 128;
  static absl::StatusOr<std::unique_ptr<TokenSampler>> Make(std::shared_ptr<Device> device,
                                                            CudaStream stream, int vocab_size,
                                                            int rows_max);
  ~DeviceSampler() override;
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  int RequestsMax() const override { return rows_max_; }
  // True unless more than kDeviceTopLogprobsMax alternatives are wanted.
  bool Takes(const SamplingParams& params) const override {
    return params.top_logprobs <= kDeviceTopLogprobsMax;
  }
  absl::Status Sample(ConstMatrix logits, std::span<const SampleRequest> requests,
                      std::span<absl::StatusOr<SampledToken>> answers) override;

 private:
  DeviceSampler(std::shared_ptr<Device> device, CudaStream stream, int vocab_size, int rows_max);

  size_t ScratchBytes() const;
  SampleRow RowOf(const SampleRequest& request);
  void AddEdits(const SampleRequest& request);
  void AddPenalties(const SampleRequest& request);
  LogitEdit& EditOf(int32_t id);

  const std::shared_ptr<Device> device_;
  const CudaStream stream_;
  const int vocab_size_;
  const int rows_max_;
  void* scratch_ = nullptr;
  SampleOut* device_outs_ = nullptr;
  DeviceTables tables_;
  std::vector<SampleRow> rows_;  // of the call, as edits_ and outs_
  std::vector<LogitEdit> edits_;
  std::vector<SampleOut> outs_;
  std::vector<int32_t> edit_of_;  // [vocab_size] index + 1 in edits_ of the request; 0 between
  size_t edits_begin_ = 0;
};

}  // namespace skein::engine
