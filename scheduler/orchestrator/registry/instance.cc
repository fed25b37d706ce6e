#include "scheduler/orchestrator/registry/instance.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {
namespace {

void Add(const Unreported& more, int64_t times, Unreported* sum) {
  sum->requests += times * more.requests;
  sum->blocks += times * more.blocks;
  sum->prompt_tokens += times * more.prompt_tokens;
}

}  // namespace

bool Instance::IsReported(RequestId request, Epoch epoch) const {
  const auto it = held.find({request, epoch});
  if (it == held.end()) return false;
  return IsReported(it->second);
}

void Instance::CountIfUnreported(const Placement& placement, int64_t times) {
  if (!IsReported(placement.spec->id, placement.epoch)) Count(placement, times);
}

void Instance::Count(const Placement& placement, int64_t times) {
  const Unreported more = Of(*placement.spec);
  Add(more, times, &unreported);
  if (placement.announced) Add(more, times, &announced);
}

void Instance::Place(const HeadPtr& spec, Epoch epoch, bool announced_only, PlanSequence sp_plan) {
  const auto [it, is_new] = placed.try_emplace(spec->id);
  if (is_new) {
    queues.Add(spec->tenant, PromptTokens(*spec));
  } else {
    CountIfUnreported(it->second, -1);
  }
  sp_plans.erase(it->second.sp_plan);
  it->second = {epoch, spec, announced_only, sp_plan};
  if (sp_plan != PlanSequence{}) sp_plans.insert(sp_plan);
  CountIfUnreported(it->second, 1);
  Recount();
}

void Instance::Opened(RequestId request) {
  const auto it = placed.find(request);
  if (it == placed.end()) return;
  const bool reported = IsReported(request, it->second.epoch);
  if (!reported) Count(it->second, -1);
  it->second.announced = false;
  if (!reported) Count(it->second, 1);
  NoteChange();
}

void Instance::Take(RequestId request) {
  const auto it = placed.find(request);
  if (it == placed.end()) return;
  CountIfUnreported(it->second, -1);
  queues.Remove(it->second.spec->tenant, PromptTokens(*it->second.spec));
  sp_plans.erase(it->second.sp_plan);
  placed.erase(it);
  Recount();
}

Placements Instance::TakeAll() {
  unreported = announced = {};
  queues = {};
  sp_plans.clear();
  Placements all = std::exchange(placed, {});
  Recount();
  return all;
}

bool Instance::Drained() const {
  return load.draining && placed.empty() && held.empty() && load.running_requests == 0 &&
         load.queued_requests == 0 && load.held_blocks == 0;
}

Unreported Instance::Of(const RequestHead& spec) const {
  return {1, BlocksOf(identity.shape, OpeningTokens(spec)), PromptTokens(spec)};
}

void Instance::SetHeld(const std::vector<HeldRequest>& all) {
  held.clear();
  held_digest = HeldDigest();
  for (const HeldRequest& one : all) {
    if (held.insert_or_assign({one.id, one.epoch}, one).second) held_digest.Add(one.id, one.epoch);
  }
  CountUnreported();
}

void Instance::NoteReported(RequestId request, Epoch epoch, bool reported) {
  const auto it = placed.find(request);
  if (it != placed.end() && it->second.epoch == epoch) Count(it->second, reported ? -1 : 1);
}

void Instance::TakeHeld(const HeldRequest& one) {
  const auto [it, is_new] = held.try_emplace({one.id, one.epoch}, one);
  const bool before = !is_new && IsReported(it->second);
  it->second = one;
  if (is_new) held_digest.Add(one.id, one.epoch);
  if (IsReported(one) != before) NoteReported(one.id, one.epoch, !before);
}

void Instance::DropHeld(RequestId request, Epoch epoch) {
  const auto it = held.find({request, epoch});
  if (it == held.end()) return;
  const bool before = IsReported(it->second);
  held.erase(it);
  held_digest.Remove(request, epoch);
  if (before) NoteReported(request, epoch, false);
}

