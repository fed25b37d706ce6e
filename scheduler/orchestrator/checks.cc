// What OrchestratorCore shows of itself: snapshot, deadlines, invariants.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

TimeUs OrchestratorCore::Impl::NextDeadline() const {
  const TimeUs routers_us = registry_.listening().NextTick(routers_.NextLeaseEnd());
  const TimeUs early_us = early_.empty() ? kNever : settled_us_;
  return std::min({registry_.NextTick(), routers_us, timers_us_, early_us});
}

void OrchestratorCore::Impl::NoteTimes(Request& request) {
  if (request.explanation.plans.empty()) return;
  PlanExplanation& plan = request.explanation.plans.back();
  const TimeUs decided_us = request.submitted_us + plan.decided_us;
  const size_t chunks = std::min(plan.chunks.size(), request.chunks.size());
  for (size_t k = 0; k < chunks; ++k) {
    const Chunk& chunk = request.chunks[k];
    const auto since = [&](TimeUs at) {
      return at < 0 ? -1 : std::max<TimeUs>(0, at - decided_us);
    };
    plan.chunks[k].started_us = since(chunk.started_us);
    plan.chunks[k].ended_us = since(chunk.ended_us);
  }
}

Explanation OrchestratorCore::Impl::ExplanationOf(const Request& request, TimeUs now) const {
  constexpr const char* kNames[] = {"waiting for its instances",  // kQueued, and so on
                                    "being assigned",
                                    "queued at its prefill instances",
                                    "waiting for decode room",
                                    "reserving decode blocks",
                                    "prefilling",
                                    "being replanned",
                                    "parked: no prefill instance takes it now"};
  Request copy = request;
  NoteTimes(copy);
  copy.explanation.age_us = now - request.submitted_us;
  copy.explanation.state = kNames[static_cast<size_t>(request.state)];
  const bool decoding = request.state == State::kPlaced && request.explanation.prefilled_us >= 0;
  if (decoding) copy.explanation.state = "decoding";
  return copy.explanation;
}

std::vector<Explanation> OrchestratorCore::Impl::Explain(const std::string& name,
                                                         TimeUs now) const {
  constexpr size_t kMost = 16;
  std::vector<Explanation> found;
  for (const auto& [id, request] : requests_) {
    if (found.size() == kMost) break;
    if (request.explanation.Answers(name)) found.push_back(ExplanationOf(request, now));
  }
  finished_.Find(name, now, kMost, &found);
  return found;
}

// Only what is shown is copied: there may be thousands.
std::vector<Explanation> OrchestratorCore::Impl::List(RequestOrder order, size_t limit,
                                                      TimeUs now) const {
  struct Row {
    TimeUs key_us = 0;  // the greatest come first
    const Request* alive = nullptr;
    const Explanation* ended = nullptr;
    TimeUs submitted_us = 0;
  };
  const bool recent = order == RequestOrder::kRecent;
  std::vector<Row> rows;
  for (const auto& [id, request] : requests_) {
    const TimeUs at_us = request.submitted_us;
    rows.push_back({recent ? at_us : now - at_us, &request, nullptr, at_us});
  }
  finished_.ForEach([&](TimeUs submitted_us, const Explanation& one) {
    rows.push_back({recent ? submitted_us : one.ended_us, nullptr, &one, submitted_us});
  });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.key_us > b.key_us; });
  std::vector<Explanation> list;
  for (const Row& row : rows) {
    if (list.size() == limit) break;
    list.push_back(row.alive != nullptr ? ExplanationOf(*row.alive, now) : *row.ended);
    list.back().age_us = now - row.submitted_us;
    list.back().plans.clear();
  }
  return list;
}

std::string_view OrchestratorCore::Impl::StateOf(RequestId id) const {
  static constexpr std::string_view kNames[kStates] = {
      "queued", "assigning", "assigned", "waiting", "reserving", "placed", "replanning", "parked"};
  const auto it = requests_.find(id);
  return it == requests_.end() ? "" : kNames[static_cast<size_t>(it->second.state)];
}

OrchestratorSnapshot OrchestratorCore::Impl::Totals() const {
  OrchestratorSnapshot totals{
      .instances = {},
      .routers = {},
      .gone = {},
      .models = {registry_.models_seen().begin(), registry_.models_seen().end()},
      .prefill_instances = registry_.Count(Role::kPrefill),
      .decode_instances = registry_.Count(Role::kDecode),
      .planning = CountIn(State::kQueued) + CountIn(State::kReplanning) +
                  static_cast<int64_t>(early_.size()),
      .parked = CountIn(State::kParked),
      .assigning = CountIn(State::kAssigning),
      .assigned = CountIn(State::kAssigned),
      .waiting = CountIn(State::kWaiting),
      .reserving = CountIn(State::kReserving),
      .placed = CountIn(State::kPlaced),
      .submitted = submitted_,
      .failed = failed_,
      .refused = refused_,
      .lost = lost_,
      .spanning_plans = spanning_plans_,
      .replans = degraded_[static_cast<size_t>(Degraded::kReplanned)],
      .degraded = degraded_,
      .plans = finished_.totals(),
      .last_epoch = Epoch{last_epoch_},
      .generation = generation_};
  for (const auto& [of, count] : totals.lost) totals.instances_lost += count;
  for (const std::string& model : totals.models) {
    totals.plans.try_emplace(model);
    totals.lost.try_emplace({model, Role::kPrefill});
    totals.lost.try_emplace({model, Role::kDecode});
  }
  return totals;
}

