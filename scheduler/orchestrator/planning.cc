// Planning of a request: carries out the decisions of PlanChooser and of the rolling planner, and
// parks requests that no instance can take now.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::Plan(Request& request) {
  const std::string& model = request.spec->model;
  if (registry_.Counts(model, Role::kPrefill).serving == 0) return FailUnplannable(request);
  // Those that are parked already come first.
  if (request.state != State::kParked && parked_.HasLine(model)) return Park(request);
  orchestrator::PrefillPools::Pool* pool = pools_.Of(model, requests_);
  orchestrator::PlanChoice choice = chooser_.Choose(request, pools_, pool, now_);
  using Kind = orchestrator::PlanChoice::Kind;
  switch (choice.kind) {
    case Kind::kPark:
      return Park(request);
    case Kind::kFail:
      return Fail(request, choice.failure);
    case Kind::kPlan:
      AddPlan(request, std::move(choice.explanation));
      return SendPlan(request, choice.chunks);
    case Kind::kRoll:
      AddPlan(request, std::move(choice.explanation));
      parked_.Remove(request);
      Enter(request, State::kQueued);
      rolled_.insert(model);
      return rolling_.Add(&request, pool, now_);
  }
}

void OrchestratorCore::Impl::AddPlan(Request& request, PlanExplanation explanation) {
  constexpr size_t kMostPlans = 16;  // that are told of one request: the first, and the latest
  auto& plans = request.explanation.plans;
  if (plans.size() == kMostPlans) plans.erase(plans.begin() + 1);
  explanation.decided_us = now_ - request.submitted_us;
  plans.push_back(std::move(explanation));
}

void OrchestratorCore::Impl::FailUnplannable(Request& request) {
  Fail(request,
       absl::UnavailableError(absl::StrCat("No prefill instance of model '", request.spec->model,
                                           "' is available. Retry.")));
}

void OrchestratorCore::Impl::On(const ReplacePlanningTables& event) {
  if (!plans()) return;
  PlanningConfig planning = pools_.planning();
  planning.tables = event.tables;
  if (CheckPlanning(planning).ok()) pools_.ReplaceTables(event.tables);
}

// An admitted request without a prefill instance waits until its deadline. It is planned when an
// instance reports, has room again or registers: in the order of submission, except that a request
// needing a particular instance (with much memory) does not block the others.
void OrchestratorCore::Impl::Park(Request& request) {
  request.tried_prefill.clear();  // all were tried, or take nothing now
  if (request.state == State::kParked) return;
  Enter(request, State::kParked);
  parked_.Add(request);
}

void OrchestratorCore::Impl::PlanParked() {
  for (const std::string& model : parked_.TakeRoomy()) {
    uint64_t last = 0;
    while (const auto next = parked_.NextAfter(model, last)) {
      const PoolCounts& prefill = registry_.Counts(model, Role::kPrefill);
      if (prefill.serving > 0 && prefill.taking == 0) break;
      last = next->number;
      Plan(requests_.At(next->id));  // parks it again, fails it, or takes it out of the line
    }
  }
  for (const RequestId id : parked_.TakeAdded()) {
    Request* request = Find(id);
    const bool waits = request != nullptr && request->state == State::kParked;
    if (waits) Note(Degraded::kParked, *request);
  }
}

void OrchestratorCore::Impl::TakeFromInstance(Instance& instance, RequestId request) {
  instance.Take(request);
  parked_.NoteRoom(instance.identity.model);
}

// Where nothing came, ended, or was reported, the decision would be the one before: an instance
// reports often enough for what time alone changes.
void OrchestratorCore::Impl::DecideRolling() {
  for (const std::string& model : std::exchange(rolled_, {})) {
    orchestrator::PrefillPools::Pool* pool = pools_.Known(model);
    if (pool == nullptr || pool->planner.rolling() == nullptr) continue;
    if (pool->planner.rolling()->waiting() > 0) DecideRolling(model);
  }
}

