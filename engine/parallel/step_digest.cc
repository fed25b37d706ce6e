#include "engine/parallel/step_digest.h"

#include <bit>
#include <cstddef>

#include "engine/comm/communicator.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {
namespace {

uint64_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

void AddSampling(const SamplingParams& sampling, Digest* digest) {
  for (const float value :
       {sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty,
        sampling.presence_penalty, sampling.frequency_penalty}) {
    digest->Add(BitsOf(value));
  }
  digest->Add(static_cast<uint32_t>(sampling.top_k));
  digest->Add(sampling.logit_bias.size());
  for (const auto& [token, bias] : sampling.logit_bias) {
    digest->Add(static_cast<uint32_t>(token));
    digest->Add(BitsOf(bias));
  }
  digest->Add(sampling.seed);
  digest->Add(static_cast<uint32_t>(sampling.top_logprobs));
  digest->AddIds(sampling.suppressed_until_min_tokens);
  digest->Add(static_cast<uint32_t>(sampling.min_tokens));
}

uint64_t OutputOf(const SequenceStep& sequence) {
  uint64_t digest = sequence.checked.output_digest;
  for (const int32_t token : sequence.output.subspan(sequence.checked.output)) {
    digest = OutputDigest(digest, token);
  }
  return digest;
}

uint64_t IdentityOf(const SequenceStep& sequence) {
  if (sequence.checked.identity != 0) return sequence.checked.identity;
  return engine::IdentityOf(sequence.prompt, sequence.sampling);
}

void AddShare(const RankShare& share, Digest* digest) {
  digest->Add(static_cast<uint64_t>(share.history_tokens));
  digest->AddIds(share.history);
  digest->Add(share.wants_logits ? 1 : 0);
  digest->Add(share.spans.size());
  for (const TokenSpan& span : share.spans) {
    digest->Add(static_cast<uint64_t>(span.position));
    digest->Add(static_cast<uint64_t>(span.count));
  }
}

void AddSequence(const SequenceStep& sequence, bool refused, Digest* digest) {
  digest->Add(IdentityOf(sequence));
  digest->Add(OutputOf(sequence));
  digest->Add(static_cast<uint64_t>(sequence.position));
  digest->AddIds(sequence.tokens);
  digest->AddIds(sequence.next_tokens);
  digest->Add(static_cast<uint32_t>(sequence.layout.tp));
  digest->Add((sequence.sample ? 1u : 0u) + (sequence.want_logits ? 2u : 0u) + (refused ? 4u : 0u));
  digest->Add(sequence.token_index);
}

}  // namespace

Digest::Digest(std::string_view model_hash) {
  for (const char c : model_hash) Add(static_cast<unsigned char>(c));
}

void Digest::Add(uint64_t value) { value_ = Mix64((value_ ^ value) + kMix64Step); }

void Digest::AddIds(std::span<const int32_t> ids) {
  Add(ids.size());
  for (const int32_t id : ids) Add(static_cast<uint32_t>(id));
}

uint64_t IdentityOf(std::span<const int32_t> prompt, const SamplingParams* sampling) {
  Digest digest(uint64_t{sampling != nullptr});
  digest.AddIds(prompt);
  if (sampling != nullptr) AddSampling(*sampling, &digest);
  return digest.value() | 1;
}

uint64_t OutputDigest(uint64_t digest, int32_t token) {
  Digest more(digest);
  more.Add(static_cast<uint32_t>(token));
  return more.value();
}

uint64_t DigestOfStep(GroupMode mode, std::span<const SequenceStep> sequences,
                      const std::vector<SequenceResult>& results, const EngineSpec& spec,
                      int64_t key_segment) {
  Digest digest(spec.model_hash);
  digest.Add(static_cast<uint64_t>(spec.kv.dtype));
  digest.Add(static_cast<uint64_t>(key_segment));
  digest.Add(static_cast<uint64_t>(mode.sp));
  digest.Add(static_cast<uint64_t>(mode.tp));
  digest.Add(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    AddSequence(sequences[i], i < results.size() && !results[i].status.ok(), &digest);
  }
  return digest.value();
}

uint64_t DigestOfRing(const SequenceStep& sequence, const EngineSpec& spec, int64_t key_segment,
                      int64_t segment_blocks) {
  const RingStep& step = *sequence.ring;
  Digest digest(spec.model_hash);
  for (const int64_t value : {static_cast<int64_t>(spec.kv.dtype), int64_t{spec.kv.block_tokens},
                              key_segment, segment_blocks, int64_t{step.moves != nullptr},
                              step.moved_blocks_max, static_cast<int64_t>(step.shares.size())}) {
    digest.Add(static_cast<uint64_t>(value));
  }
  digest.Add(IdentityOf(sequence));
  for (const RankShare& share : step.shares) AddShare(share, &digest);
  if (step.tp > 1) digest.Add(static_cast<uint64_t>(step.tp));
  return digest.value();
}

void TagRing(const RingStep& step, uint64_t digest) {
  step.comm->Tag(digest);
  if (step.moves != nullptr) step.moves->Tag(digest);
  if (step.tensor == nullptr) return;
  Digest group(digest);
  group.Add(static_cast<uint64_t>(step.comm->Rank() / step.tp));
  step.tensor->Tag(group.value());
}

}  // namespace skein::engine
