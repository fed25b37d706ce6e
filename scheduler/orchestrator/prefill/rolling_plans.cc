#include "scheduler/orchestrator/prefill/rolling_plans.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {
namespace {

double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }

}  // namespace

void RollingPlans::Add(Request* request, Pool* pool, TimeUs now) {
  request->rolling_key = ++last_key_;
  by_key_[request->spec->model][request->rolling_key] = request->spec->id;
  pool->planner.rolling()->OnArrival(request->rolling_key, PromptTokens(*request->spec),
                                     Seconds(now));
  pool->planner.TuneRolling(now);
}

void RollingPlans::Forget(Request* request) {
  const auto of_model = by_key_.find(request->spec->model);
  of_model->second.erase(request->rolling_key);
  if (of_model->second.empty()) by_key_.erase(of_model);
  request->rolling_key = 0;
  request->rolling_running = false;
}

void RollingPlans::Remove(Request* request, Pool* pool, TimeUs now) {
  if (request->rolling_key == 0) return;
  RollingPlanner* rolling = pool->planner.rolling();
  rolling->OnCancelled(request->rolling_key);
  if (request->rolling_running) rolling->OnChunkFinished(request->rolling_key, Seconds(now));
  Forget(request);
}

void RollingPlans::EndChunk(Request* request, Pool* pool, TimeUs now) {
  request->rolling_running = false;
  const bool more = pool->planner.rolling()->OnChunkFinished(request->rolling_key, Seconds(now));
  if (!more) Forget(request);
}

std::vector<RollingPlans::Start> RollingPlans::Decide(const std::string& model, Pool* pool,
                                                      TimeUs now) {
  RollingPlanner* rolling = pool->planner.rolling();
  for (size_t slot = 0; slot < pool->instances.size(); ++slot) {
    const Instance* instance = pool->instances[slot];
    const bool usable = instance != nullptr && instance->Placeable() && !instance->avoid;
    rolling->SetAbsent(static_cast<int>(slot), !usable);
  }
  std::vector<RollingPlanner::Start> decided;
  rolling->Decide(Seconds(now), &decided);
  std::vector<Start> starts;
  for (RollingPlanner::Start& start : decided) {
    starts.push_back({by_key_.at(model).at(start.request), std::move(start.chunk)});
  }
  return starts;
}

std::vector<RequestId> RollingPlans::QueuedOf(const std::string& model,
                                              const RequestTable& requests) const {
  std::vector<RequestId> queued;
  const auto of_model = by_key_.find(model);
  if (of_model == by_key_.end()) return queued;
  for (const auto& [key, id] : of_model->second) {
    if (requests.At(id).state == State::kQueued) queued.push_back(id);
  }
  return queued;
}

absl::Status RollingPlans::CheckInvariants(const RequestTable& requests,
                                           const PrefillPools& pools) const {
  for (const auto& [model, pool] : pools.all()) {
    if (pool.planner.rolling() == nullptr) continue;
    if (absl::Status status = pool.planner.rolling()->CheckInvariants(); !status.ok()) {
      return absl::InternalError(absl::StrCat("RollingPlans: ", std::string(status.message())));
    }
  }
  for (const auto& [model, keys] : by_key_) {
    for (const auto& [key, id] : keys) {
      const Request* request = requests.Find(id);
      if (request != nullptr && request->rolling_key == key) continue;
      return absl::InternalError(absl::StrCat("RollingPlans: ", ToString(id),
                                              " is listed under a key that is not its own"));
    }
  }
  absl::Status found;
  requests.ForEach([&](const Request& request) {
    if (request.rolling_key == 0 || !found.ok()) return;
    const auto of_model = by_key_.find(request.spec->model);
    if (of_model != by_key_.end()) {
      const auto key = of_model->second.find(request.rolling_key);
      if (key != of_model->second.end() && key->second == request.spec->id) return;
    }
    found = absl::InternalError(
        absl::StrCat("RollingPlans: ", ToString(request.spec->id), " is not listed under its key"));
  });
  return found;
}

}  // namespace skein::scheduler::orchestrator
