// EmulatedEngine: an Engine without a model. Its KV blocks are real memory that holds content tags,
// and each sampled token is a digest of ALL tags of the sequence, read through its block table: a
// wrong, stale, early-freed, half-written or misplaced block changes the output. With
// EmulatedTimes a step also takes the time that a real device would.
//
// Tags (tags.h). Every token has a link, a hash chain over (position, token) from the sequence's
// start, so that equal prefixes have equal KV whoever wrote it. A token's place in a block
// (kv_spec.h: K and V, every head that the rank holds in the sequence's layout) is filled with
// 64-bit words that mix the link with layer, part, head and word. The link itself is not stored
// elsewhere: a step that continues a sequence recovers it from the KV of the token before (layer 0,
// word 0 is an invertible mix), so wrong KV also poisons what is written after it.
//
// The digest folds, head by head, every word of positions 0 … n-1 of every layer in order. A
// group's ranks put it together from their heads (group_run.h). It stands for the
// logits after those positions: what is sampled from it, with which logprobs, depends on the
// sampling parameters, the output index and the output so far as with a model
// (emulated_sampling.h). Greedy sampling without penalties or bias takes digest % vocab_size.
//
// A ring step (ring_run.h) takes its links from SequenceStep::prompt, moves the blocks that
// it is told to move through the communicator, and compares the tags of its history with what they
// must be; if any rank finds one wrong, missing or there twice, what all ranks write and sample
// is poisoned.
//
// Time, as a device's stream takes it. A step begins when it was launched, or when the step before
// it ends if that is later (a ring or group one: when all its ranks are there). A step of L layers
// ends layer l when (l + 1) / L of its time has passed since then, asleep. What the host does,
// between steps and for the tags, is within that time as long as it is less. What the tags cost
// grows with the sequences' length; with `digest_tokens` it does not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/emulated/pace.h"
#include "engine/engine.h"
#include "scheduler/vocabulary/decode_times.h"

namespace skein::engine {

// How long steps take, seconds. A step takes the sum over its sequences: for tokens of the prompt
// `prefill_s`, and once `decode`, if it has sequences with one token behind their prompt, for all
// of those.
struct EmulatedTimes {
  // The time of `tokens` tokens after `history` tokens on `members` instances, which are
  // (members / tp, tp). Null: none.
  std::function<double(int members, int tp, int64_t history, int64_t tokens)> prefill_s;
  DecodeTimes decode;
  // Tests: replaces the sleep at the end of each layer of a step of this instance alone.
  std::function<void(StepProgress::Clock::time_point until)> sleep_until;
};

struct EmulatedOptions {
  KvSpec kv;                 // head_dim * bytes of dtype must be a multiple of 8
  int64_t extra_blocks = 0;  // EngineSpec's
  int vocab_size = 1000;
  int max_positions = 4096;
  // > 0: a digest folds the tags behind the last multiple of so many tokens only, so a wrong block
  // before that changes nothing. (Links are chained over all tokens in any case.)
  int64_t digest_tokens = 0;
  EmulatedTimes times = {};
  std::shared_ptr<Device> device = nullptr;  // holds the KV; null: the heap
};

// The time of a step of sp * tp instances: of its sequences whose result is OK.
double StepSeconds(const EmulatedTimes& times, int sp, int tp,
                   std::span<const SequenceStep> sequences,
                   std::span<const SequenceResult> results);

class EmulatedEngine : public Engine {
 public:
  // INVALID_ARGUMENT names the field; the device's error if it has no room.
  static absl::StatusOr<std::unique_ptr<EmulatedEngine>> Create(const EmulatedOptions& options);
  ~EmulatedEngine() override;

  const EngineSpec& Spec() const override { return spec_; }
  std::span<const KvRegion> KvRegions() const override { return regions_; }
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override;
  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override;

 private:
  explicit EmulatedEngine(const EmulatedOptions& options);

  absl::Status Allocate();
  void Answer(const SequenceStep& sequence, SequenceResult* result) const;
  absl::Status StepPlain(std::span<const SequenceStep> sequences, StepProgress* progress,
                         std::vector<SequenceResult>* results);
  // Layer by layer, in time, the links by the sequences' index.
  void RunPlain(std::span<const SequenceStep> sequences, DeviceTime start, double seconds,
                StepProgress* progress, std::vector<SequenceResult>* results) const;

  EngineSpec spec_;
  int64_t digest_tokens_;
  EmulatedTimes times_;
  DeviceStream stream_;
  std::shared_ptr<Device> device_;
  std::vector<std::unique_ptr<uint64_t[]>> heap_;  // one per layer, without a device
  std::vector<KvRegion> regions_;
};

// The first `count` tokens that EmulatedEngine samples for `prompt`, computed from the tokens
// alone; fewer when no id is left to sample. REQUIRES: CheckSamplingParams is OK.
std::vector<SampledToken> EmulatedAnswer(const EmulatedOptions& options,
                                         std::span<const int32_t> prompt, int64_t count,
                                         const SamplingParams& sampling);
// Its ids.
std::vector<int32_t> EmulatedContinuation(const EmulatedOptions& options,
                                          std::span<const int32_t> prompt, int64_t count,
                                          const SamplingParams& sampling = {});
// The logprobs of prompt[1] and those after it.
std::vector<SampledToken> EmulatedPromptLogprobs(const EmulatedOptions& options,
                                                 std::span<const int32_t> prompt, int top_logprobs);

}  // namespace skein::engine
