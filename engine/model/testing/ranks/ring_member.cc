#include "engine/model/testing/ranks/ring_member.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/device/testing/far_device.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

// All that a step points into.
struct RingMember::Input {
  RingStep ring;
  std::vector<int32_t> tokens, next_tokens, table;
  std::vector<int64_t> positions;
  std::vector<int32_t> blocks;  // of the prompt, as `table`
  bool sample = false;
};

void SpoilKv(Engine& engine, Device* device) {
  for (const KvRegion& region : engine.KvRegions()) {
    const std::string spoilt(static_cast<size_t>(region.bytes), '\xff');
    if (device == nullptr) {
      std::memcpy(NearOfAny(region.base), spoilt.data(), spoilt.size());
    } else {
      SKEIN_CHECK(
          device->Copy(region.base, spoilt.data(), spoilt.size(), CopyKind::kHostToDevice).ok());
    }
  }
}

std::string RingMember::ReadBlock(size_t layer, int32_t local) const {
  std::string block(static_cast<size_t>(engine_->Spec().kv.BlockBytes()), '\0');
  const auto* const at = static_cast<const std::byte*>(engine_->KvRegions()[layer].base) +
                         static_cast<size_t>(local) * block.size();
  if (device_ == nullptr) {
    std::memcpy(block.data(), NearOfAny(at), block.size());
  } else {
    SKEIN_CHECK(device_->Copy(block.data(), at, block.size(), CopyKind::kDeviceToHost).ok());
    SKEIN_CHECK(device_->Synchronize().ok());
  }
  return block;
}

void RingMember::Start(const std::vector<int32_t>& ids, bool score, uint32_t seed) {
  SpoilKv(*engine_, device_);
  ids_ = ids;
  score_ = score;
  token_ = -1;
  local_.clear();
  computed_.clear();
  logprobs_.clear();
  free_.resize(static_cast<size_t>(engine_->Spec().kv.num_blocks));
  std::iota(free_.begin(), free_.end(), 0);
  std::mt19937 random(seed);
  std::shuffle(free_.begin(), free_.end(), random);
}

int32_t RingMember::LocalOf(int32_t block) {
  const auto [at, added] = local_.try_emplace(block, -1);
  if (added) {
    SKEIN_CHECK_MSG(!free_.empty(), "the pool is too small");
    at->second = free_.back();
    free_.pop_back();
  }
  return at->second;
}

absl::Status RingMember::Run(const DealtPiece& piece, size_t rank, const RingGroups& groups,
                             CommDeadline deadline,
                             const std::function<void(int, StepProgress&)>& layer_queued) {
  Input input;
  Fill(piece, rank, &input);
  input.ring.comm = groups.comm;
  input.ring.moves = groups.moves;
  input.ring.tensor = groups.tensor;
  input.ring.tp = groups.tp;
  input.ring.deadline = deadline;
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  SequenceStep step;
  step.tokens = input.tokens;
  step.block_table = input.table;
  step.ring = &input.ring;
  step.sample = input.sample;
  step.sampling = &greedy;
  step.next_tokens = input.next_tokens;
  int layers = 0;
  std::vector<SequenceResult> results;
  StepProgress progress([&](int layer) {
    SKEIN_CHECK(layer == layers++);
    if (layer_queued) layer_queued(layer, progress);
  });
  const absl::Status status = engine_->Step({&step, 1}, &progress, &results);
  if (!status.ok()) return status;
  SKEIN_CHECK(layers == engine_->Spec().kv.num_layers && progress.LayersWritten() == layers);
  Collect(input, results);
  return absl::OkStatus();
}

void RingMember::Fill(const DealtPiece& piece, size_t rank, Input* input) {
  const auto size = static_cast<int64_t>(ids_.size());
  const int64_t block_tokens = engine_->Spec().kv.block_tokens;
  const size_t ranks = piece.members.size();
  RingStep& ring = input->ring;
  ring.shares = piece.shares;
  for (size_t r = 0; r < ranks; ++r) {
    RankShare& share = ring.shares[r];
    share.history = piece.history[r];
    share.wants_logits = score_ || std::any_of(share.spans.begin(), share.spans.end(),
                                               [size](const TokenSpan& span) {
                                                 return span.position + span.count == size;
                                               });
    for (const std::vector<int32_t>& blocks : piece.moves[r]) {
      ring.moved_blocks_max = std::max(ring.moved_blocks_max, static_cast<int64_t>(blocks.size()));
    }
  }
  ring.send.resize(ranks);
  ring.receive.resize(ranks);
  for (size_t other = 0; other < ranks; ++other) {
    for (const int32_t block : piece.moves[rank][other]) {
      ring.send[other].push_back({LocalOf(block)});
    }
    for (const int32_t block : piece.moves[other][rank]) {
      ring.receive[other].push_back({LocalOf(block)});
    }
  }
  for (const int32_t block : piece.history[rank]) {
    ring.history_blocks.push_back({LocalOf(block)});
  }
  for (const TokenSpan& span : piece.shares[rank].spans) {
    for (int64_t p = span.position; p < span.position + span.count; ++p) {
      input->positions.push_back(p);
      input->tokens.push_back(ids_[static_cast<size_t>(p)]);
      if (score_) {
        input->next_tokens.push_back(p + 1 < size ? ids_[static_cast<size_t>(p + 1)] : -1);
      }
      if (p % block_tokens != 0) continue;
      input->blocks.push_back(static_cast<int32_t>(p / block_tokens));
      input->table.push_back(LocalOf(input->blocks.back()));
    }
    input->sample = span.position + span.count == size;
  }
}

void RingMember::Collect(const Input& input, const std::vector<SequenceResult>& results) {
  for (size_t i = 0; i < input.next_tokens.size(); ++i) {
    if (input.next_tokens[i] < 0) continue;
    logprobs_[input.positions[i]] = results[0].prompt_logprobs[i].logprob;
  }
  if (input.sample) token_ = results[0].sampled.token;
  for (size_t b = 0; b < input.blocks.size(); ++b) computed_[input.blocks[b]] = input.table[b];
}

}  // namespace skein::engine
