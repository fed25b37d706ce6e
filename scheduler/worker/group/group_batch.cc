#include "scheduler/worker/group/group_batch.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {
namespace {

absl::Status Bad(const char* field, uint32_t handle, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": sequence ", handle, " ", what));
}

size_t SizeOf(const BlockTable& blocks) { return blocks == nullptr ? 0 : blocks->size(); }

bool Has(const std::vector<uint32_t>& handles, uint32_t handle) {
  return std::find(handles.begin(), handles.end(), handle) != handles.end();
}

}  // namespace

GroupBatch::GroupBatch(BlockPool* pool, KvLayout layout, int64_t tokens_per_block)
    : pool_(pool), layout_(layout), tokens_per_block_(tokens_per_block) {
  SKEIN_CHECK(tokens_per_block >= 1);
}

void GroupBatch::Offer(OfferedSequence sequence) {
  SKEIN_CHECK_MSG(static_cast<int64_t>(SizeOf(sequence.blocks)) == BlocksOf(sequence.kv_tokens),
                  "an offer has the blocks of its KV");
  const OfferKey key(sequence.spec->id, sequence.epoch);
  SKEIN_CHECK_MSG(offers_.emplace(key, std::move(sequence)).second, "a sequence is offered once");
}

bool GroupBatch::Withdraw(RequestId id, Epoch epoch) {
  if (prepared_.has_value()) {
    for (const FeedAdded& added : prepared_->plan.added) {
      if (added.id == id && added.epoch == epoch) return false;
    }
  }
  const auto offer = offers_.extract({id, epoch});
  if (offer.empty()) return false;
  if (offer.mapped().blocks != nullptr) pool_->Free(*offer.mapped().blocks);
  return true;
}

absl::Status GroupBatch::CheckNames(const FeedPlan& plan) const {
  for (const auto& [handles, field] :
       {std::pair(&plan.removed, "removed"), std::pair(&plan.preempted, "preempted")}) {
    for (const uint32_t handle : *handles) {
      if (!sequences_.contains(handle)) return Bad(field, handle, "is not in the batch");
      if (std::count(handles->begin(), handles->end(), handle) > 1) {
        return Bad(field, handle, "is named twice");
      }
      if (handles == &plan.preempted && Has(plan.removed, handle)) {
        return Bad(field, handle, "is also removed");
      }
    }
  }
  uint32_t last = last_handle_;
  std::set<OfferKey> taken;
  for (const FeedAdded& added : plan.added) {
    if (added.handle <= last) {
      return Bad("added", added.handle, "is not above the handles before it");
    }
    last = added.handle;
    if (!offers_.contains({added.id, added.epoch}) ||
        !taken.emplace(added.id, added.epoch).second) {
      return absl::NotFoundError(absl::StrCat("added: request ", ToString(added.id),
                                              " is not held here under epoch ", added.epoch.value));
    }
  }
  return absl::OkStatus();
}

absl::Status GroupBatch::AddRow(uint32_t handle, const Sequence& sequence, const int64_t* slice,
                                Planned* planned) const {
  const int64_t lacks = sequence.length - sequence.kv_tokens;
  const int64_t count = slice != nullptr ? *slice : lacks == 1 ? 1 : 0;
  if (count > lacks) return Bad("slices", handle, "has fewer tokens to run");
  if (count == 0) return absl::OkStatus();
  planned->rows.push_back({.handle = handle,
                           .position = sequence.kv_tokens,
                           .count = count,
                           .sample = count == lacks,
                           .blocks = sequence.blocks,
                           .had_blocks = SizeOf(sequence.blocks)});
  return absl::OkStatus();
}

// The rows of the batch as the plan makes it.
absl::Status GroupBatch::FillRows(const FeedPlan& plan, Planned* planned) const {
  std::map<uint32_t, int64_t> slices;
  for (const FeedSlice& slice : plan.slices) {
    if (!slices.emplace(slice.handle, slice.tokens).second) {
      return Bad("slices", slice.handle, "is named twice");
    }
  }
  const auto add = [&](uint32_t handle, const Sequence& sequence) {
    const auto slice = slices.find(handle);
    const bool sliced = slice != slices.end();
    const absl::Status status =
        AddRow(handle, sequence, sliced ? &slice->second : nullptr, planned);
    if (sliced) slices.erase(slice);
    return status;
  };
  absl::Status status;
  for (const auto& [handle, sequence] : sequences_) {
    if (Has(plan.removed, handle)) continue;
    Sequence now = *sequence;
    if (Has(plan.preempted, handle)) {
      now.blocks = nullptr;
      now.kv_tokens = 0;
    }
    status.Update(add(handle, now));
  }
  for (const FeedAdded& added : plan.added) {
    const OfferedSequence& offer = offers_.at({added.id, added.epoch});
    const int64_t length = PromptTokens(*offer.spec) + static_cast<int64_t>(offer.output.size());
    status.Update(add(added.handle, {.epoch = offer.epoch,
                                     .spec = offer.spec,
                                     .blocks = offer.blocks,
                                     .kv_tokens = offer.kv_tokens,
                                     .length = length,
                                     .output = nullptr}));
  }
  if (!slices.empty()) status.Update(Bad("slices", slices.begin()->first, "is not in the batch"));
  return status;
}

