// What OrchestratorCore shows of itself: snapshot, deadlines, invariants.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

TimeUs OrchestratorCore::Impl::NextDeadline() const {
  return std::min({registry_.NextTick(), router_side_.NextTick(), requests_.NextTimer()});
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
  static constexpr std::string_view kNames[kStates] = {
      "queued", "assigning", "assigned", "waiting", "reserving", "placed", "replanning", "parked"};
  const Request* request = requests_.Find(id);
  return request == nullptr ? "" : kNames[static_cast<size_t>(request->state)];
}

OrchestratorSnapshot OrchestratorCore::Impl::Totals() const {
  OrchestratorSnapshot totals{
      .instances = {},
      .routers = {},
      .gone = {},
      .models = {registry_.models_seen().begin(), registry_.models_seen().end()},
      .prefill_instances = registry_.Count(Role::kPrefill),
      .decode_instances = registry_.Count(Role::kDecode),
      .planning = requests_.CountIn(State::kQueued) + requests_.CountIn(State::kReplanning) +
                  static_cast<int64_t>(router_side_.held()),
      .parked = requests_.CountIn(State::kParked),
      .assigning = requests_.CountIn(State::kAssigning),
      .assigned = requests_.CountIn(State::kAssigned),
      .waiting = requests_.CountIn(State::kWaiting),
      .reserving = requests_.CountIn(State::kReserving),
      .placed = requests_.CountIn(State::kPlaced),
      .waiting_here = {},
      .submitted = requests_.submitted(),
      .failed = explanations_.failed(),
      .refused = refused_,
      .lost = lost_,
      .sp_plans = sp_plans_,
      .replans = explanations_.degraded()[static_cast<size_t>(Degraded::kReplanned)],
      .digest_mismatches = digest_mismatches_,
      .degraded = explanations_.degraded(),
      .plans = explanations_.plans(),
      .last_epoch = Epoch{last_epoch_},
      .generation = generation_};
  for (const auto& [of, count] : totals.lost) totals.instances_lost += count;
  for (const std::string& model : totals.models) {
    totals.waiting_here[model] =
        requests_.CountOf(model, State::kParked) + requests_.CountOf(model, State::kQueued);
    totals.plans.try_emplace(model);
    totals.lost.try_emplace({model, Role::kPrefill});
    totals.lost.try_emplace({model, Role::kDecode});
  }
  return totals;
}

OrchestratorSnapshot OrchestratorCore::Impl::Snapshot(TimeUs now) const {
  OrchestratorSnapshot snapshot = Totals();
  snapshot.gone = gone_.Latest(now);
  std::map<InstanceId, double> queue_s;  // estimated
  for (const auto& [model, pool] : pools_.all()) {
    const std::vector<InstanceId>& slots = pool.planner.layout().slots;
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      queue_s[slots[slot]] = pool.timeline.QueueSeconds(slot, now);
    }
  }
  for (const auto& [id, instance] : registry_.instances()) {
    InstanceStatus status{.instance = id,
                          .identity = instance.identity,
                          .load = instance.load,
                          .silent_us = now - instance.heard_us,
                          .placed_requests = static_cast<int64_t>(instance.placed.size()),
                          .registered_us = now - instance.registered_us,
                          .placeable = instance.Placeable(),
                          .drained = instance.Drained()};
    status.load.draining = instance.draining();
    if (instance.identity.role == Role::kPrefill) {
      const auto estimated = queue_s.find(id);
      status.queue_seconds = estimated == queue_s.end()
                                 ? QueueSeconds(chooser_.CandidateOf(instance))
                                 : estimated->second;
    } else {
      const DecodeCandidate candidate = DecodePlacement::CandidateOf(instance, /*asked=*/false);
      status.freeness = Freeness(candidate);
      status.virtual_blocks = candidate.unreported_blocks;
    }
    snapshot.instances.push_back(std::move(status));
  }
  for (const auto& [id, router] : router_side_.routers().all()) {
    snapshot.routers.push_back(
        {router.identity, router.load, now - router.heard_us, router.draining(), router.drained()});
  }
  placement_.ForEachFirst([&](RequestId first) {  // it asked first
    const TimeUs since_us = requests_.At(first).waiting_since_us;
    snapshot.oldest_wait_us = std::max(snapshot.oldest_wait_us, now - since_us);
  });
  return snapshot;
}

namespace {

absl::Status Violated(int number, RequestId id, const char* what) {
  return absl::InternalError(
      absl::StrCat("OrchestratorCore ", number, ": ", ToString(id), " ", what));
}

}  // namespace

