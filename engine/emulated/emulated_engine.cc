#include "engine/emulated/emulated_engine.h"

#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_sampling.h"
#include "engine/emulated/group_run.h"
#include "engine/emulated/ring_run.h"
#include "engine/emulated/tagged_memory.h"
#include "engine/emulated/tagged_sequence.h"
#include "engine/emulated/tags.h"
#include "engine/model/forward/step_check.h"

namespace skein::engine {
namespace {

absl::Status CheckOptions(const EmulatedOptions& options) {
  const KvSpec& kv = options.kv;
  const std::pair<const char*, int64_t> positives[] = {{"kv.num_layers", kv.num_layers},
                                                       {"kv.kv_heads", kv.kv_heads},
                                                       {"kv.head_dim", kv.head_dim},
                                                       {"kv.block_tokens", kv.block_tokens},
                                                       {"kv.num_blocks", kv.num_blocks},
                                                       {"vocab_size", options.vocab_size},
                                                       {"max_positions", options.max_positions}};
  for (const auto& [field, value] : positives) {
    if (value < 1)
      return absl::InvalidArgumentError(absl::StrCat(field, " = ", value, ": must be at least 1"));
  }
  if (options.extra_blocks < 0 || options.extra_blocks >= kv.num_blocks) {
    return absl::InvalidArgumentError(absl::StrCat("extra_blocks = ", options.extra_blocks,
                                                   ": must be from 0 to kv.num_blocks - 1"));
  }
  if (kv.head_dim * BytesOf(kv.dtype) % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError("kv.head_dim: the bytes of a head must be a multiple of 8");
  }
  return absl::OkStatus();
}

// It decodes. Several tokens of an output are computed again, like a prompt.
bool BehindPrompt(const SequenceStep& sequence) {
  return !sequence.prompt.empty() && sequence.tokens.size() == 1 &&
         sequence.position >= static_cast<int64_t>(sequence.prompt.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedEngine>> EmulatedEngine::Create(
    const EmulatedOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  std::unique_ptr<EmulatedEngine> engine(new EmulatedEngine(options));
  if (absl::Status status = engine->Allocate(); !status.ok()) return status;
  return engine;
}

EmulatedEngine::EmulatedEngine(const EmulatedOptions& options)
    : digest_tokens_(options.digest_tokens), times_(options.times), device_(options.device) {
  spec_ = {.model_hash = "emulated",
           .device = "emulated",
           .vocab_size = options.vocab_size,
           .max_positions = options.max_positions,
           .num_parameters = 0,
           .kv = options.kv,
           .extra_blocks = options.extra_blocks};
}

absl::Status EmulatedEngine::Allocate() {
  const int64_t bytes = spec_.kv.num_blocks * spec_.kv.BlockBytes();
  for (int layer = 0; layer < spec_.kv.num_layers; ++layer) {
    if (device_ == nullptr) {
      heap_.push_back(std::make_unique<uint64_t[]>(static_cast<size_t>(bytes) / sizeof(uint64_t)));
      regions_.push_back({heap_.back().get(), bytes});
      continue;
    }
    const absl::StatusOr<void*> base = device_->Alloc(static_cast<size_t>(bytes));
    if (!base.ok()) return base.status();
    regions_.push_back({*base, bytes});
  }
  return absl::OkStatus();
}

EmulatedEngine::~EmulatedEngine() {
  if (device_ == nullptr) return;
  for (const KvRegion& region : regions_) {
    device_->Free(region.base, static_cast<size_t>(region.bytes));
  }
}

double StepSeconds(const EmulatedTimes& times, int sp, int tp,
                   std::span<const SequenceStep> sequences,
                   std::span<const SequenceResult> results) {
  double seconds = 0;
  int64_t decoding = 0;
  int64_t kv_tokens = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceStep& sequence = sequences[i];
    if (!results[i].status.ok()) continue;
    if (BehindPrompt(sequence)) {
      ++decoding;
      kv_tokens += sequence.position;
    } else if (times.prefill_s != nullptr) {
      seconds += times.prefill_s(sp * tp, tp, sequence.position,
                                 static_cast<int64_t>(sequence.tokens.size()));
    }
  }
  return decoding == 0 ? seconds : seconds + times.decode.Seconds(sp, tp, decoding, kv_tokens);
}

absl::Status EmulatedEngine::Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                                  std::vector<SequenceResult>* results) {
  if (sequences.size() != 1 || sequences[0].ring == nullptr) {
    return StepPlain(sequences, progress, results);
  }
  results->assign(1, {});
  RingRun run(spec_, regions_, times_, digest_tokens_, sequences[0]);
  absl::Status status = run.Run(progress, &results->front());
  stream_.Ended(StepProgress::Clock::now());
  return status;
}

absl::Status EmulatedEngine::StepTogether(const GroupPart& part,
                                          std::span<const SequenceStep> sequences,
                                          StepProgress* progress,
                                          std::vector<SequenceResult>* results) {
  GroupRun run(spec_, regions_, times_, digest_tokens_, part, sequences);
  absl::Status status = run.Run(progress, results);
  stream_.Ended(StepProgress::Clock::now());
  return status;
}

void EmulatedEngine::Answer(const SequenceStep& sequence, SequenceResult* result) const {
  if (sequence.next_tokens.empty() && !sequence.sample) return;
  const std::vector<uint64_t> chains =
      ChainsOfStep({&spec_.kv, regions_}, digest_tokens_, sequence);
  const auto heads = static_cast<size_t>(spec_.kv.kv_heads);
  std::vector<uint64_t> digests;
  for (size_t at = 0; at < chains.size(); at += heads) {
    digests.push_back(JoinChains(std::span(chains).subspan(at, heads)));
  }
  AnswerEmulated(sequence, spec_.vocab_size, digests, result);
}

absl::Status EmulatedEngine::StepPlain(std::span<const SequenceStep> sequences,
                                       StepProgress* progress,
                                       std::vector<SequenceResult>* results) {
  const auto launched = progress != nullptr ? progress->launched() : StepProgress::Clock::now();
  const int64_t tokens_max = std::numeric_limits<int64_t>::max();
  const absl::Status checked = CheckStep(sequences, spec_, tokens_max, KvLayout{}, results);
  if (!checked.ok() || !AnyRuns(*results)) return checked;
  const double seconds = StepSeconds(times_, 1, 1, sequences, *results);
  RunPlain(sequences, stream_.Begin(launched, seconds), seconds, progress, results);
  return absl::OkStatus();
}

void EmulatedEngine::RunPlain(std::span<const SequenceStep> sequences, DeviceTime start,
                              double seconds, StepProgress* progress,
                              std::vector<SequenceResult>* results) const {
  const TaggedMemory memory(&spec_.kv, regions_);
  std::vector<std::pair<size_t, std::vector<uint64_t>>> running;  // index, links
  for (size_t i = 0; i < sequences.size(); ++i) {
    if ((*results)[i].status.ok()) running.emplace_back(i, LinksOfStep(memory, sequences[i]));
  }
  const int layers = spec_.kv.num_layers;
  for (int layer = 0; layer < layers; ++layer) {
    for (const auto& [i, links] : running) WriteTags(memory, sequences[i], layer, links);
    if (layer + 1 == layers) {
      for (const auto& [i, links] : running) Answer(sequences[i], &(*results)[i]);
    }
    const DeviceTime over = PartOf(start, seconds, layer + 1, layers);
    times_.sleep_until ? times_.sleep_until(over) : SleepUntil(over);
    if (progress != nullptr) progress->Queue(layer, nullptr);
  }
}

namespace {

// The digest of tokens that are not in any memory.
class Continuation {
 public:
  explicit Continuation(const EmulatedOptions* options)
      : kv_(options->kv),
        digest_tokens_(options->digest_tokens),
        chains_(static_cast<size_t>(kv_.kv_heads)) {}

