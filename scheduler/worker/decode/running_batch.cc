#include "scheduler/worker/decode/running_batch.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/fairness/fair_order.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void RunningBatch::Add(const DecodeSequence& sequence, int64_t computed) {
  SKEIN_CHECK(sequence.phase == Phase::kRunning);
  order_.Add(sequence.id(), OwnerOf(*sequence.spec), sequence.arrived_us);
  AddToBatch(sequence, sequence.KnownTokens(), computed);
}

void RunningBatch::AddToBatch(const DecodeSequence& sequence, int64_t known, int64_t computed) {
  batch_.Add(sequence.id(), PlanSequence{sequence.epoch.value}, known, computed, sequence.suspect,
             OwnerOf(*sequence.spec));
}

// Of prompt and output, when the steps in flight have ended.
int64_t RunningBatch::TokensAhead(const DecodeSequence& sequence) const {
  return batch_.Has(sequence.id()) ? batch_.Known(sequence.id()) : sequence.KnownTokens();
}

void RunningBatch::NoteToken(const DecodeSequence& sequence) {
  const RequestId id = sequence.id();
  const int64_t tokens = TokensAhead(sequence);
  if (parts_.kv_in->Covers(id, tokens)) return;
  // A free block is taken at once: while any sequence wants one, no request may enter.
  if (SomeWaitForBlocks() || !parts_.kv_in->Extend(id, tokens).ok()) order_.Want(id);
}

void RunningBatch::AddPreempted(const DecodeSequence& sequence) {
  SKEIN_CHECK(sequence.phase == Phase::kPreempted);
  order_.Add(sequence.id(), OwnerOf(*sequence.spec), sequence.arrived_us);
  order_.Preempt(sequence.id());
}

void RunningBatch::Remove(RequestId id) {
  batch_.Remove(id);
  order_.Remove(id);
}

// ---- steps ----

std::vector<StepSequence> RunningBatch::NextStep() {
  std::vector<StepSequence> step;
  for (const StepItem& item : batch_.Plan()) {
    const DecodeSequence& sequence = parts_.sequences->at(item.id);
    const int64_t index = item.position + item.count - PromptTokens(*sequence.spec);
    step.push_back({.id = item.id,
                    .epoch = sequence.epoch,
                    .spec = sequence.spec,
                    .position = item.position,
                    .count = item.count,
                    .blocks = parts_.kv_in->TableOf(item.id),
                    .sample = item.sample,
                    .token_index = index - (SKEIN_PLANT(sampler_index_off_by_one) ? 1 : 0),
                    .output = sequence.output});
    if (!item.sample) continue;
    if (index + 1 >= sequence.spec->max_tokens) {
      batch_.Remove(item.id);
    } else if (launch_ahead_) {
      NoteToken(sequence);
    }
  }
  return step;
}

void RunningBatch::EndStep() { batch_.Complete(); }

// ---- blocks ----

// Blocks that stay free when a sequence enters, for the growth of those that are here: two for
// each, at most a quarter of the pool. More would leave blocks unused, since others end meanwhile;
// less would preempt more often. In a saturated pool of 512 blocks with Azure's conversation
// lengths after prompts of 64 tokens, 1/4, 1, 2 and 3 blocks a sequence gave 0.99, 0.96, 0.91 and
// 0.86 of the streams that could ever run, and 0.84, 0.24, 0.06 and 0.02 preemptions an answer.
int64_t RunningBatch::Headroom() const {
  const DecodeSequences& sequences = *parts_.sequences;
  const int64_t here = sequences.Count(Phase::kReceiving) + sequences.Count(Phase::kRunning);
  return std::min(2 * here, parts_.kv_in->blocks().total / 4);
}

// RESOURCE_EXHAUSTED: a sequence that needs so many blocks must wait.
absl::Status RunningBatch::HasRoom(int64_t blocks, int64_t left_to_group) const {
  const int64_t free = parts_.kv_in->blocks().free;
  if (blocks + Headroom() + left_to_group <= free) return absl::OkStatus();
  const std::string to_group =
      left_to_group > 0 ? absl::StrCat(", ", left_to_group, " for the bound group") : "";
  return absl::ResourceExhaustedError(
      absl::StrCat("KV blocks: ", blocks, " wanted, ", free, " free, ", Headroom(),
                   " of them reserved for running sequences", to_group));
}

