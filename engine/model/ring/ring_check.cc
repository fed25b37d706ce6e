#include "engine/model/ring/ring_check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/forward/step_check.h"
#include "engine/model/ring/ring_groups.h"

namespace skein::engine {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

std::string Entry(const char* field, size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

absl::Status CheckBlocks(std::span<const int32_t> ids, const std::string& field,
                         int64_t num_blocks) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < num_blocks) continue;
    return Bad(Entry(field.c_str(), i) + " = " + std::to_string(ids[i]) + ": must be from 0 to " +
               std::to_string(num_blocks - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const RingStep& step) {
  const auto ranks = static_cast<int>(step.shares.size());
  if (ranks == 0) return Bad("shares: empty");
  if (step.comm == nullptr && ranks > 1)
    return Bad("comm: required when there is more than one share");
  for (const Communicator* group : {step.comm, step.moves}) {  // of all ranks
    if (group == nullptr) continue;
    if (group->Size() != ranks) {
      return Bad("shares: " + std::to_string(ranks) + " for a group of " +
                 std::to_string(group->Size()));
    }
    if (step.comm == nullptr || group->Rank() != step.comm->Rank()) {
      return Bad("moves: this process has another rank there than in comm");
    }
  }
  return absl::OkStatus();
}

// `tensor` is the group of the `tp` neighbours that this rank is one of.
absl::Status CheckTensor(const RingStep& step) {
  const auto ranks = static_cast<int>(step.shares.size());
  const std::string tp = "tp = " + std::to_string(step.tp);
  if (step.tp < 1 || ranks % step.tp != 0 || (step.tp & (step.tp - 1)) != 0) {
    return Bad(tp + ": must be a power of two that divides the " + std::to_string(ranks) +
               " ranks");
  }
  if (step.tp == 1) {
    return step.tensor == nullptr ? absl::OkStatus() : Bad("tensor: given, but " + tp);
  }
  if (ranks > kSharedRanksMax) {
    return Bad("shares: " + std::to_string(ranks) + " where " + tp + ", at most " +
               std::to_string(kSharedRanksMax));
  }
  if (step.tensor == nullptr) return Bad("tensor: missing, but " + tp);
  if (step.tensor->Size() != step.tp) {
    return Bad("tensor: a group of " + std::to_string(step.tensor->Size()) + ", but " + tp);
  }
  if (step.tensor->Rank() != step.comm->Rank() % step.tp) {
    return Bad("tensor: rank " + std::to_string(step.tensor->Rank()) + " there, but rank " +
               std::to_string(step.comm->Rank()) + " in comm, where " + tp);
  }
  return absl::OkStatus();
}

// All shares' histories are the tokens before their spans, and the spans have no gap.
absl::Status CheckShares(const RingStep& step, const EngineSpec& spec) {
  const int64_t block_tokens = spec.kv.block_tokens;
  std::vector<TokenSpan> spans;
  int64_t end = 0;
  for (size_t r = 0; r < step.shares.size(); ++r) {
    const RankShare& share = step.shares[r];
    if (share.history_tokens < 0 || share.history_tokens % block_tokens != 0) {
      return Bad(Entry("shares", r) + ".history_tokens = " + std::to_string(share.history_tokens) +
                 ": must be whole blocks");
    }
    end += share.history_tokens;
    for (size_t s = 1; s < share.spans.size(); ++s) {
      if (share.spans[s].position <= share.spans[s - 1].position) {
        return Bad(Entry("shares", r) + ".spans: must ascend");
      }
    }
    spans.insert(spans.end(), share.spans.begin(), share.spans.end());
  }
  if (spans.empty()) return Bad("shares: no tokens");
  std::sort(spans.begin(), spans.end(),
            [](const TokenSpan& a, const TokenSpan& b) { return a.position < b.position; });
  for (const TokenSpan& span : spans) {
    if (span.count < 1 || span.position != end || end % block_tokens != 0) {
      return Bad("shares: a span of " + std::to_string(span.count) + " tokens at position " +
                 std::to_string(span.position) + ", where the ones before it and the histories" +
                 " end at " + std::to_string(end) + " in blocks of " +
                 std::to_string(block_tokens));
    }
    if (span.count > spec.max_positions - end) {
      return Bad("shares: tokens beyond max_positions = " + std::to_string(spec.max_positions));
    }
    end += span.count;
  }
  return absl::OkStatus();
}

// The blocks of all histories together are 0, 1, … each once, and each rank's ascend.
absl::Status CheckHistories(const RingStep& step, int64_t block_tokens) {
  std::vector<int32_t> all;
  for (size_t r = 0; r < step.shares.size(); ++r) {
    const std::vector<int32_t>& history = step.shares[r].history;
    if (static_cast<int64_t>(history.size()) * block_tokens != step.shares[r].history_tokens) {
      return Bad(Entry("shares", r) + ".history: " + std::to_string(history.size()) +
                 " blocks for history_tokens = " + std::to_string(step.shares[r].history_tokens));
    }
    if (!std::is_sorted(history.begin(), history.end())) {
      return Bad(Entry("shares", r) + ".history: must ascend");
    }
    all.insert(all.end(), history.begin(), history.end());
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == static_cast<int32_t>(i)) continue;
    return Bad("shares: no history is block " + std::to_string(i) + " of the prompt, or two are");
  }
  return absl::OkStatus();
}

bool WantsLogits(const SequenceStep& sequence) {
  return sequence.sample || sequence.want_logits ||
         std::any_of(sequence.next_tokens.begin(), sequence.next_tokens.end(),
                     [](int32_t token) { return token >= 0; });
}

absl::Status CheckOwn(const SequenceStep& sequence, const RankShare& share,
                      const EngineSpec& spec) {
  const RingStep& step = *sequence.ring;
  int64_t tokens = 0;
  for (const TokenSpan& span : share.spans) tokens += span.count;
  if (tokens != static_cast<int64_t>(sequence.tokens.size())) {
    return Bad("tokens: " + std::to_string(sequence.tokens.size()) + " for spans of " +
               std::to_string(tokens));
  }
  const auto history = static_cast<int64_t>(step.history_blocks.size()) * spec.kv.block_tokens;
  if (history != share.history_tokens) {
    return Bad("ring.history_blocks: " + std::to_string(step.history_blocks.size()) +
               " for a history of " + std::to_string(share.history_tokens) + " tokens");
  }
  if (sequence.layout != KvLayout{}) {
    return Bad("layout.tp = " + std::to_string(sequence.layout.tp) + ": ring steps run tp = 1");
  }
  if (tokens == 0 && (sequence.sample || sequence.want_logits)) {
    return Bad("sample: this rank runs no token");
  }
  if (!share.wants_logits && WantsLogits(sequence)) {
    return Bad("ring.shares: wants_logits is false, but this rank samples or scores tokens");
  }
  return CheckBlocks(NumbersOf(step.history_blocks), "ring.history_blocks", spec.kv.num_blocks);
}

absl::Status CheckLists(const std::vector<std::vector<BlockId>>& lists, const std::string& field,
                        size_t ranks, size_t rank, int64_t moved_blocks_max, int64_t num_blocks) {
  if (lists.empty()) return absl::OkStatus();
  if (lists.size() != ranks) {
    return Bad(field + ": " + std::to_string(lists.size()) + " lists for " + std::to_string(ranks) +
               " ranks");
  }
  if (!lists[rank].empty()) return Bad(Entry(field.c_str(), rank) + ": is this rank itself");
  for (size_t r = 0; r < ranks; ++r) {
    const absl::Status blocks =
        CheckBlocks(NumbersOf(lists[r]), Entry(field.c_str(), r), num_blocks);
    if (!blocks.ok()) return blocks;
    if (static_cast<int64_t>(lists[r].size()) > moved_blocks_max) {
      return Bad(Entry(field.c_str(), r) + ": " + std::to_string(lists[r].size()) +
                 " blocks, but moved_blocks_max = " + std::to_string(moved_blocks_max));
    }
  }
  return absl::OkStatus();
}

void Abort(const RingStep& step, const absl::Status& reason) {
  for (Communicator* const group : GroupsOf(step)) group->Abort(reason);
}

bool HasBlocks(const std::vector<std::vector<BlockId>>& lists) {
  return std::any_of(lists.begin(), lists.end(), [](const auto& l) { return !l.empty(); });
}

}  // namespace

