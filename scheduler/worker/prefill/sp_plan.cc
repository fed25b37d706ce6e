#include "scheduler/worker/prefill/sp_plan.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/vocabulary/mix64.h"
#include "scheduler/worker/steps/tensor_members.h"

namespace skein::scheduler {
namespace {

bool SameChunk(const PlanChunk& a, const PlanChunk& b) {
  return a.tokens == b.tokens && a.members == b.members && a.tp == b.tp;
}

// Of the groups of one chunk. Its tensor groups share a name, because no two instances are together
// in more than one of them.
enum class GroupOf : uint64_t { kPieces = 0, kMoves = 1, kTensor = uint64_t{1} << 32 };

GroupId KeyOf(RequestId id, Epoch epoch, int chunk, GroupOf group) {
  const auto which = static_cast<uint64_t>(chunk) * 2 + static_cast<uint64_t>(group);
  const uint64_t of_request = Mix64(id.router + Mix64(id.serial));
  return {Mix64(of_request + epoch.value), Mix64(Mix64(epoch.value) + of_request + which)};
}

}  // namespace

SpPlan::SpPlan(SpecPtr spec, Epoch epoch, const DealSizes& sizes, InstanceId self)
    : spec_(std::move(spec)),
      epoch_(epoch),
      self_(self),
      block_tokens_(sizes.block_tokens),
      dealer_(sizes),
      ahead_(sizes),
      slots_((sizes.prompt_tokens + sizes.block_tokens - 1) / sizes.block_tokens, -1) {}

// All or nothing: a copy takes them first.
absl::Status SpPlan::AddChunks(const AssignRequest& assign) {
  if (assign.from_chunk >= assign.chunks.size()) {
    return absl::InvalidArgumentError("chunks: the Assign adds no chunk");
  }
  SpPlan copy = *this;
  if (assign.members.size() > copy.members_.size()) copy.members_ = assign.members;
  for (size_t i = 0; i < assign.chunks.size(); ++i) {
    if (absl::Status status = copy.AddChunk(assign, i); !status.ok()) return status;
  }
  const std::vector<InstanceId>& last = copy.dealer_.all_chunks().back().members;
  if (std::find(last.begin(), last.end(), self_) == last.end()) {
    return absl::InvalidArgumentError("chunks: this instance is not a member of the last chunk");
  }
  if (first_chunks_ == 0) copy.first_chunks_ = copy.dealer_.chunks();
  copy.GiveSlots();
  copy.later_blocks_ = BlocksToFill(copy.ahead_, self_);
  if (!copy.next_.has_value()) copy.FindNext();
  *this = std::move(copy);
  return absl::OkStatus();
}

absl::Status SpPlan::AddChunk(const AssignRequest& assign, size_t index) {
  const PlanChunk& chunk = assign.chunks[index];
  if (index < chunks_.size()) {
    if (SameChunk(chunk, chunks_[index])) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("chunks: chunk ", index, " differs from an earlier Assign's"));
  }
  if (!std::has_single_bit(chunk.tp) || chunk.members.size() % chunk.tp != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks: chunk ", index, " has tp ", chunk.tp,
                     ", which is not a power of two that divides its number of members, ",
                     chunk.members.size()));
  }
  DealtChunk dealt{.tokens = chunk.tokens, .members = {}};
  for (uint32_t member : chunk.members) {
    if (member >= assign.members.size()) {
      return absl::InvalidArgumentError(absl::StrCat("chunks: chunk ", index, " names member ",
                                                     member, ", but the plan has ",
                                                     assign.members.size(), " members"));
    }
    dealt.members.push_back(assign.members[member].instance);
  }
  if (absl::Status status = dealer_.AddChunk(dealt); !status.ok()) return status;
  chunks_.push_back(chunk);
  return ahead_.AddChunk(dealt);
}

// A slot for each block that this instance will compute or receive, in the order of the pieces.
void SpPlan::GiveSlots() {
  const auto give = [this](int32_t block) {
    int32_t& slot = slots_[block];
    SKEIN_CHECK_MSG(slot < 0, "a block gets one slot");
    slot = static_cast<int32_t>(slots_used_++);
  };
  while (const std::optional<Piece> piece = ahead_.Next()) {
    const int rank = piece->RankOf(self_);
    if (rank < 0) continue;
    for (const Move& move : piece->moves) {
      if (move.to == rank) std::for_each(move.blocks.begin(), move.blocks.end(), give);
    }
    for (int32_t block : BlocksOfSpans(piece->spans[rank], block_tokens_)) {
      give(block);
      share_.push_back(block);
    }
  }
}

void SpPlan::FindNext() {
  do {
    next_ = dealer_.Next();
  } while (next_.has_value() && next_->RankOf(self_) < 0);
}

bool SpPlan::Leads() const { return members_[chunks_.front().members.front()].instance == self_; }

// Asked while the plan is first in the queue, so it only adds up what AddChunks has computed.
int64_t SpPlan::BlocksWanted(int64_t total) const {
  return std::max(slots_used_, std::min(slots_used_ + later_blocks_, total));
}

std::optional<int> SpPlan::NextChunk() const {
  if (!next_.has_value()) return std::nullopt;
  return next_->chunk;
}

