// Planning of a request: carries out the decisions of PlanChooser and of the rolling planner, and
// parks requests that no instance can take now.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/orchestrator/requests/violated.h"

namespace skein::scheduler::orchestrator {

void PrefillFlow::NoteArrival(const std::string& model, TimeUs now) {
  PrefillPools::Pool* const pool = parts_.pools->Of(model, *parts_.requests);
  if (pool != nullptr) pool->planner.OnArrival(now);
}

void PrefillFlow::NoteRoom(const std::string& model) {
  parked_.NoteRoom(model);
  rolled_.insert(model);
}

void PrefillFlow::Plan(Request& request, TimeUs now) {
  const std::string& model = request.spec->model;
  if (parts_.registry->Counts(model, Role::kPrefill).serving == 0) return FailUnplannable(request);
  // Those that are parked already come first.
  if (request.state != State::kParked && (parked_.HasLine(model) || PlansLater(model, now))) {
    return Park(request);
  }
  PrefillPools::Pool* pool = parts_.pools->Of(model, *parts_.requests);
  PlanChoice choice = chooser_.Choose(request, *parts_.pools, pool, now);
  using Kind = PlanChoice::Kind;
  switch (choice.kind) {
    case Kind::kPark:
      return Park(request);
    case Kind::kFail:
      return parts_.ends->Fail(request, choice.failure);
    case Kind::kPlan:
      AddPlan(request, std::move(choice.explanation), now);
      return SendPlan(request, choice.chunks, now);
    case Kind::kRoll:
      AddPlan(request, std::move(choice.explanation), now);
      LeaveParked(request);
      parts_.requests->Enter(request, State::kQueued);
      rolled_.insert(model);
      return rolling_.Add(&request, pool, now);
  }
}

void PrefillFlow::AddPlan(Request& request, PlanExplanation explanation, TimeUs now) {
  constexpr size_t kMostPlans = 16;  // that are told of one request: the first, and the latest
  auto& plans = request.explanation.plans;
  if (plans.size() == kMostPlans) plans.erase(plans.begin() + 1);
  explanation.decided_us = now - request.submitted_us;
  plans.push_back(std::move(explanation));
}

void PrefillFlow::FailUnplannable(Request& request) {
  parts_.ends->Fail(
      request, absl::UnavailableError(absl::StrCat("No prefill instance of model '",
                                                   request.spec->model, "' is available. Retry.")));
}

// An admitted request without a prefill instance waits until its deadline. It is planned when an
// instance reports, has room again or registers: by tenant and then in the order of submission,
// except that a request needing a particular instance (with much memory) does not block those of
// another kind (parked_requests.h).
void PrefillFlow::Park(Request& request) {
  request.tried_prefill.clear();  // all were tried, or take nothing now
  if (request.state == State::kParked) return;
  parts_.requests->Enter(request, State::kParked);
  parked_.Add(request);
}

void PrefillFlow::LeaveParked(Request& request) {
  const int64_t tokens = request.plan_charged ? 0 : PromptTokens(*request.spec);
  if (parked_.Serve(request, tokens)) request.plan_charged = true;
}

bool PrefillFlow::PlansLater(const std::string& model, TimeUs now) {
  if (!parts_.pools->plans() || parts_.requests->TenantsOf(model).known() < 2) return false;
  PrefillPools::Pool* const pool = parts_.pools->Of(model, *parts_.requests);
  if (pool == nullptr) return false;
  if (const RollingPlanner* rolling = pool->planner.rolling(); rolling != nullptr) {
    return rolling->waiting() >= static_cast<int64_t>(pool->instances.size());
  }
  const PoolQueue queue = parts_.pools->QueueOf(model, pool, /*tried=*/{}, now);
  const auto least = std::min_element(queue.soonest.begin(), queue.soonest.end());
  const double ahead_s = static_cast<double>(plans_ahead_us_) * 1e-6;
  return least != queue.soonest.end() && least->first > ahead_s;
}

void PrefillFlow::PlanParked(TimeUs now) {
  for (const std::string& model : parked_.TakeRoomy()) {
    ParkedRequests::Round round;
    while (const auto next = parked_.Next(model, &round)) {
      const PoolCounts& prefill = parts_.registry->Counts(model, Role::kPrefill);
      if (prefill.serving > 0 && (prefill.taking == 0 || PlansLater(model, now))) break;
      SKEIN_LOOKED(1);
      Plan(parts_.requests->At(next->id), now);  // parks it again, fails it, or sends its plan
      const Request* const tried = parts_.requests->Find(next->id);
      const bool parked = tried != nullptr && tried->state == State::kParked;
      if (parked) parked_.NoteFailed(model, *next, &round);
    }
  }
  for (const RequestId id : parked_.TakeAdded()) {
    Request* request = parts_.requests->Find(id);
    const bool waits = request != nullptr && request->state == State::kParked;
    if (waits) parts_.explanations->Note(Degraded::kParked, request);
  }
}

// Where nothing came, ended, or was reported, the decision would be the one before: an instance
// reports often enough for what time alone changes.
void PrefillFlow::DecideRolling(TimeUs now) {
  for (const std::string& model : std::exchange(rolled_, {})) {
    PrefillPools::Pool* pool = parts_.pools->Known(model);
    if (pool == nullptr || pool->planner.rolling() == nullptr) continue;
    if (pool->planner.rolling()->waiting() > 0) DecideRolling(model, now);
  }
}

void PrefillFlow::DecideRolling(const std::string& model, TimeUs now) {
  PrefillPools::Pool* pool = parts_.pools->Of(model, *parts_.requests);
  if (pool == nullptr) {  // no instance is left, and none may come
    for (const RequestId id : rolling_.QueuedOf(model, *parts_.requests)) {
      FailUnplannable(parts_.requests->At(id));
    }
    return;
  }
  for (const auto& start : rolling_.Decide(model, pool, now)) {
    StartChunk(parts_.requests->At(start.id), *pool, start.chunk, now);
    if (parked_.HasLine(model)) parked_.NoteRoom(model);  // one waits less at the planner
  }
}

// An instance that computed the chunk before keeps its rank; one that joins is appended.
void PrefillFlow::StartChunk(Request& request, const PrefillPools::Pool& pool,
                             const ChunkPlan& start, TimeUs now) {
  PlannedChunk chunk;
  chunk.tokens = start.tokens;
  for (const Member& member : request.members) chunk.instances.push_back(member.instance);
  for (const int slot : start.instances) {
    const InstanceId instance = pool.IdAt(static_cast<size_t>(slot));
    if (std::count(chunk.instances.begin(), chunk.instances.end(), instance) == 0) {
      chunk.instances.push_back(instance);
    }
  }
  PlanExplanation& explained = request.explanation.plans.back();
  const double decided_s = static_cast<double>(request.submitted_us + explained.decided_us) * 1e-6;
  explained.chunks.push_back(
      {chunk.tokens, chunk.instances, start.start_s - decided_s, start.end_s - decided_s});
  explained.ttft_s = start.end_s - decided_s;
  request.rolling_running = true;
  if (request.state == State::kQueued) return SendPlan(request, {chunk}, now);
  Join(request, chunk, now);
}

// New members are announced to the decode instance, where their OpenTransfers wait for it.
void PrefillFlow::Join(Request& request, const PlannedChunk& chunk, TimeUs now) {
  const std::vector<InstanceId>& instances = chunk.instances;
  const bool all_serve = std::all_of(instances.begin(), instances.end(), [this](InstanceId id) {
    return parts_.registry->Find(id) != nullptr && parts_.registry->Find(id)->Serves();
  });
  if (!all_serve) {
    return parts_.ends->Replan(request, absl::UnavailableError("a prefill instance is leaving"));
  }
  const PlanSequence sequence = parts_.numbers->NextSequence();
  const size_t members = request.members.size();
  AddChunk(request, chunk, sequence, now);
  ExplainShapes(request, request.chunks.size() - 1);
  if (request.state != State::kPlaced) parts_.decode->BeginPlan(request);  // its new members, too
  if (request.decode != InstanceId{} && request.members.size() > members)
    parts_.sender->Announce(request);
  parts_.sender->Assign(request, request.chunks.size() - 1, sequence);
}

absl::Status PrefillFlow::CheckPlan(const Request& request) const {
  const RequestId id = request.spec->id;
  const bool nowhere = request.state == State::kReplanning || request.state == State::kParked ||
                       request.state == State::kQueued || request.shares_prompt || request.in_group;
  if (nowhere != request.members.empty() || nowhere != request.chunks.empty()) {
    return Violated(7, id, "has instances without a plan, or a plan without instances");
  }
  if (nowhere) return absl::OkStatus();
  int64_t tokens = 0;
  size_t members = 1;
  for (const Chunk& chunk : request.chunks) {
    if (chunk.history != tokens || chunk.tokens < 1) {
      return Violated(7, id, "has a gap between its chunks");
    }
    if (chunk.members < members || chunk.members > request.members.size()) {
      return Violated(7, id, "has a chunk with fewer members than the one before");
    }
    if (!std::has_single_bit(static_cast<unsigned>(chunk.tp)) ||
        chunk.members % static_cast<size_t>(chunk.tp) != 0) {
      return Violated(7, id, "has a chunk whose tp is no power of two that divides its members");
    }
    members = chunk.members;
    tokens += chunk.tokens;
  }
  if (members != request.members.size()) return Violated(7, id, "has a member without a chunk");
  if (tokens > PromptTokens(*request.spec)) {
    return Violated(7, id, "has chunks of more tokens than its prompt");
  }
  const bool to_come = tokens < PromptTokens(*request.spec);
  if (to_come && request.rolling_key == 0) {
    return Violated(8, id, "has tokens without a chunk and is unknown to the rolling planner");
  }
  return absl::OkStatus();
}

absl::Status PrefillFlow::CheckInvariants() const {
  absl::Status found = parked_.CheckInvariants(*parts_.requests);
  if (found.ok()) found = parts_.pools->CheckInvariants(*parts_.requests);
  if (found.ok()) found = chooser_.CheckInvariants();
  if (found.ok()) found = ring_pairs_.CheckInvariants();
  if (found.ok()) found = rolling_.CheckInvariants(*parts_.requests, *parts_.pools);
  parts_.requests->ForEach([&](const Request& request) {
    if (found.ok()) found = CheckPlan(request);
  });
  return found;
}

}  // namespace skein::scheduler::orchestrator
