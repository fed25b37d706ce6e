#include "scheduler/worker/prefill/sp_plans.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

absl::StatusOr<InstanceId> SpPlans::SelfIn(const AssignRequest& assign) const {
  for (const PlanMember& member : assign.members) {
    if (member.incarnation == config_.incarnation) return member.instance;
  }
  return absl::FailedPreconditionError("members: this instance is not among them");
}

absl::Status SpPlans::Add(const AssignRequest& assign) {
  SKEIN_CHECK(Find(assign.spec->id) == nullptr);
  if (assign.spec->want_prompt_logprobs) {
    return absl::InvalidArgumentError("prompt_logprobs: not supported by SP plans");
  }
  const absl::StatusOr<InstanceId> self = SelfIn(assign);
  if (!self.ok()) return self.status();
  const DealSizes sizes{.prompt_tokens = PromptTokens(*assign.spec),
                        .block_tokens = config_.block_tokens,
                        .rank_tokens_max = config_.rank_tokens_max};
  SpPlan plan(assign.spec, assign.epoch, sizes, *self);
  if (absl::Status status = plan.AddChunks(assign); !status.ok()) return status;
  if (plan.slots() > config_.total_blocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunks: ", plan.slots(), " blocks needed here exceed the pool's ", config_.total_blocks));
  }
  plans_.emplace(assign.spec->id, Entry{.plan = std::move(plan), .sequences = {}});
  AddRange(assign);
  return absl::OkStatus();
}

absl::Status SpPlans::Extend(const AssignRequest& assign) {
  absl::Status status = plans_.at(assign.spec->id).plan.AddChunks(assign);
  if (status.ok()) AddRange(assign);
  return status;
}

void SpPlans::Leave(RequestId id, const StepSequence& ran, bool ok) {
  Entry& entry = plans_.at(id);
  entry.plan.Leave(ran, ok);
  Recount(entry);
}

void SpPlans::Recount(Entry& entry) {
  const int64_t now = entry.stopped ? 0 : entry.plan.BlocksToCompute();
  to_compute_ += now - entry.counted;
  entry.counted = now;
}

void SpPlans::AddRange(const AssignRequest& assign) {
  Entry& entry = plans_.at(assign.spec->id);
  entry.sequences.push_back(assign.sequence);
  Recount(entry);
  order_[assign.sequence] = {assign.spec->id, static_cast<int>(assign.from_chunk),
                             static_cast<int>(assign.chunks.size())};
}

void SpPlans::Stop(RequestId id) {
  const auto it = plans_.find(id);
  if (it == plans_.end()) return;
  for (const PlanSequence sequence : it->second.sequences) order_.erase(sequence);
  it->second.stopped = true;
  Recount(it->second);
}

void SpPlans::Forget(RequestId id) {
  Stop(id);
  plans_.erase(id);
}

SpPlan* SpPlans::Find(RequestId id) {
  const auto it = plans_.find(id);
  return it == plans_.end() ? nullptr : &it->second.plan;
}

const SpPlan* SpPlans::Find(RequestId id) const {
  const auto it = plans_.find(id);
  return it == plans_.end() ? nullptr : &it->second.plan;
}

std::optional<SpPlans::Turn> SpPlans::Next() {
  while (!order_.empty()) {
    const auto& [sequence, range] = *order_.begin();
    const std::optional<int> chunk = plans_.at(range.id).plan.NextChunk();
    if (!chunk.has_value() || *chunk >= range.to) {  // all of it was computed
      order_.erase(order_.begin());
      continue;
    }
    if (*chunk < range.from) return std::nullopt;
    return Turn{range.id, sequence};
  }
  return std::nullopt;
}

absl::Status SpPlans::CheckInvariants() const {
  for (const auto& [sequence, range] : order_) {
    if (plans_.count(range.id) > 0) continue;
    return absl::InternalError(
        absl::StrCat("PrefillCore 7: sequence ", sequence.value, " belongs to no plan"));
  }
  int64_t to_compute = 0;
  for (const auto& [id, entry] : plans_) {
    if (absl::Status status = entry.plan.CheckInvariants(); !status.ok()) return status;
    to_compute += entry.stopped ? 0 : entry.plan.BlocksToCompute();
  }
  if (to_compute != to_compute_) {
    return absl::InternalError("PrefillCore 6: the blocks to compute are miscounted");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