absl::Status RunningBatch::MayEnter(int64_t blocks) const {
  if (SomeWaitForBlocks()) {
    return absl::ResourceExhaustedError("KV blocks: running sequences wait for blocks");
  }
  return HasRoom(blocks, left_to_group_);
}

int64_t RunningBatch::ClaimedBlocks() const {
  const int64_t free = parts_.kv_in->blocks().free;
  return SomeWaitForBlocks() ? free : std::min(free, Headroom() + left_to_group_);
}

bool RunningBatch::GrowTables() {
  while (const std::optional<RequestId> id = order_.FirstWanting()) {
    const DecodeSequence& sequence = parts_.sequences->at(*id);
    if (!TakeBlock(sequence)) {
      if (!InFlight()) batch_.Remove(*id);  // it waits; all behind it are preempted
      return false;
    }
    order_.Satisfy(*id);
    const int64_t known = TokensAhead(sequence);
    if (!batch_.Has(*id)) AddToBatch(sequence, known, known - 1);
  }
  ResumePreempted();
  return true;
}

bool RunningBatch::TakeBlock(const DecodeSequence& sequence) {
  const RequestId id = sequence.id();
  const auto blocks_of = [this](RequestId held) { return BlocksOf(held); };
  while (!parts_.kv_in->Extend(id, TokensAhead(sequence)).ok()) {
    if (InFlight()) return false;
    const std::optional<RequestId> victim = order_.VictimFor(id, blocks_of);
    if (!victim.has_value()) return false;
    Preempt(parts_.sequences->at(*victim));
  }
  return true;
}

void RunningBatch::Preempt(DecodeSequence& sequence) {
  const RequestId id = sequence.id();
  batch_.Remove(id);
  parts_.kv_in->Release(id, parts_.clock->Listening());
  order_.Preempt(id);
  parts_.sequences->Preempt(sequence);
  ++preemptions_;
  parts_.membership->Holds(
      {.id = id, .epoch = sequence.epoch, .opened = true, .preemptions = sequence.preemptions});
  parts_.membership->ReportSoon();
}

std::vector<BlockMove> RunningBatch::LeaveGoing() {
  SKEIN_CHECK(!InFlight());
  KvIn::Going going = parts_.kv_in->LookAtGoing();
  for (const RequestId id : going.stuck) Preempt(parts_.sequences->at(id));
  while (going.movable > parts_.kv_in->blocks().free) {
    const std::optional<RequestId> victim =
        order_.VictimOfAll([this](RequestId held) { return BlocksOf(held); });
    SKEIN_CHECK_MSG(victim.has_value(), "whole KV is of sequences that run");
    Preempt(parts_.sequences->at(*victim));
    going = parts_.kv_in->LookAtGoing();
  }
  return parts_.kv_in->MoveGoing();
}

void RunningBatch::ResumePreempted() {
  while (const std::optional<RequestId> id = order_.FirstPreempted()) {
    DecodeSequence& sequence = parts_.sequences->at(*id);
    const int64_t known = sequence.KnownTokens();
    if (!HasRoom(parts_.kv_in->BlocksFor(known), 0).ok()) return;
    if (!parts_.kv_in->Resume(sequence.spec, sequence.epoch, known).ok()) return;
    order_.Resume(*id);
    parts_.sequences->Resume(sequence);
    AddToBatch(sequence, known, 0);
    recomputed_tokens_ += static_cast<uint64_t>(known - 1);
  }
}

absl::Status RunningBatch::CheckInvariants() const {
  for (const absl::Status& status : {batch_.CheckInvariants(), order_.CheckInvariants()}) {
    if (!status.ok()) return status;
  }
  const auto violated = [](int number, RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("DecodeCore ", number, ": ", ToString(id), " ", what));
  };
  for (const auto& [id, sequence] : parts_.sequences->all()) {
    const bool has_blocks = parts_.kv_in->Has(id);
    if (sequence.phase == Phase::kPreempted && has_blocks) {
      return violated(7, id, "is preempted but holds blocks");
    }
    if (batch_.InFlight(id) && !has_blocks) return violated(3, id, "runs without blocks");
    const bool grown = sequence.phase != Phase::kRunning || !has_blocks || order_.Wants(id) ||
                       parts_.kv_in->Covers(id, sequence.KnownTokens());
    if (!grown) return violated(7, id, "needs another block but does not wait for one");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