OrchestratorSnapshot OrchestratorCore::Impl::Snapshot(TimeUs now) const {
  OrchestratorSnapshot snapshot = Totals();
  snapshot.gone = gone_.Latest(now);
  std::map<InstanceId, double> queue_s;  // foreseen
  for (const auto& [model, pool] : pools_) {
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
      const auto foreseen = queue_s.find(id);
      status.queue_seconds =
          foreseen == queue_s.end() ? QueueSeconds(PrefillCandidateOf(instance)) : foreseen->second;
    } else {
      const DecodeCandidate candidate = DecodeCandidateOf(instance);
      status.freeness = Freeness(candidate);
      status.virtual_blocks = candidate.unreported_blocks;
    }
    snapshot.instances.push_back(std::move(status));
  }
  for (const auto& [id, router] : routers_.all()) {
    snapshot.routers.push_back(
        {router.identity, router.load, now - router.heard_us, router.draining(), router.drained()});
  }
  for (const auto& [model, line] : waiting_) {  // the first in line asked first
    if (line.empty()) continue;
    const Request& oldest = requests_.at(line.begin()->second);
    snapshot.oldest_wait_us = std::max(snapshot.oldest_wait_us, now - oldest.waiting_since_us);
  }
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
    if (member.here) places.push_back(member.instance);
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
  const bool decodes = request.state == State::kReserving || request.state == State::kPlaced;
  if (decodes != (request.decode != InstanceId{})) return Violated(2, id, "has no decode place");
  if (request.state == State::kWaiting) {
    const auto line = waiting_.find(request.spec->model);
    if (line == waiting_.end() || line->second.count(request.waiting_number) == 0) {
      return Violated(3, id, "waits in no list");
    }
  }
  if (request.epoch.value > last_epoch_) return Violated(4, id, "has an epoch of the future");
  if (NextTimer(request) < timers_us_) return Violated(6, id, "is overslept");
  return CheckPlan(request);
}

absl::Status OrchestratorCore::Impl::CheckPlan(const Request& request) const {
  const RequestId id = request.spec->id;
  const bool replanning = request.state == State::kReplanning;
  if (replanning != (replanning_.count(id) > 0)) return Violated(7, id, "is replanning or not");
  if (replanning && (request.leaving.empty() || request.left_epoch >= request.epoch)) {
    return Violated(7, id, "waits for nobody");
  }
  const bool parked = request.state == State::kParked;
  const auto line = parked_.find(request.spec->model);
  const bool in_line = line != parked_.end() && line->second.count(request.number) > 0;
  if (parked != in_line) return Violated(10, id, "is parked or not");
  const bool nowhere = replanning || parked || request.state == State::kQueued;
  if (nowhere != request.members.empty() || nowhere != request.chunks.empty()) {
    return Violated(7, id, "is on an instance without a plan, or the reverse");
  }
  if (request.rolling_key != 0) {
    const auto key = rolling_keys_.find(request.rolling_key);
    if (key == rolling_keys_.end() || key->second != id) return Violated(8, id, "has another key");
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

absl::Status OrchestratorCore::Impl::CheckRolling() const {
  for (const auto& [model, pool] : pools_) {
    if (pool.planner.rolling() == nullptr) continue;
    if (absl::Status status = pool.planner.rolling()->CheckInvariants(); !status.ok()) {
      return absl::InternalError(
          absl::StrCat("OrchestratorCore 8: rolling ", std::string(status.message())));
    }
  }
  for (const auto& [key, id] : rolling_keys_) {
    const auto request = requests_.find(id);
    if (request == requests_.end() || request->second.rolling_key != key) {
      return Violated(8, id, "is known to the planner alone");
    }
  }
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
  size_t parked = 0;
  size_t alive = requests_.size();
  std::array<int64_t, kStates> in_state = {};
  for (const auto& [id, request] : requests_) {
    if (absl::Status status = CheckRequest(request); !status.ok()) return status;
    for (const Member& member : request.members) on_instances += member.here ? 1 : 0;
    on_instances += request.decode != InstanceId{} ? 1 : 0;
    waiting += request.state == State::kWaiting ? 1 : 0;
    parked += request.state == State::kParked ? 1 : 0;
    ++in_state[static_cast<size_t>(request.state)];
  }
  if (in_state != in_state_) return absl::InternalError("OrchestratorCore 10: states miscounted");
  for (const auto& [model, line] : waiting_) waiting -= line.size();
  for (const auto& [model, line] : parked_) parked -= line.size();
  for (const auto& [model, count] : alive_) alive -= static_cast<size_t>(count);
  for (const auto& [id, instance] : registry_.instances()) on_instances -= instance.placed.size();
  if (waiting != 0) return absl::InternalError("OrchestratorCore 3: a list holds others");
  if (parked != 0) return absl::InternalError("OrchestratorCore 10: a line holds others");
  if (alive != 0) return absl::InternalError("OrchestratorCore 10: alive requests are miscounted");
  if (on_instances != 0) return absl::InternalError("OrchestratorCore 2: an instance holds others");
  if (absl::Status status = CheckPools(); !status.ok()) return status;
  if (absl::Status status = CheckForeseen(); !status.ok()) return status;
  return CheckRolling();
}

}  // namespace skein::scheduler