void OrchestratorCore::Impl::DecideRolling(const std::string& model) {
  orchestrator::PrefillPools::Pool* pool = pools_.Of(model, requests_);
  if (pool == nullptr) {  // no instance is left, and none may come
    for (const RequestId id : rolling_.QueuedOf(model, requests_)) {
      FailUnplannable(requests_.At(id));
    }
    return;
  }
  for (const auto& start : rolling_.Decide(model, pool, now_)) {
    StartChunk(requests_.At(start.id), *pool, start.chunk);
  }
}

// An instance that computed the chunk before keeps its rank; one that joins is appended.
void OrchestratorCore::Impl::StartChunk(Request& request,
                                        const orchestrator::PrefillPools::Pool& pool,
                                        const ChunkPlan& start) {
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
  if (request.state == State::kQueued) return SendPlan(request, {chunk});
  Join(request, chunk);
}

// New members are announced to the decode instance, where their OpenTransfers wait for it.
void OrchestratorCore::Impl::Join(Request& request, const PlannedChunk& chunk) {
  const std::vector<InstanceId>& instances = chunk.instances;
  const bool all_serve = std::all_of(instances.begin(), instances.end(), [this](InstanceId id) {
    return registry_.Find(id) != nullptr && registry_.Find(id)->Serves();
  });
  if (!all_serve) return Replan(request, absl::UnavailableError("a prefill instance is leaving"));
  const PlanSequence sequence{++last_sequence_};
  const size_t members = request.members.size();
  AddChunk(request, chunk, sequence);
  if (request.state != State::kPlaced) NoteUnopened(request);  // its new members, too
  if (request.decode != InstanceId{} && request.members.size() > members) sender_.Announce(request);
  sender_.Assign(request, request.chunks.size() - 1, sequence);
}

void OrchestratorCore::Impl::LeaveRolling(Request& request) {
  if (request.rolling_key != 0) {
    rolling_.Remove(&request, pools_.Known(request.spec->model), now_);
    rolled_.insert(request.spec->model);
  }
}

// All members of its latest chunk have ended it.
void OrchestratorCore::Impl::NoteChunksEnded(Request& request) {
  for (size_t k = 0; k < request.chunks.size(); ++k) {
    if (request.chunks[k].ended_us >= 0) continue;
    if (!request.HasEnded(k)) return;
    pools_.EndChunk(&request, k, now_);
    moved_.insert(request.spec->model);
    const bool last = k + 1 == request.chunks.size();
    if (request.rolling_running && last) {
      rolling_.EndChunk(&request, pools_.Known(request.spec->model), now_);
      rolled_.insert(request.spec->model);
    }
  }
}

// A report tells when a chunk of an SP plan began; of others it is taken to begin when it can.
void OrchestratorCore::Impl::NoteStarts(const std::string& model) {
  for (const RequestId id : pools_.TakeReady(model)) {
    Request& request = requests_.At(id);
    if (request.state != State::kPlaced) continue;
    const auto next = std::find_if(request.chunks.begin(), request.chunks.end(),
                                   [](const Chunk& chunk) { return chunk.ended_us < 0; });
    pools_.BeginChunk(&request, static_cast<size_t>(next - request.chunks.begin()), now_);
  }
}

void OrchestratorCore::Impl::NoteUnopened(const Request& request) {
  for (const Member& member : request.members) {
    placement_.AddUnopened(member.instance, request.chunks[0].sequence);
  }
}

void OrchestratorCore::Impl::NoteOpened(const Request& request) {
  pools_.RecheckStart(request);
  for (const Member& member : request.members) {
    placement_.RemoveUnopened(member.instance, request.chunks[0].sequence);
  }
  placement_.NoteChange(request.spec->model);
}

void OrchestratorCore::Impl::ForgetPlan(const Request& request) {
  NoteOpened(request);
  pools_.DropPlan(request);
}

absl::Status OrchestratorCore::Impl::CheckUnopened() const {
  std::map<InstanceId, std::set<PlanSequence>> unopened;
  requests_.ForEach([&](const Request& request) {
    if (request.state == State::kPlaced || request.chunks.empty()) return;
    for (const Member& member : request.members) {
      unopened[member.instance].insert(request.chunks[0].sequence);
    }
  });
  if (unopened == placement_.unopened()) return placement_.CheckInvariants();
  return absl::InternalError("OrchestratorCore 9: the plans that have not opened their transfer");
}

}  // namespace skein::scheduler
