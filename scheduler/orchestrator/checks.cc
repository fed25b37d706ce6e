// What OrchestratorCore shows of itself: snapshot, deadlines, invariants.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"
#include "scheduler/orchestrator/requests/violated.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/placement/queue_time.h"
#include "scheduler/placement/step_age.h"

namespace skein::scheduler {

namespace {

using orchestrator::Formations;
using orchestrator::GroupControl;

FormationStatus StatusOf(const Formations::Shown::One& formation, TimeUs now) {
  const auto size = static_cast<int32_t>(formation.members.size());
  return {.members = formation.members,
          .name = orchestrator::FormationName(formation.epoch == 0 ? 1 : size, formation.mode),
          .stage = formation.stage,
          .epoch = formation.epoch,
          .pinned = formation.pinned,
          .for_us = now - formation.since_us,
          .why = formation.why};
}

GroupStatus StatusOf(const GroupControl::Key& key, const GroupControl::Group& group,
                     const Formations::Shown& shown, TimeUs now) {
  GroupStatus status = {.name = GroupControl::NameOf(key),
                        .role = key.role,
                        .model = key.model,
                        .node = key.node,
                        .members = {group.members.begin(), group.members.end()},
                        .formations = {},
                        .for_us = now - shown.since_us,
                        .why = shown.why,
                        .rejected = {},
                        .generation = group.order.generation,
                        .ready = static_cast<int64_t>(group.ready.size())};
  for (const auto& one : shown.formations) status.formations.push_back(StatusOf(one, now));
  for (const auto& [formation, why] : shown.rejected) status.rejected.push_back({formation, why});
  return status;
}

ModelTotals::Paces PacesOf(const PoolCounts& counts) {
  return {.slow = counts.slow, .suspect = counts.suspect, .aside = counts.aside};
}

}  // namespace

TimeUs OrchestratorCore::Impl::NextDeadline() const {
  const TimeUs deaf_us = registry_.listening().NextTick(hearing_.NextDue(Streams()));
  return std::min({registry_.NextTick(), router_side_.NextTick(), deaf_us, requests_.NextTimer(),
                   groups_.NextDue(), formations_.NextDue(), longs_.NextDue(), decode_.NextDue(),
                   prefill_.NextDue()});
}

std::vector<Explanation> OrchestratorCore::Impl::Explain(const std::string& name,
                                                         TimeUs now) const {
  return explanations_.Find(requests_, name, now);
}

std::vector<Explanation> OrchestratorCore::Impl::List(RequestOrder order, size_t limit,
                                                      TimeUs now) const {
  const bool recent = order == RequestOrder::kRecent;
  using orchestrator::ListOrder;
  return explanations_.List(requests_, recent ? ListOrder::kRecent : ListOrder::kSlowest, limit,
                            now);
}

std::string_view OrchestratorCore::Impl::StateOf(RequestId id) const {
  static constexpr std::string_view kNames[orchestrator::kStates] = {
      "queued", "assigning",  "assigned", "waiting", "reserving",
      "placed", "replanning", "parked",   "sharing", "grouping"};
  const Request* request = requests_.Find(id);
  return request == nullptr ? "" : kNames[static_cast<size_t>(request->state)];
}

ModelTotals OrchestratorCore::Impl::TotalsOf(const std::string& model) const {
  const PoolSums& prefill = registry_.Sums(model, Role::kPrefill);
  const PoolSums& decode = registry_.Sums(model, Role::kDecode);
  ModelTotals totals{.prefill = prefill.load,
                     .decode = decode.load,
                     .prefill_placeable = prefill.counts.placeable,
                     .decode_placeable = decode.counts.placeable,
                     .missed = decode.counts.missed,
                     .prefill_paces = PacesOf(prefill.counts),
                     .decode_paces = PacesOf(decode.counts),
                     .waiting_here = requests_.CountOf(model, State::kParked) +
                                     requests_.CountOf(model, State::kQueued) +
                                     longs_.WaitingOf(model)};
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    const PoolView pool = registry_.Pool(model, role);
    if (pool.empty()) continue;
    const HandoffShape& shape = pool.front()->identity.shape;  // as of the others
    totals.hash = shape.model_hash;
    if (role == Role::kDecode) totals.block_tokens = shape.block_tokens;
    const auto& limits = registry_.Sums(model, role).max_positions;
    if (limits.empty()) continue;
    const int64_t least = *limits.begin();
    totals.max_positions =
        totals.max_positions == 0 ? least : std::min(totals.max_positions, least);
  }
  return totals;
}