  uint64_t Append(int32_t token) {
    if (BeginsDigest(position_, digest_tokens_)) chains_.assign(chains_.size(), 0);
    link_ = NextLink(link_, position_++, token);
    FoldToken(kv_, link_, chains_);
    return digest_ = JoinChains(chains_);
  }
  uint64_t digest() const { return digest_; }

 private:
  const KvSpec& kv_;
  const int64_t digest_tokens_;
  std::vector<uint64_t> chains_;
  uint64_t link_ = kChainStart;
  uint64_t digest_ = 0;
  int64_t position_ = 0;
};

}  // namespace

std::vector<SampledToken> EmulatedAnswer(const EmulatedOptions& options,
                                         std::span<const int32_t> prompt, int64_t count,
                                         const SamplingParams& sampling) {
  Continuation continuation(&options);
  for (const int32_t token : prompt) continuation.Append(token);
  std::vector<SampledToken> answer;
  std::vector<int32_t> output;
  while (static_cast<int64_t>(output.size()) < count) {
    absl::StatusOr<SampledToken> sampled = SampleEmulated(continuation.digest(), options.vocab_size,
                                                          sampling, output.size(), prompt, output);
    if (!sampled.ok()) break;
    output.push_back(sampled->token);
    continuation.Append(sampled->token);
    answer.push_back(*std::move(sampled));
  }
  return answer;
}

std::vector<int32_t> EmulatedContinuation(const EmulatedOptions& options,
                                          std::span<const int32_t> prompt, int64_t count,
                                          const SamplingParams& sampling) {
  std::vector<int32_t> ids;
  for (const SampledToken& sampled : EmulatedAnswer(options, prompt, count, sampling)) {
    ids.push_back(sampled.token);
  }
  return ids;
}

std::vector<SampledToken> EmulatedPromptLogprobs(const EmulatedOptions& options,
                                                 std::span<const int32_t> prompt,
                                                 int top_logprobs) {
  Continuation continuation(&options);
  std::vector<SampledToken> logprobs;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    const uint64_t digest = continuation.Append(prompt[i]);
    logprobs.push_back(EmulatedLogprobs(digest, options.vocab_size, prompt[i + 1], top_logprobs));
  }
  return logprobs;
}

}  // namespace skein::engine
