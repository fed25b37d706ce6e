#include "engine/parallel/step_digest.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

// A step with two sequences, all of whose fields may be changed.
struct Step {
  GroupMode mode = {2, 2};
  EngineSpec spec = {.model_hash = "m", .device = "cpu", .vocab_size = 100, .kv = {}};
  int64_t key_segment = 64;
  std::vector<int32_t> prompt = {1, 2, 3}, output = {4, 5}, tokens = {5}, next = {6};
  SamplingParams sampling = {.temperature = 0.5f, .seed = 7};
  SequenceStep sequence;
  std::vector<SequenceResult> results = std::vector<SequenceResult>(2);
  size_t sequences = 2;

  uint64_t Digest() {
    sequence.prompt = prompt;
    sequence.output = output;
    sequence.tokens = tokens;
    sequence.next_tokens = next;
    sequence.sampling = &sampling;
    const std::vector<SequenceStep> all(sequences, sequence);
    return DigestOfStep(mode, all, results, spec, key_segment);
  }
};

// Every field that can change a token.
const std::vector<std::pair<std::string, std::function<void(Step*)>>>& Changes() {
  static const std::vector<std::pair<std::string, std::function<void(Step*)>>> changes = {
      {"model_hash", [](Step* s) { s->spec.model_hash = "n"; }},
      {"kv.dtype", [](Step* s) { s->spec.kv.dtype = DType::kF16; }},
      {"key_segment", [](Step* s) { s->key_segment = 0; }},
      {"mode.sp", [](Step* s) { s->mode.sp = 4; }},
      {"mode.tp", [](Step* s) { s->mode.tp = 4; }},
      {"number of sequences", [](Step* s) { s->sequences = 1; }},
      {"refused", [](Step* s) { s->results[1].status = absl::InvalidArgumentError("test"); }},
      {"tokens", [](Step* s) { s->tokens = {6}; }},
      {"number of tokens",
       [](Step* s) {
         s->tokens = {5, 5};
       }},
      {"position", [](Step* s) { s->sequence.position = 1; }},
      {"layout", [](Step* s) { s->sequence.layout.tp = 2; }},
      {"sample", [](Step* s) { s->sequence.sample = true; }},
      {"want_logits", [](Step* s) { s->sequence.want_logits = true; }},
      {"token_index", [](Step* s) { s->sequence.token_index = 3; }},
      {"prompt", [](Step* s) { s->prompt[0] = 9; }},
      {"prompt's length", [](Step* s) { s->prompt.pop_back(); }},
      {"output", [](Step* s) { s->output[0] = 9; }},
      {"output's length", [](Step* s) { s->output.push_back(0); }},
      {"next_tokens", [](Step* s) { s->next = {7}; }},
      {"temperature", [](Step* s) { s->sampling.temperature = 0.6f; }},
      {"top_k", [](Step* s) { s->sampling.top_k = 1; }},
      {"top_p", [](Step* s) { s->sampling.top_p = 0.9f; }},
      {"min_p", [](Step* s) { s->sampling.min_p = 0.1f; }},
      {"repetition_penalty", [](Step* s) { s->sampling.repetition_penalty = 1.1f; }},
      {"presence_penalty", [](Step* s) { s->sampling.presence_penalty = 0.1f; }},
      {"frequency_penalty", [](Step* s) { s->sampling.frequency_penalty = 0.1f; }},
      {"logit_bias",
       [](Step* s) {
         s->sampling.logit_bias = {{1, 2.0f}};
       }},
      {"logit_bias's token",
       [](Step* s) {
         s->sampling.logit_bias = {{2, 2.0f}};
       }},
      {"logit_bias's value",
       [](Step* s) {
         s->sampling.logit_bias = {{1, 3.0f}};
       }},
      {"seed", [](Step* s) { s->sampling.seed = 8; }},
      {"top_logprobs", [](Step* s) { s->sampling.top_logprobs = 0; }},
      {"suppressed", [](Step* s) { s->sampling.suppressed_until_min_tokens = {1}; }},
      {"min_tokens", [](Step* s) { s->sampling.min_tokens = 1; }},
  };
  return changes;
}

// A field that is added to SamplingParams or SequenceStep has to be added to the digest and to
// Changes(), if it can change a token. (Of `checked`, `seen` follows from prompt, output and
// sampling.)
TEST(StepDigest, KnowsEveryFieldOfTheStructs) {
  EXPECT_EQ(sizeof(SamplingParams), 104u);
  EXPECT_EQ(sizeof(SequenceStep), 184u);
}

TEST(StepDigest, EveryFieldThatCanChangeATokenChangesIt) {
  std::vector<uint64_t> digests = {Step().Digest()};
  for (const auto& [field, change] : Changes()) {
    Step step;
    change(&step);
    const uint64_t digest = step.Digest();
    for (const uint64_t other : digests) EXPECT_NE(digest, other) << field;
    digests.push_back(digest);
  }
}

