// The policy rolling: what waits is planned by the rolling planner, chunk by chunk.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {
namespace {

double Seconds(TimeUs now) { return static_cast<double>(now) * 1e-6; }

}  // namespace

void OrchestratorCore::Impl::Enrol(Request& request, PoolPlanner& pool, const PoolQueue& queue) {
  Unpark(request);
  Enter(request, State::kQueued);
  request.rolling_key = ++last_rolling_key_;
  rolling_keys_[request.rolling_key] = request.spec->id;
  PlanExplanation& explained = Explained(request, &pool, &queue);
  explained.how = "rolling: each chunk is decided when its instances are free";
  explained.alternatives = pool.Alternatives(queue.queue_s, PromptTokens(*request.spec),
                                             /*improvement_rate=*/0, nullptr);
  pool.rolling()->OnArrival(request.rolling_key, PromptTokens(*request.spec), Seconds(now_));
  pool.TuneRolling(now_);
}

void OrchestratorCore::Impl::DecideRolling() {
  for (auto& [model, pool] : pools_) {
    if (pool.planner.rolling() != nullptr && pool.planner.rolling()->waiting() > 0) {
      DecideRolling(model, pool.planner);
    }
  }
}

void OrchestratorCore::Impl::DecideRolling(const std::string& model, PoolPlanner& pool) {
  if (PoolOf(model) == nullptr) {  // nobody is left, and nobody knows whether someone comes
    std::vector<RequestId> queued;
    for (const auto& [key, id] : rolling_keys_) {
      const Request& request = requests_.at(id);
      if (request.state == State::kQueued && request.spec->model == model) queued.push_back(id);
    }
    for (const RequestId id : queued) FailUnplannable(requests_.at(id));
    return;
  }
  const std::vector<InstanceId>& slots = pool.layout().slots;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const Instance* instance = registry_.Find(slots[slot]);
    const bool usable = instance != nullptr && instance->Placeable() && !instance->avoid;
    pool.rolling()->SetAbsent(static_cast<int>(slot), !usable);
  }
  std::vector<RollingPlanner::Start> starts;
  pool.rolling()->Decide(Seconds(now_), &starts);
  for (const RollingPlanner::Start& start : starts) {
    StartChunk(requests_.at(rolling_keys_.at(start.request)), pool, start);
  }
}

// Who computed the chunk before keeps its rank; who joins is appended.
void OrchestratorCore::Impl::StartChunk(Request& request, PoolPlanner& pool,
                                        const RollingPlanner::Start& start) {
  PlannedChunk chunk;
  chunk.tokens = start.chunk.tokens;
  for (const Member& member : request.members) chunk.instances.push_back(member.instance);
  for (const int slot : start.chunk.instances) {
    const InstanceId instance = pool.layout().slots[static_cast<size_t>(slot)];
    if (std::count(chunk.instances.begin(), chunk.instances.end(), instance) == 0) {
      chunk.instances.push_back(instance);
    }
  }
  PlanExplanation& explained = request.explanation.plans.back();
  const double decided_s = Seconds(request.submitted_us + explained.decided_us);
  explained.chunks.push_back({chunk.tokens, chunk.instances, start.chunk.start_s - decided_s,
                              start.chunk.end_s - decided_s});
  explained.ttft_s = start.chunk.end_s - decided_s;
  request.rolling_running = true;
  if (request.state == State::kQueued) return SendPlan(request, {chunk});
  Join(request, chunk);
}

// New members are named at the decode instance: their Grants wait there for that.
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
  if (request.decode != InstanceId{} && request.members.size() > members) Announce(request);
  SendAssigns(request, request.chunks.size() - 1, sequence);
}

void OrchestratorCore::Impl::LeaveRolling(Request& request) {
  if (request.rolling_key == 0) return;
  RollingPlanner* rolling = pools_.at(request.spec->model).planner.rolling();
  rolling->OnCancelled(request.rolling_key);
  if (request.rolling_running) rolling->OnChunkFinished(request.rolling_key, Seconds(now_));
  rolling_keys_.erase(request.rolling_key);
  request.rolling_key = 0;
  request.rolling_running = false;
}

// All members of its latest chunk have ended it.
void OrchestratorCore::Impl::NoteChunksEnded(Request& request) {
  for (size_t k = 0; k < request.chunks.size(); ++k) {
    Chunk& chunk = request.chunks[k];
    if (chunk.ended_us >= 0) continue;
    for (size_t i = 0; i < chunk.members; ++i) {
      const Member& member = request.members[i];
      if (member.here && member.chunks_done <= k) return;
    }
    NoteEnded(request, chunk);
    if (!request.rolling_running || k + 1 < request.chunks.size()) continue;
    request.rolling_running = false;
    RollingPlanner* rolling = pools_.at(request.spec->model).planner.rolling();
    if (rolling->OnChunkFinished(request.rolling_key, Seconds(now_))) continue;
    rolling_keys_.erase(request.rolling_key);
    request.rolling_key = 0;
  }
}

}  // namespace skein::scheduler
