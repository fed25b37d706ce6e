#include "engine/cuda/ops/device_sampler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/sampling/logit_edits.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sample_errors.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

absl::StatusOr<SampledToken> AnswerOf(const SampleOut& out) {
  if (out.state == SampleState::kBadLogits) return BadLogits();
  if (out.state == SampleState::kNothingLeft) return NoTokenLeft();
  SampledToken token{out.token, out.logprob, {}};
  for (int i = 0; i < out.top_count; ++i) {
    token.top.push_back({out.top_ids[i], out.top_logprobs[i]});
  }
  return token;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSampler>> DeviceSampler::Make(std::shared_ptr<Device> device,
                                                                  CudaStream stream, int vocab_size,
                                                                  int rows_max) {
  if (vocab_size > kDeviceVocabMax) {
    return absl::InvalidArgumentError("vocab_size = " + std::to_string(vocab_size) +
                                      ": at most 1048576 on a device");
  }
  std::unique_ptr<DeviceSampler> sampler(
      new DeviceSampler(std::move(device), stream, vocab_size, rows_max));
  const absl::StatusOr<void*> scratch = sampler->device_->Alloc(sampler->ScratchBytes());
  if (!scratch.ok()) return scratch.status();
  sampler->scratch_ = *scratch;
  const absl::StatusOr<void*> outs = sampler->device_->Alloc(sizeof(SampleOut) * rows_max);
  if (!outs.ok()) return outs.status();
  sampler->device_outs_ = static_cast<SampleOut*>(*outs);
  return sampler;
}

DeviceSampler::DeviceSampler(std::shared_ptr<Device> device, CudaStream stream, int vocab_size,
                             int rows_max)
    : device_(std::move(device)),
      stream_(stream),
      vocab_size_(vocab_size),
      rows_max_(rows_max),
      tables_(device_),
      edit_of_(static_cast<size_t>(vocab_size), 0) {}

DeviceSampler::~DeviceSampler() {
  if (scratch_ != nullptr) device_->Free(scratch_, ScratchBytes());
  if (device_outs_ != nullptr) device_->Free(device_outs_, sizeof(SampleOut) * rows_max_);
}

size_t DeviceSampler::ScratchBytes() const {
  return static_cast<size_t>(SampleScratchBytes(std::min(rows_max_, kRowsAtOnce), vocab_size_));
}

LogitEdit& DeviceSampler::EditOf(int32_t id) {
  int32_t& place = edit_of_[static_cast<size_t>(id)];
  if (place == 0) {
    edits_.push_back({id, 0, 0, 0, 0.0f});
    place = static_cast<int32_t>(edits_.size() - edits_begin_);
  }
  return edits_[edits_begin_ + static_cast<size_t>(place) - 1];
}

void DeviceSampler::AddPenalties(const SampleRequest& request) {
  const int32_t repeated = request.params->repetition_penalty != 1.0f ? 1 : 0;
  const bool counts = SeenIds::PenalisesOutput(*request.params);
  const auto add = [&](int32_t id, int32_t output_count) {
    LogitEdit& edit = EditOf(id);
    edit.repeated = repeated;
    if (counts) edit.output_count += output_count;
  };
  if (request.seen != nullptr) {
    for (const SeenId& seen : request.seen->ids()) add(seen.id, seen.output_count);
    return;
  }
  if (repeated != 0) {
    for (const int32_t id : request.prompt) add(id, 0);
  }
  for (const int32_t id : request.output) add(id, 1);
}

// The same as LogitEditor::Apply, id by id.
void DeviceSampler::AddEdits(const SampleRequest& request) {
  const SamplingParams& params = *request.params;
  if (SeenIds::Penalises(params)) AddPenalties(request);
  for (const auto& [id, bias] : params.logit_bias) EditOf(id).bias += bias;
  if (request.token_index < static_cast<uint64_t>(params.min_tokens)) {
    for (const int32_t id : params.suppressed_until_min_tokens) EditOf(id).suppressed = 1;
  }
  for (size_t i = edits_begin_; i < edits_.size(); ++i) {
    edit_of_[static_cast<size_t>(edits_[i].id)] = 0;
  }
}

SampleRow DeviceSampler::RowOf(const SampleRequest& request) {
  const SamplingParams& params = *request.params;
  SKEIN_CHECK(Takes(params));
  edits_begin_ = edits_.size();
  const bool samples = request.given < 0;
  if (samples && LogitEditor::Edits(params, request.token_index)) AddEdits(request);
  SampleRow row{};
  row.row = static_cast<int32_t>(request.row);
  row.given = request.given;
  row.edits_begin = static_cast<int32_t>(edits_begin_);
  row.edits_count = static_cast<int32_t>(edits_.size() - edits_begin_);
  row.top_k = params.top_k;
  // A given token is there for its logprob.
  row.top_logprobs = samples || params.top_logprobs > 0 ? params.top_logprobs : 0;
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.repetition_penalty = params.repetition_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.presence_penalty = params.presence_penalty;
  row.uniform = samples ? UniformSample(params.seed, request.token_index) : 0.0;
  return row;
}

absl::Status DeviceSampler::Sample(ConstMatrix logits, std::span<const SampleRequest> requests,
                                   std::span<absl::StatusOr<SampledToken>> answers) {
  SKEIN_CHECK(logits.cols == vocab_size_ && answers.size() == requests.size());
  SKEIN_CHECK(requests.size() <= static_cast<size_t>(rows_max_));
  if (requests.empty()) return absl::OkStatus();
  rows_.clear();
  edits_.clear();
  for (const SampleRequest& request : requests) {
    SKEIN_CHECK(request.row >= 0 && request.row < logits.rows && request.given < vocab_size_);
    rows_.push_back(RowOf(request));
  }
  const auto* rows =
      reinterpret_cast<const SampleRow*>(tables_.Get(std::as_bytes(std::span(rows_))));
  const LogitEdit* edits = nullptr;
  if (!edits_.empty()) {
    edits = reinterpret_cast<const LogitEdit*>(tables_.Get(std::as_bytes(std::span(edits_))));
  }
  const auto count = static_cast<int>(rows_.size());
  for (int begin = 0; begin < count; begin += kRowsAtOnce) {
    SampleKernel(logits, rows + begin, edits, std::min(kRowsAtOnce, count - begin), scratch_,
                 device_outs_ + begin, stream_);
  }
  outs_.resize(rows_.size());
  absl::Status status = device_->Copy(outs_.data(), device_outs_, sizeof(SampleOut) * outs_.size(),
                                      CopyKind::kDeviceToHost);
  if (!status.ok()) return status;
  status = device_->Synchronize();
  if (!status.ok()) return status;
  for (size_t i = 0; i < outs_.size(); ++i) answers[i] = AnswerOf(outs_[i]);
  return absl::OkStatus();
}

}  // namespace skein::engine