// Lists with the same ids in a row, cut at different places.
TEST(StepDigest, TellsWhereOneListEndsAndTheNextBegins) {
  using Lists = std::vector<std::vector<int32_t>>;
  const std::vector<Lists> cuts = {
      {{1, 2, 3}, {}, {}, {}},     {{}, {1, 2, 3}, {}, {}},    {{1, 2}, {3}, {}, {}},
      {{1}, {2, 3}, {}, {}},       {{1}, {2}, {3}, {}},        {{1}, {}, {2}, {3}},
      {{}, {1}, {2}, {3}},         {{1, 2, 3, 0}, {}, {}, {}}, {{1, 2, 3}, {0}, {}, {}},
      {{1, 2, 3}, {0, 0}, {}, {}}, {{1, 2, 3}, {0}, {0}, {}}};
  std::vector<uint64_t> digests;
  for (const Lists& lists : cuts) {
    Step step;
    step.prompt = lists[0];
    step.output = lists[1];
    step.tokens = lists[2];
    step.next = lists[3];
    const uint64_t digest = step.Digest();
    for (const uint64_t other : digests) EXPECT_NE(digest, other) << digests.size();
    digests.push_back(digest);
  }
}

TEST(StepDigest, BlockTablesAreEachRanksOwn) {
  Step one, other;
  const std::vector<int32_t> table = {1, 2, 3};
  other.sequence.block_table = table;
  EXPECT_EQ(one.Digest(), other.Digest());
}

TEST(StepDigest, WhatWasDigestedBeforeIsTheSame) {
  Step one, other;
  other.sequence.checked.identity = IdentityOf(other.prompt, &other.sampling);
  other.sequence.checked.output = 1;
  other.sequence.checked.output_digest = OutputDigest(0, 4);
  EXPECT_EQ(one.Digest(), other.Digest());
}

// A ring of two, of one prompt.
struct Ring {
  EngineSpec spec{.model_hash = "m", .kv = {{.block_tokens = 16, .dtype = DType::kBF16}, 8}};
  int64_t key_segment = 256, segment_blocks = 4;
  std::vector<int32_t> prompt = {1, 2, 3};
  SamplingParams sampling;
  RingStep step{.shares = {{16, {{32, 16}}, {0}}, {16, {{48, 10}}, {1}}}};

  uint64_t Digest() {
    SequenceStep sequence;
    sequence.prompt = prompt;
    sequence.sampling = &sampling;
    sequence.ring = &step;
    return DigestOfRing(sequence, spec, key_segment, segment_blocks);
  }
};

const std::vector<std::pair<std::string, std::function<void(Ring*)>>>& RingChanges() {
  static const std::vector<std::pair<std::string, std::function<void(Ring*)>>> changes = {
      {"model_hash", [](Ring* r) { r->spec.model_hash = "n"; }},
      {"kv.dtype", [](Ring* r) { r->spec.kv.dtype = DType::kF16; }},
      {"kv.block_tokens", [](Ring* r) { r->spec.kv.block_tokens *= 2; }},
      {"key_segment", [](Ring* r) { r->key_segment = 0; }},
      {"segment_blocks", [](Ring* r) { r->segment_blocks = 5; }},
      {"moves", [](Ring* r) { r->step.moves = reinterpret_cast<Communicator*>(r); }},
      {"tp", [](Ring* r) { r->step.tp = 2; }},
      {"moved_blocks_max", [](Ring* r) { r->step.moved_blocks_max = 1; }},
      {"prompt", [](Ring* r) { r->prompt[0] = 9; }},
      {"sampling", [](Ring* r) { r->sampling.seed = 8; }},
      {"number of shares", [](Ring* r) { r->step.shares.emplace_back(); }},
      {"history_tokens", [](Ring* r) { r->step.shares[0].history_tokens = 32; }},
      {"history", [](Ring* r) { r->step.shares[0].history = {1}; }},
      {"wants_logits", [](Ring* r) { r->step.shares[0].wants_logits = false; }},
      {"a span's position", [](Ring* r) { r->step.shares[1].spans[0].position = 64; }},
      {"a span's count", [](Ring* r) { r->step.shares[1].spans[0].count = 11; }},
      {"order of the shares", [](Ring* r) { std::swap(r->step.shares[0], r->step.shares[1]); }},
  };
  return changes;
}

TEST(RingDigest, EveryFieldThatAllRanksAreGivenAlikeChangesIt) {
  std::vector<uint64_t> digests = {Ring().Digest()};
  for (const auto& [field, change] : RingChanges()) {
    Ring ring;
    change(&ring);
    const uint64_t digest = ring.Digest();
    for (const uint64_t other : digests) EXPECT_NE(digest, other) << field;
    digests.push_back(digest);
  }
  EXPECT_EQ(sizeof(RankShare), 64u) << "a field that was added belongs in it";
}

TEST(RingDigest, WhatIsEachRanksOwnIsLeftOut) {
  Ring one, other;
  other.step.history_blocks = {{5}};
  other.step.send = {{{1}}, {}};
  other.step.receive = {{{2}}, {}};
  EXPECT_EQ(one.Digest(), other.Digest());
}

// The ranks may be processes of different builds.
TEST(StepDigest, IsTheSameEverywhere) {
  EXPECT_EQ(Step().Digest(), 2604304108404460912u);
  EXPECT_EQ(Ring().Digest(), 7748413292723226449u);
}

}  // namespace
}  // namespace skein::engine
