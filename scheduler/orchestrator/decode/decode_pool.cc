#include "scheduler/orchestrator/decode/decode_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"

namespace skein::scheduler {

DecodeCandidate DecodePool::CandidateOf(const Instance& instance, bool asked) {
  DecodeCandidate candidate{
      .instance = instance.id,
      .free_blocks = instance.load.free_blocks - instance.load.claimed_blocks,
      .unreported_blocks = instance.unreported.blocks,
      .active_requests = instance.load.running_requests + instance.load.queued_requests,
      .unreported_requests = instance.unreported.requests,
      .weight = instance.pace.Weight()};
  if (asked) candidate.unreported_blocks -= instance.announced.blocks;
  // Each step gives each running request a token.
  const WorkerLoad& load = instance.load;
  if (load.running_requests > 0 && load.tokens_per_second > 0) {
    candidate.step_s = static_cast<double>(load.running_requests) / load.tokens_per_second;
  }
  return candidate;
}

DecodeCandidate DecodePool::RankedAs(const Instance& instance, bool asked) {
  DecodeCandidate candidate = CandidateOf(instance, asked);
  const int64_t others = asked ? instance.announced.requests : 0;
  const bool takes = instance.Placeable() && !instance.closed_by_group;
  if (!takes || !instance.HasRoom(others)) candidate.free_blocks = 0;
  return candidate;
}

void DecodePool::Set(const Instance& instance) {
  if (!shape_.has_value()) shape_ = instance.identity.shape;
  const auto known = blocks_of_.find(instance.id);
  if (instance.draining()) {
    if (known == blocks_of_.end()) return;
    by_size_.erase({known->second, instance.id});
    blocks_of_.erase(known);
    closed_.erase(instance.id);
    away_.erase(instance.id);
    dedicated_.erase(instance.id);
    with_plan_.Remove(instance.id);
    asked_.Remove(instance.id);
    return;
  }
  if (known == blocks_of_.end()) {
    blocks_of_[instance.id] = instance.identity.total_blocks;
    by_size_.emplace(instance.identity.total_blocks, instance.id);
  }
  const auto mark = [&](bool is, absl::btree_set<InstanceId>* all) {
    is ? static_cast<void>(all->insert(instance.id)) : static_cast<void>(all->erase(instance.id));
  };
  mark(instance.closed_by_group, &closed_);
  mark(!instance.Placeable(), &away_);
  mark(instance.dedicated, &dedicated_);
  with_plan_.Set(RankedAs(instance, /*asked=*/false));
  asked_.Set(RankedAs(instance, /*asked=*/true));
}

DecodePool::Choice DecodePool::Choose(const Question& question) const {
  if (!shape_.has_value()) return {};
  const std::set<InstanceId>& tried = *question.tried;
  const std::set<InstanceId>& old = *question.old;
  const int64_t most_tokens = PromptTokens(*question.spec) + question.spec->max_tokens;
  const int64_t most_blocks = BlocksOf(*shape_, most_tokens);
  // Of those that can ever take it: what is closed counts only if all are.
  bool closed = false, open = false;
  bool any = false;    // of the open ones, one was not tried
  bool fresh = false;  // and is not an old one, and takes requests
  for (auto it = by_size_.rbegin(); it != by_size_.rend() && it->first >= most_blocks; ++it) {
    const InstanceId instance = it->second;
    const bool is_closed = closed_.count(instance) > 0;
    closed = closed || is_closed;
    open = open || !is_closed;
    if (is_closed || tried.count(instance) > 0) continue;
    any = true;
    fresh = old.count(instance) == 0 && away_.count(instance) == 0;
    if (fresh) break;
  }
  if (closed && !open) return {Outcome::kNoRoom, {}};
  if (!any) {
    const bool one_tried = std::any_of(tried.begin(), tried.end(), [&](InstanceId instance) {
      return blocks_of_.count(instance) > 0;
    });
    return {one_tried ? Outcome::kAllTried : Outcome::kNone, {}};
  }
  const bool all_hold = by_size_.begin()->first >= most_blocks;
  const auto allows = [&](InstanceId instance) {
    return (all_hold || blocks_of_.at(instance) >= most_blocks) && tried.count(instance) == 0 &&
           (!fresh || old.count(instance) == 0);
  };
  const FreenessOrder& order = question.asked ? asked_ : with_plan_;
  const int64_t blocks = BlocksOf(*shape_, OpeningTokens(*question.spec));
  std::optional<InstanceId> pick;
  if (question.urgent) {
    pick = PickDedicated(order, blocks, allows);
  } else if (!dedicated_.empty()) {
    pick = order.Pick(blocks, [&](InstanceId instance) {
      return dedicated_.count(instance) == 0 && allows(instance);
    });
    const std::optional<InstanceId> spare = PickDedicated(order, blocks, allows);
    const auto freeness = [&](InstanceId instance) { return Freeness(*order.Find(instance)); };
    if (pick && spare && freeness(*spare) > kDedicatedReserve * freeness(*pick)) pick = spare;
  }
  if (!pick.has_value()) pick = order.Pick(blocks, allows);
  if (!pick.has_value()) return {Outcome::kNoRoom, {}};
  return {Outcome::kPlaced, *pick};
}

// Of those, which are few: of all others FreenessOrder::Pick would look at those that are freer.
template <class Allows>
std::optional<InstanceId> DecodePool::PickDedicated(const FreenessOrder& order, int64_t blocks,
                                                    const Allows& allows) const {
  std::vector<DecodeCandidate> candidates;
  SKEIN_LOOKED(dedicated_.size());
  for (const InstanceId instance : dedicated_) {
    if (allows(instance)) candidates.push_back(*order.Find(instance));
  }
  return PickDecode(candidates, blocks);
}

bool DecodePool::Knows(const Instance& instance) const {
  const auto known = blocks_of_.find(instance.id);
  if (known == blocks_of_.end()) return instance.draining();
  return !instance.draining() && known->second == instance.identity.total_blocks &&
         (closed_.count(instance.id) > 0) == instance.closed_by_group &&
         (away_.count(instance.id) > 0) == !instance.Placeable() &&
         (dedicated_.count(instance.id) > 0) == instance.dedicated &&
         *with_plan_.Find(instance.id) == RankedAs(instance, /*asked=*/false) &&
         *asked_.Find(instance.id) == RankedAs(instance, /*asked=*/true);
}

absl::Status DecodePool::CheckInvariants() const {
  if (absl::Status status = with_plan_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = asked_.CheckInvariants(); !status.ok()) return status;
  bool same = with_plan_.size() == size() && asked_.size() == size() && by_size_.size() == size();
  for (const auto& [instance, blocks] : blocks_of_) {
    same = same && with_plan_.Find(instance) != nullptr && asked_.Find(instance) != nullptr &&
           by_size_.count({blocks, instance}) == 1;
  }
  if (same) return absl::OkStatus();
  return absl::InternalError("DecodePool: its two indexes hold different instances");
}

const DecodePool& DecodePools::Of(const std::string& model) {
  Known& known = pools_[model];
  const uint64_t version = registry_.PoolVersion(model, Role::kDecode);
  const std::vector<const Instance*> changed = registry_.TakeChanged(model, Role::kDecode);
  if (known.version == version) {
    for (const Instance* instance : changed) known.pool.Set(*instance);
    return known.pool;
  }
  known = {.pool = {}, .version = version};
  for (const Instance* instance : registry_.Pool(model, Role::kDecode)) known.pool.Set(*instance);
  return known.pool;
}

absl::Status DecodePools::CheckInvariants() const {
  for (const auto& [model, known] : pools_) {
    if (absl::Status status = known.pool.CheckInvariants(); !status.ok()) return status;
    if (known.version != registry_.PoolVersion(model, Role::kDecode)) continue;
    for (const Instance* instance : registry_.Pool(model, Role::kDecode)) {
      if (instance->change_noted() || known.pool.Knows(*instance)) continue;
      return absl::InternalError(absl::StrCat("DecodePools: the entry of instance ",
                                              instance->id.value, " is out of date"));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