// All or nothing.
absl::Status GroupBatch::TakeBlocks(Planned* planned) {
  int64_t wanted = 0;
  for (const Row& row : planned->rows) {
    wanted += BlocksOf(row.position + row.count) - static_cast<int64_t>(row.had_blocks);
  }
  const int64_t free = pool_->Counts().free;
  if (wanted > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("blocks: the step needs ", wanted, " more, ", free, " are free"));
  }
  for (Row& row : planned->rows) {
    const absl::StatusOr<BlockTable> table =
        pool_->Extend(row.blocks, BlocksOf(row.position + row.count));
    SKEIN_CHECK_MSG(table.ok(), "blocks that were counted are not free");
    row.blocks = *table;
  }
  return absl::OkStatus();
}

absl::Status GroupBatch::Prepare(const FeedPlan& plan) {
  SKEIN_CHECK(!prepared_.has_value());
  Planned planned{.plan = plan, .rows = {}};
  absl::Status status = CheckNames(plan);
  if (status.ok() && !plan.mode.own()) status = FillRows(plan, &planned);
  if (status.ok() && plan.mode.own() && !plan.slices.empty()) {
    status = Bad("slices", plan.slices.front().handle, "is named in a step without prompt slices");
  }
  if (status.ok()) status = TakeBlocks(&planned);
  if (status.ok()) prepared_ = std::move(planned);
  return status;
}

void GroupBatch::Cancel() {
  if (!prepared_.has_value()) return;
  for (const Row& row : prepared_->rows) {
    const std::span<const BlockId> all = *row.blocks;
    if (all.size() > row.had_blocks) pool_->Free(all.subspan(row.had_blocks));
  }
  prepared_.reset();
}

void GroupBatch::Commit() {
  SKEIN_CHECK(prepared_.has_value());
  Committed out{.planned = *std::move(prepared_), .released = {}, .freed = {}};
  prepared_.reset();
  const FeedPlan& plan = out.planned.plan;
  for (const uint32_t handle : plan.removed) {
    const std::shared_ptr<Sequence> sequence = sequences_.extract(handle).mapped();
    out.released.push_back({sequence->spec->id, sequence->epoch});
    if (sequence->blocks != nullptr) out.freed.push_back(sequence->blocks);
  }
  for (const uint32_t handle : plan.preempted) {
    Sequence& sequence = *sequences_.at(handle);
    if (sequence.blocks != nullptr) out.freed.push_back(std::exchange(sequence.blocks, nullptr));
    sequence.kv_tokens = 0;
  }
  for (const FeedAdded& added : plan.added) {
    OfferedSequence offer = std::move(offers_.extract({added.id, added.epoch}).mapped());
    auto output = std::make_shared<std::vector<int32_t>>(std::move(offer.output));
    const int64_t length = PromptTokens(*offer.spec) + static_cast<int64_t>(output->size());
    sequences_[added.handle] = std::make_shared<Sequence>(Sequence{
        offer.epoch, offer.spec, offer.blocks, offer.kv_tokens, length, std::move(output)});
    last_handle_ = added.handle;
  }
  for (Row& row : out.planned.rows) {
    row.sequence = sequences_.at(row.handle);
    Sequence& sequence = *row.sequence;
    sequence.blocks = row.blocks;
    sequence.kv_tokens += row.count;
    sequence.length += row.sample ? 1 : 0;
  }
  committed_.push_back(std::move(out));
}

std::optional<GroupStep> GroupBatch::Begin() {
  if (running_.has_value() || committed_.empty()) return std::nullopt;
  Committed next = std::move(committed_.front());
  committed_.pop_front();
  for (const BlockTable& blocks : next.freed) pool_->Free(*blocks);
  GroupStep step{.step = next.planned.plan.step,
                 .mode = next.planned.plan.mode,
                 .own_tokens = next.planned.plan.own_tokens,
                 .sequences = {},
                 .removed = std::move(next.released)};
  for (const Row& row : next.planned.rows) {
    const Sequence& sequence = *row.sequence;
    step.sequences.push_back({.id = sequence.spec->id,
                              .epoch = sequence.epoch,
                              .spec = sequence.spec,
                              .position = row.position,
                              .count = row.count,
                              .blocks = row.blocks,
                              .sample = row.sample,
                              .token_index = static_cast<int64_t>(sequence.output->size()),
                              .output = sequence.output,
                              .ring = nullptr,
                              .layout = layout_});
  }
  running_ = std::move(next.planned);
  return step;
}

