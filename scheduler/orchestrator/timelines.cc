// What is remembered of all requests together, so that no decision looks at each of them: the
// chunks that instances are foreseen to compute, and the plans that have not opened their transfer.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

Timeline* OrchestratorCore::Impl::TimelineOf(const std::string& model) {
  const auto pool = pools_.find(model);
  return pool == pools_.end() ? nullptr : &pool->second.timeline;
}

TimelineChunk OrchestratorCore::Impl::ForeseenChunk(const Pool& pool, const Request& request,
                                                    size_t index) const {
  const Chunk& chunk = request.chunks[index];
  TimelineChunk foreseen{.key = {chunk.sequence, index},
                         .request = request.spec->id,
                         .plan = request.epoch,
                         .slots = {}};
  for (size_t i = 0; i < chunk.members; ++i) {
    const auto slot = pool.slot_of.find(request.members[i].instance);
    if (slot != pool.slot_of.end()) foreseen.slots.push_back(slot->second);
  }
  const auto sp = static_cast<int>(chunk.members);
  foreseen.seconds = config_.planning->latency.Seconds(sp, chunk.history, chunk.tokens);
  if (chunk.started_us >= 0) foreseen.running_since_us = chunk.started_us;
  return foreseen;
}

std::vector<TimelineChunk> OrchestratorCore::Impl::ChunksToCome(const Pool& pool,
                                                                const std::string& model) const {
  std::vector<TimelineChunk> chunks;
  for (const auto& [id, request] : requests_) {
    if (request.spec->model != model) continue;
    for (size_t k = 0; k < request.chunks.size(); ++k) {
      if (request.chunks[k].ended_us < 0) chunks.push_back(ForeseenChunk(pool, request, k));
    }
  }
  std::sort(chunks.begin(), chunks.end(),
            [](const TimelineChunk& a, const TimelineChunk& b) { return a.key < b.key; });
  return chunks;
}

void OrchestratorCore::Impl::LayOutTimeline(Pool& pool, const std::string& model) {
  const std::vector<InstanceId>& slots = pool.planner.layout().slots;
  pool.slot_of.clear();
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    pool.slot_of[slots[slot]] = static_cast<int>(slot);
  }
  pool.timeline = Timeline(slots.size());
  for (TimelineChunk& chunk : ChunksToCome(pool, model)) pool.timeline.Add(std::move(chunk));
}

void OrchestratorCore::Impl::Foresee(const Request& request, size_t chunk) {
  const auto pool = pools_.find(request.spec->model);
  if (pool == pools_.end()) return;
  pool->second.timeline.Add(ForeseenChunk(pool->second, request, chunk));
}

void OrchestratorCore::Impl::NoteBegun(Request& request, Chunk& chunk, TimeUs since_us) {
  chunk.started_us = since_us;
  const auto index = static_cast<size_t>(&chunk - request.chunks.data());
  if (Timeline* timeline = TimelineOf(request.spec->model)) {
    timeline->Begin({chunk.sequence, index}, since_us);
  }
}

void OrchestratorCore::Impl::NoteEnded(Request& request, Chunk& chunk) {
  chunk.ended_us = now_;
  const auto index = static_cast<size_t>(&chunk - request.chunks.data());
  if (Timeline* timeline = TimelineOf(request.spec->model)) {
    timeline->Remove({chunk.sequence, index});
  }
  moved_.insert(request.spec->model);
}

// A report tells when a chunk of a spanning plan began; of others it is taken to begin when it can.
void OrchestratorCore::Impl::NoteStarts(const std::string& model) {
  Timeline* timeline = TimelineOf(model);
  if (timeline == nullptr) return;
  for (const RequestId id : timeline->Ready()) {
    Request& request = requests_.at(id);
    if (request.state != State::kPlaced) continue;
    const auto next = std::find_if(request.chunks.begin(), request.chunks.end(),
                                   [](const Chunk& chunk) { return chunk.ended_us < 0; });
    NoteBegun(request, *next, now_);
  }
}

void OrchestratorCore::Impl::NoteUnopened(const Request& request) {
  for (const Member& member : request.members) {
    placement_.AddUnopened(member.instance, request.chunks[0].sequence);
  }
}

void OrchestratorCore::Impl::NoteOpened(const Request& request) {
  for (const Member& member : request.members) {
    placement_.RemoveUnopened(member.instance, request.chunks[0].sequence);
  }
  placement_.NoteChange(request.spec->model);
}

void OrchestratorCore::Impl::ForgetPlan(const Request& request) {
  NoteOpened(request);
  if (Timeline* timeline = TimelineOf(request.spec->model)) timeline->Drop(request.epoch);
}

absl::Status OrchestratorCore::Impl::CheckForeseen() const {
  const auto violated = [](const std::string& what) {
    return absl::InternalError(absl::StrCat("OrchestratorCore 9: ", what));
  };
  for (const auto& [model, pool] : pools_) {
    if (pool.timeline.Chunks() != ChunksToCome(pool, model)) {
      return violated("the timeline of model " + model);
    }
  }
  for (const auto& [id, instance] : registry_.instances()) {
    if (absl::Status status = instance.CheckUnreported(); !status.ok()) {
      return violated(std::string(status.message()));
    }
  }
  std::map<InstanceId, std::set<PlanSequence>> unopened;
  for (const auto& [id, request] : requests_) {
    if (request.state == State::kPlaced || request.chunks.empty()) continue;
    for (const Member& member : request.members) {
      unopened[member.instance].insert(request.chunks[0].sequence);
    }
  }
  if (unopened != placement_.unopened()) return violated("the plans that have not opened");
  return placement_.CheckInvariants();
}

}  // namespace skein::scheduler