OrchestratorSnapshot OrchestratorCore::Impl::Totals() const {
  OrchestratorSnapshot totals{
      .instances = {},
      .routers = {},
      .groups = {},
      .gone = {},
      .refused_peers = {},
      .models = {},
      .prefill_instances = registry_.Count(Role::kPrefill),
      .decode_instances = registry_.Count(Role::kDecode),
      .requests = static_cast<int64_t>(requests_.size() + router_side_.held()),
      .planning = requests_.CountIn(State::kQueued) + requests_.CountIn(State::kReplanning) +
                  static_cast<int64_t>(router_side_.held()),
      .parked = requests_.CountIn(State::kParked),
      .assigning = requests_.CountIn(State::kAssigning),
      .assigned = requests_.CountIn(State::kAssigned),
      .waiting = requests_.CountIn(State::kWaiting) + requests_.CountIn(State::kGrouping),
      .reserving = requests_.CountIn(State::kReserving),
      .placed = requests_.CountIn(State::kPlaced),
      .sharing = requests_.CountIn(State::kSharing),
      .submitted = requests_.submitted(),
      .failed = explanations_.failed(),
      .refused = refused_,
      .misses = worker_side_.misses(),
      .suspected = worker_side_.paces().suspected(),
      .set_aside = worker_side_.paces().set_aside(),
      .hung = worker_side_.hung(),
      .unreached_pairs = decode_.pairs().barred() + prefill_.ring_pairs().barred(),
      .pair_failures = decode_.pairs().failures() + prefill_.ring_pairs().failures(),
      .lost = worker_side_.lost(),
      .sp_plans = prefill_.sp_plans(),
      .shared_prompts = sharing_.shared(),
      .replans = explanations_.degraded()[static_cast<size_t>(Degraded::kReplanned)],
      .digest_mismatches = worker_side_.digest_mismatches(),
      .degraded = explanations_.degraded(),
      .plans = explanations_.plans(),
      .last_epoch = numbers_.last_epoch(),
      .generation = numbers_.generation()};
  for (const auto& [of, count] : totals.lost) totals.instances_lost += count;
  for (const std::string& model : registry_.models_seen()) {
    totals.models.emplace(model, TotalsOf(model));
    totals.plans.try_emplace(model);
    totals.lost.try_emplace({model, Role::kPrefill});
    totals.lost.try_emplace({model, Role::kDecode});
  }
  return totals;
}

OrchestratorSnapshot OrchestratorCore::Impl::Snapshot(TimeUs now) const {
  OrchestratorSnapshot snapshot = Totals();
  snapshot.gone = gone_.Latest(now);
  snapshot.refused_peers = refused_peers_.Latest(now);
  std::map<InstanceId, double> queue_s;  // estimated
  for (const auto& [model, pool] : pools_.all()) {
    const std::vector<InstanceId>& slots = pool.planner.layout().slots;
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      queue_s[slots[slot]] = pool.timeline.QueueSeconds(slot, now);
    }
  }
  for (const auto& [id, instance] : registry_.instances()) {
    InstanceStatus status{
        .instance = id,
        .identity = instance.identity,
        .load = instance.load,
        .silent_us = now - instance.heard_us,
        .placed_requests = static_cast<int64_t>(instance.placed.size()),
        .registered_us = now - instance.registered_us,
        .placeable = instance.Placeable(),
        .drained = instance.Drained(),
        .heard_by = router_side_.HeardBy(instance.identity.incarnation),
        .missed = instance.missed,
        .pace = instance.pace,
        .hangs = IsStepHung(instance.load.step_age_us, instance.load.step_estimate_us,
                            config_.hung_step_us)};
    status.load.draining = instance.draining();
    if (instance.identity.role == Role::kPrefill) {
      const auto estimated = queue_s.find(id);
      status.queue_seconds = estimated == queue_s.end()
                                 ? QueueSeconds(prefill_.CandidateOf(instance))
                                 : estimated->second;
    } else {
      const DecodeCandidate candidate = DecodePool::CandidateOf(instance, /*asked=*/false);
      status.freeness = Freeness(candidate);
      status.virtual_blocks = candidate.unreported_blocks;
    }
    snapshot.instances.push_back(std::move(status));
  }
  for (const auto& [id, router] : router_side_.routers().all()) {
    snapshot.routers.push_back(
        {router.identity, router.load, now - router.heard_us, router.draining(), router.drained()});
  }
  for (const auto& [key, group] : groups_.all()) {
    snapshot.groups.push_back(StatusOf(key, group, formations_.Show(key), now));
  }
  snapshot.oldest_wait_us = std::max(decode_.OldestWait(now), longs_.OldestWait(now));
  return snapshot;
}

absl::Status OrchestratorCore::Impl::CheckInvariants() const {
  absl::Status found = requests_.CheckInvariants();
  if (found.ok()) found = router_side_.CheckInvariants();
  if (found.ok()) found = worker_side_.CheckInvariants();
  if (found.ok()) found = prefill_.CheckInvariants();
  if (found.ok()) found = decode_.CheckInvariants();
  if (found.ok()) found = replanner_.CheckInvariants();
  if (found.ok()) found = sharing_.CheckInvariants();
  if (found.ok()) found = explanations_.CheckInvariants();
  if (found.ok()) found = groups_.CheckInvariants(registry_);
  if (found.ok()) found = formations_.CheckInvariants();
  if (found.ok()) found = longs_.CheckInvariants();
  for (const InstanceId id : explanations_.switches()->instances()) {
    if (!found.ok() || registry_.Find(id) != nullptr) continue;
    found = absl::InternalError(
        absl::StrCat("SwitchNotes: instance ", id.value, " has left, and its switches are kept"));
  }
  requests_.ForEach([&](const Request& request) {
    if (found.ok() && request.epoch > numbers_.last_epoch()) {
      found = orchestrator::Violated(4, request.spec->id, "has an epoch that was not issued yet");
    }
  });
  return found;
}

}  // namespace skein::scheduler
