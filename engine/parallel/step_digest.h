// By what the ranks of a group find out that they were given the same step: a digest of every field
// that can change a token, of every sequence. It rides on the messages of the step
// (Communicator::Tag), so a step of which one rank was told something else ends at its first
// exchange, and costs no message.
//
// A ring step has its own digest, of one sequence and how it is dealt.
//
// What grows with a sequence's length is digested once: its identity when it is admitted, its
// output as tokens come (SequenceStep::Checked). Block tables are each rank's own, and are left
// out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/parallel/shard_layout.h"
#include "engine/sampling/sampling_params.h"
#include "engine/step.h"

namespace skein::engine {

// 64 bits over values in their order, the same in every process. Tells mistakes apart, not attacks.
class Digest {
 public:
  explicit Digest(std::string_view model_hash);
  explicit Digest(uint64_t value) : value_(value) {}

  void Add(uint64_t value);
  void AddIds(std::span<const int32_t> ids);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// Of what all steps of a sequence share; never 0. `sampling` may be null.
uint64_t IdentityOf(std::span<const int32_t> prompt, const SamplingParams* sampling);

// Of an output of which `digest` is that of all tokens but the last (of none: 0).
uint64_t OutputDigest(uint64_t digest, int32_t token);

// `results`: the sequences that the checks have refused; all ranks refuse the same ones.
// `key_segment` is Ops::KeySegment.
uint64_t DigestOfStep(GroupMode mode, std::span<const SequenceStep> sequences,
                      const std::vector<SequenceResult>& results, const EngineSpec& spec,
                      int64_t key_segment);

// `sequence.ring` is set. `segment_blocks`: of the segments in which KV passes.
uint64_t DigestOfRing(const SequenceStep& sequence, const EngineSpec& spec, int64_t key_segment,
                      int64_t segment_blocks);

// Tags the messages of the step's communicators with `digest`; those of its tensor group also with
// which one it is, so that ranks of two of them find out. REQUIRES: `step.comm` is set.
void TagRing(const RingStep& step, uint64_t digest);

}  // namespace skein::engine