StepSequence SpPlan::Enter(const std::vector<BlockId>& blocks, TimeUs deadline_us, TimeUs now) {
  if (chunk_since_us_ == kNever) chunk_since_us_ = now;
  auto part = std::make_shared<const RingPart>(PartOf(blocks, deadline_us));
  const std::vector<TokenSpan>& spans = part->piece.spans[part->rank];
  auto filled = std::make_shared<std::vector<BlockId>>();
  for (int32_t block : BlocksOfSpans(spans, block_tokens_)) {
    filled->push_back(blocks[slots_[block]]);
  }
  int64_t count = 0;
  for (const TokenSpan& span : spans) count += span.count;
  return {.id = id(),
          .epoch = epoch_,
          .spec = spec_,
          .position = spans.empty() ? 0 : spans.front().position,
          .count = count,
          .blocks = std::move(filled),
          .sample = part->piece.sampler == part->rank && spec_->max_tokens > 0,
          .output = nullptr,
          .ring = std::move(part)};
}

void SpPlan::Leave(const StepSequence& ran, bool ok) {
  FindNext();
  if (!ok) return;
  const Piece& piece = ran.ring->piece;
  blocks_done_ += static_cast<int64_t>(ran.blocks->size());
  if (!piece.ends_chunk) return;
  chunks_done_ = static_cast<uint32_t>(piece.chunk + 1);
  chunk_since_us_ = kNever;
}

RingPart SpPlan::PartOf(const std::vector<BlockId>& blocks, TimeUs deadline_us) const {
  RingPart part{.piece = *next_, .rank = next_->RankOf(self_)};
  const Piece& piece = part.piece;
  const auto local = [&](const std::vector<int32_t>& global, std::vector<BlockId>* out) {
    for (int32_t block : global) out->push_back(blocks[slots_[block]]);
  };
  part.comm_addresses = CommAddresses(piece.chunk);
  local(piece.history[part.rank], &part.history);
  if (!piece.moves.empty()) {
    part.send.resize(piece.members.size());
    part.receive.resize(piece.members.size());
  }
  for (const Move& move : piece.moves) {
    if (move.from == part.rank) local(move.blocks, &part.send[move.to]);
    if (move.to == part.rank) local(move.blocks, &part.receive[move.from]);
  }
  for (size_t rank = 0; rank < piece.members.size(); ++rank) {
    part.history_tokens.push_back(static_cast<int64_t>(piece.history[rank].size()) * block_tokens_);
    const bool samples = piece.sampler == static_cast<int>(rank) && spec_->max_tokens > 0;
    part.wants_logits.push_back(samples || spec_->want_prompt_logprobs);
    for (const TokenSpan& span : piece.spans[rank]) {
      part.token_end = std::max(part.token_end, span.position + span.count);
    }
  }
  part.deadline_us = deadline_us;
  part.estimated_us = NextEstimateUs();
  part.tp = static_cast<int>(chunks_[piece.chunk].tp);
  part.group = KeyOf(id(), epoch_, piece.chunk, GroupOf::kPieces);
  part.moves_group = KeyOf(id(), epoch_, piece.chunk, GroupOf::kMoves);
  if (part.tp > 1) part.tensor_group = KeyOf(id(), epoch_, piece.chunk, GroupOf::kTensor);
  return part;
}

std::vector<std::string> SpPlan::CommAddresses(int chunk) const {
  std::vector<std::string> addresses;
  for (uint32_t member : chunks_[chunk].members) {
    addresses.push_back(members_[member].comm_address);
  }
  return addresses;
}

std::vector<HandoffBlock> SpPlan::TakeNewPuts(const std::vector<BlockId>& blocks) {
  std::vector<HandoffBlock> puts;
  while (share_named_ < share_.size()) {
    const int32_t block = share_[share_named_++];
    puts.push_back({block, blocks[slots_[block]]});
  }
  return puts;
}

std::vector<BreakGroup> SpPlan::GroupsAhead(bool skip_next) const {
  std::vector<BreakGroup> groups;
  if (!next_.has_value()) return groups;
  const std::vector<DealtChunk>& chunks = dealer_.all_chunks();
  for (int k = next_->chunk + (skip_next ? 1 : 0); k < dealer_.chunks(); ++k) {
    const std::vector<InstanceId>& members = chunks[k].members;
    if (members.size() == 1) continue;
    const auto self = std::find(members.begin(), members.end(), self_);
    const int rank = static_cast<int>(self - members.begin());
    const int tp = static_cast<int>(chunks_[k].tp);
    std::vector<std::string> addresses = CommAddresses(k);
    if (tp > 1) {
      groups.push_back({KeyOf(id(), epoch_, k, GroupOf::kTensor), rank % tp,
                        TensorMembers(addresses, rank, tp)});
    }
    groups.push_back({KeyOf(id(), epoch_, k, GroupOf::kPieces), rank, std::move(addresses)});
  }
  return groups;
}

absl::Status SpPlan::CheckInvariants() const {
  std::vector<bool> used(slots_used_);
  int64_t count = 0;
  for (const int32_t slot : slots_) {
    if (slot < 0) continue;
    ++count;
    if (slot >= slots_used_ || used[slot]) {
      return absl::InternalError(
          absl::StrCat("PrefillCore 7: ", ToString(id()), " has slot ", slot, " twice"));
    }
    used[slot] = true;
  }
  if (count == slots_used_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("PrefillCore 7: ", ToString(id()), " has ", count,
                                          " slots, ", slots_used_, " counted"));
}

}  // namespace skein::scheduler