uint64_t GroupBatch::End(const std::vector<int32_t>& sampled) {
  SKEIN_CHECK(running_.has_value());
  uint64_t digest = Mix64(running_->plan.step + kMix64Step);
  size_t next = 0;
  for (const Row& row : running_->rows) {
    if (!row.sample) continue;
    SKEIN_CHECK_MSG(next < sampled.size(), "a step's tokens are missing");
    const int32_t token = sampled[next++];
    digest = Mix64((digest ^ static_cast<uint32_t>(token)) + kMix64Step);
    row.sequence->output->push_back(std::max(token, 0));
  }
  SKEIN_CHECK_MSG(next == sampled.size(), "a step has more tokens than it samples");
  running_.reset();
  return digest;
}

std::vector<std::pair<RequestId, Epoch>> GroupBatch::Dissolve() {
  SKEIN_CHECK(!running_.has_value());
  Cancel();
  std::vector<std::pair<RequestId, Epoch>> left;
  for (const Committed& one : committed_) {
    for (const BlockTable& blocks : one.freed) pool_->Free(*blocks);
    for (const ReleaseSequence& released : one.released) {
      left.emplace_back(released.id, released.epoch);
    }
  }
  committed_.clear();
  for (const auto& [handle, sequence] : sequences_) {
    left.emplace_back(sequence->spec->id, sequence->epoch);
    if (sequence->blocks != nullptr) pool_->Free(*sequence->blocks);
  }
  sequences_.clear();
  while (!offers_.empty()) {
    const OfferKey key = offers_.begin()->first;
    left.push_back(key);
    Withdraw(key.first, key.second);
  }
  return left;
}

std::vector<GroupBatch::Member> GroupBatch::Members() const {
  std::vector<Member> members;
  for (const auto& [handle, sequence] : sequences_) {
    members.push_back({.handle = handle,
                       .spec = sequence->spec,
                       .epoch = sequence->epoch,
                       .kv_tokens = sequence->kv_tokens,
                       .output_tokens = sequence->length - PromptTokens(*sequence->spec),
                       .blocks = static_cast<int64_t>(SizeOf(sequence->blocks))});
  }
  return members;
}

const std::vector<int32_t>* GroupBatch::OutputOf(uint32_t handle) const {
  const auto sequence = sequences_.find(handle);
  return sequence == sequences_.end() ? nullptr : sequence->second->output.get();
}

int64_t GroupBatch::held_blocks() const {
  size_t blocks = 0;
  for (const auto& [handle, sequence] : sequences_) blocks += SizeOf(sequence->blocks);
  for (const auto& [key, offer] : offers_) blocks += SizeOf(offer.blocks);
  for (const Committed& one : committed_) {
    for (const BlockTable& freed : one.freed) blocks += SizeOf(freed);
  }
  if (prepared_.has_value()) {
    for (const Row& row : prepared_->rows) blocks += SizeOf(row.blocks) - row.had_blocks;
  }
  return static_cast<int64_t>(blocks);
}

BatchKv GroupBatch::Kv(int64_t block_tokens) const {
  BatchKv kv;
  const auto add = [&](const BlockTable& blocks, int64_t tokens) {
    if (SizeOf(blocks) == 0) return;
    ++kv.sequences;
    kv.blocks += static_cast<int64_t>(SizeOf(blocks));
    kv.blocks_alone += (tokens + block_tokens - 1) / block_tokens;
  };
  for (const auto& [handle, sequence] : sequences_) add(sequence->blocks, sequence->kv_tokens);
  for (const auto& [key, offer] : offers_) add(offer.blocks, offer.kv_tokens);
  return kv;
}

absl::Status GroupBatch::CheckInvariants() const {
  std::set<BlockId> used;
  for (const auto& [handle, sequence] : sequences_) {
    const auto blocks = static_cast<int64_t>(SizeOf(sequence->blocks));
    if (blocks != BlocksOf(sequence->kv_tokens)) {
      return absl::InternalError(absl::StrCat("GroupBatch 1: sequence ", handle, " has ", blocks,
                                              " blocks for ", sequence->kv_tokens, " tokens"));
    }
    for (int64_t i = 0; i < blocks; ++i) {
      if (!used.insert((*sequence->blocks)[static_cast<size_t>(i)]).second) {
        return absl::InternalError(
            absl::StrCat("GroupBatch 2: sequence ", handle, " shares a block with another one"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