absl::Status OrchestratorCore::Impl::CheckRequest(const Request& request) const {
  const RequestId id = request.spec->id;
  std::vector<InstanceId> places;
  for (const Member& member : request.members) {
    if (member.here()) places.push_back(member.instance);
  }
  if (request.decode != InstanceId{}) places.push_back(request.decode);
  for (const InstanceId at : places) {
    const Instance* instance = registry_.Find(at);
    if (instance == nullptr) return Violated(2, id, "is on a dead instance");
    const auto placed = instance->placed.find(id);
    if (placed == instance->placed.end() || placed->second.epoch != request.epoch) {
      return Violated(2, id, "is not known at its instance");
    }
  }
  const bool must = request.state == State::kReserving || request.state == State::kPlaced;
  const bool may = must || request.state == State::kAssigning || request.state == State::kAssigned;
  const bool has_place = request.decode != InstanceId{};
  if (must && !has_place) return Violated(2, id, "has no decode place");
  if (has_place && !may) return Violated(2, id, "has a decode place and should not");
  using Standing = DecodePlacement::Standing;
  const Standing standing = placement_.StandingOf(request.spec->model, request.waiting_number, id);
  const bool in_line = standing != Standing::kAbsent;
  if ((request.state == State::kWaiting) != in_line) {
    return Violated(3, id, in_line ? "waits in a list and should not" : "waits in no list");
  }
  if (in_line && request.asking.has_value() != (standing != Standing::kNotAsking)) {
    return Violated(3, id, "is asking in one table and not in the other");
  }
  if (standing == Standing::kBlocked && !MustWaitForOlder(request)) {
    return Violated(3, id, "waits for a plan that has opened");
  }
  if (request.epoch.value > last_epoch_) return Violated(4, id, "has an epoch of the future");
  return CheckPlan(request);
}

absl::Status OrchestratorCore::Impl::CheckPlan(const Request& request) const {
  const RequestId id = request.spec->id;
  const bool replanning = request.state == State::kReplanning;
  if (replanning != abandoned_.Knows(id))
    return Violated(7, id, "is replanning in one table and not in the other");
  if (replanning && abandoned_.EpochOf(id) >= request.epoch) {
    return Violated(7, id, "has the epoch of a plan that was given up");
  }
  const bool nowhere =
      replanning || request.state == State::kParked || request.state == State::kQueued;
  if (nowhere != request.members.empty() || nowhere != request.chunks.empty()) {
    return Violated(7, id, "has an instance without a plan, or a plan without an instance");
  }
  if (nowhere) return absl::OkStatus();
  int64_t tokens = 0;
  size_t members = 1;
  for (const Chunk& chunk : request.chunks) {
    if (chunk.history != tokens || chunk.tokens < 1) return Violated(7, id, "has a hole");
    if (chunk.members < members || chunk.members > request.members.size()) {
      return Violated(7, id, "loses a member");
    }
    members = chunk.members;
    tokens += chunk.tokens;
  }
  if (members != request.members.size()) return Violated(7, id, "has a member without a chunk");
  if (tokens > PromptTokens(*request.spec)) return Violated(7, id, "has too many tokens");
  const bool to_come = tokens < PromptTokens(*request.spec);
  if (to_come && request.rolling_key == 0) return Violated(8, id, "is forgotten by the planner");
  return absl::OkStatus();
}

// Each instance against the first of its model, and of its model's prefill instances.
absl::Status OrchestratorCore::Impl::CheckPools() const {
  std::map<std::string, const WorkerIdentity*> first;
  std::map<std::string, const WorkerIdentity*> first_prefill;
  for (const auto& [id, instance] : registry_.instances()) {
    const WorkerIdentity& identity = instance.identity;
    const WorkerIdentity& one = *first.try_emplace(identity.model, &identity).first->second;
    bool same = one.shape == identity.shape;
    if (identity.role == Role::kPrefill) {
      const auto& prefill = first_prefill.try_emplace(identity.model, &identity).first->second;
      same = same && prefill->max_batch_tokens == identity.max_batch_tokens;
    }
    if (!same) {
      return absl::InternalError(absl::StrCat("OrchestratorCore 5: model ", identity.model));
    }
  }
  return absl::OkStatus();
}

absl::Status OrchestratorCore::Impl::CheckInvariants() const {
  size_t on_instances = 0;
  size_t waiting = 0;
  absl::Status found = requests_.CheckInvariants();
  if (found.ok()) found = abandoned_.CheckInvariants();
  if (found.ok()) found = registry_.CheckInvariants();
  if (found.ok()) found = router_side_.CheckInvariants();
  if (found.ok()) found = explanations_.CheckInvariants();
  if (found.ok()) found = parked_.CheckInvariants(requests_);
  if (found.ok()) found = pools_.CheckInvariants(requests_);
  if (found.ok()) found = rolling_.CheckInvariants(requests_, pools_);
  requests_.ForEach([&](const Request& request) {
    if (found.ok()) found = CheckRequest(request);
    for (const Member& member : request.members) on_instances += member.here() ? 1 : 0;
    on_instances += request.decode != InstanceId{} ? 1 : 0;
    waiting += request.state == State::kWaiting ? 1 : 0;
  });
  if (!found.ok()) return found;
  waiting -= placement_.waiting();
  for (const auto& [id, instance] : registry_.instances()) on_instances -= instance.placed.size();
  if (waiting != 0) return absl::InternalError("OrchestratorCore 3: a list holds others");
  if (on_instances != 0) return absl::InternalError("OrchestratorCore 2: an instance holds others");
  if (absl::Status status = CheckPools(); !status.ok()) return status;
  return CheckUnopened();
}

}  // namespace skein::scheduler