absl::Status CheckRingStep(const SequenceStep& sequence, const EngineSpec& spec,
                           const RingLimits& limits) {
  const RingStep& step = *sequence.ring;
  absl::Status status = CheckGroups(step);
  if (status.ok()) status = CheckTensor(step);
  if (status.ok()) status = CheckShares(step, spec);
  if (status.ok() && limits.named_histories) status = CheckHistories(step, spec.kv.block_tokens);
  if (!status.ok()) return Bad("ring." + std::string(status.message()));
  const size_t ranks = step.shares.size();
  const size_t rank = step.comm == nullptr ? 0 : static_cast<size_t>(step.comm->Rank());
  status = CheckOwn(sequence, step.shares[rank], spec);
  if (status.ok() && static_cast<int64_t>(sequence.tokens.size()) > limits.tokens_max) {
    status = Bad("tokens: " + std::to_string(sequence.tokens.size()) + " in one step, at most " +
                 std::to_string(limits.tokens_max));
  }
  if (status.ok()) status = CheckContents(sequence, spec, /*before=*/0);
  for (const auto& [lists, field] :
       {std::pair(&step.send, "ring.send"), std::pair(&step.receive, "ring.receive")}) {
    if (status.ok())
      status = CheckLists(*lists, field, ranks, rank, step.moved_blocks_max, spec.kv.num_blocks);
    if (status.ok() && step.moves == nullptr && HasBlocks(*lists)) {
      status = Bad(std::string(field) + ": given, but there is no group `moves`");
    }
  }
  return status;
}

void AbortRefused(const RingStep& step, const absl::Status& refusal) {
  const int rank = step.comm == nullptr ? 0 : step.comm->Rank();
  Abort(step, absl::UnavailableError("rank " + std::to_string(rank) +
                                     " refused its part: " + std::string(refusal.message())));
}

void AbortRingStep(std::span<const SequenceStep> sequences, const absl::Status& reason) {
  for (const SequenceStep& sequence : sequences) {
    if (sequence.ring != nullptr) Abort(*sequence.ring, reason);
  }
}

absl::Status MeetAtEnd(const RingStep& step) {
  for (Communicator* const group : GroupsOf(step)) {
    const absl::Status met = group->AllGather({}, {}, step.deadline);
    if (!met.ok()) return met;
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