void Instance::CountUnreported() {
  unreported = announced = {};
  for (const auto& [request, placement] : placed) CountIfUnreported(placement, 1);
}

absl::Status Instance::CheckPlaced() const {
  Instance afresh = *this;
  afresh.CountUnreported();
  if (unreported != afresh.unreported || announced != afresh.announced) {
    return absl::InternalError(
        absl::StrCat("the unreported load of instance ", id.value, " is miscounted"));
  }
  afresh.sp_plans.clear();
  afresh.queues = {};
  for (const auto& [request, placement] : placed) {
    afresh.sp_plans.insert(placement.sp_plan);
    afresh.queues.Add(placement.spec->tenant, PromptTokens(*placement.spec));
  }
  if (queues != afresh.queues) {
    return absl::InternalError(
        absl::StrCat("the prompts of tenants at instance ", id.value, " are miscounted"));
  }
  afresh.sp_plans.erase(PlanSequence{});
  if (sp_plans == afresh.sp_plans) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("instance ", id.value, " lists other SP plans than are placed there"));
}

PoolPart Instance::Part() const {
  const bool serves = Serves();
  const bool limited = identity.max_requests > 0;
  PoolPart part;
  part.counts = {.placeable = Placeable() ? 1 : 0,
                 .serving = serves ? 1 : 0,
                 .taking = TakesAssigns() ? 1 : 0,
                 .request_limit = serves ? identity.max_requests : 0,
                 .unlimited = serves && !limited ? 1 : 0,
                 .placed_not_serving = serves ? 0 : static_cast<int64_t>(placed.size()),
                 .missed = missed ? 1 : 0,
                 .slow = pace.pace == Pace::kSlow ? 1 : 0,
                 .suspect = pace.pace == Pace::kSuspect ? 1 : 0,
                 .aside = pace.pace == Pace::kAside ? 1 : 0};
  if (Placeable() && !closed_by_group) {
    const int64_t used = load.held_blocks + unreported.blocks;
    part.space = {.request_limit = identity.max_requests,
                  .unlimited = limited ? 0 : 1,
                  .spare_blocks = std::max<int64_t>(load.total_blocks * 3 / 4 - used, 0)};
    part.open_blocks = identity.total_blocks;
  } else {
    part.space = {.placed_elsewhere = static_cast<int64_t>(placed.size())};
  }
  if (draining()) return part;
  part.load = {.instances = 1,
               .running_requests = load.running_requests,
               .queued_requests = load.queued_requests,
               .total_blocks = load.total_blocks,
               .held_blocks = load.held_blocks};
  part.max_positions = identity.max_positions;
  return part;
}

void Instance::Recount() {
  if (sums_ == nullptr) return;
  const PoolPart now = Part();
  sums_->Replace(counted_, now);
  counted_ = now;
  NoteChange();
}

void Instance::NoteChange() {
  if (changed_ == nullptr || std::exchange(change_noted_, true)) return;
  changed_->push_back(this);
}

std::vector<HeldRequest> Instance::UnknownOf(const std::vector<HeldRequest>& all,
                                             uint64_t first_epoch) const {
  std::vector<HeldRequest> unknown;
  for (const HeldRequest& one : all) {
    if (one.epoch.value < first_epoch && !SKEIN_PLANT(stream_dropped_at_resync)) continue;
    const auto it = placed.find(one.id);
    if (it == placed.end() || it->second.epoch != one.epoch) unknown.push_back(one);
  }
  return unknown;
}

Instance::Compared Instance::CompareHeld(const std::vector<HeldRequest>& all) const {
  std::map<RequestId, const HeldRequest*> by_id;
  for (const HeldRequest& one : all) by_id[one.id] = &one;
  Compared result;
  for (const auto& [request, placement] : placed) {
    const auto it = by_id.find(request);
    if (it != by_id.end() && it->second->epoch == placement.epoch) {
      result.held.push_back(*it->second);
    } else {
      result.missing.push_back({request, placement.epoch});
    }
  }
  return result;
}

}  // namespace skein::scheduler
