// A plan is told to its members, started, and followed.
#include <algorithm>

#include "absl/strings/string_view.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/plan/tensor_groups.h"

namespace skein::scheduler::orchestrator {

void PrefillFlow::SendPlan(Request& request, const std::vector<PlannedChunk>& chunks, TimeUs now) {
  LeaveParked(request);
  request.epoch = parts_.numbers->NextEpoch();
  parts_.requests->Enter(request, State::kAssigning);
  request.unsure = false;
  request.members.clear();
  request.chunks.clear();
  const PlanSequence sequence = parts_.numbers->NextSequence();
  for (const PlannedChunk& chunk : chunks) AddChunk(request, chunk, sequence, now);
  parts_.decode->BeginPlan(request);
  const bool whole = chunks.size() == 1 && chunks[0].tokens == PromptTokens(*request.spec);
  request.sequence_parallel = !whole || request.members.size() > 1;
  sp_plans_ += request.members.size() > 1 ? 1 : 0;
  PlanExplanation& explained = request.explanation.plans.back();
  explained.epoch = request.epoch;
  for (size_t k = explained.chunks.size(); k < chunks.size(); ++k) {
    explained.chunks.push_back({chunks[k].tokens, chunks[k].instances});
  }
  ExplainShapes(request, 0);
  parts_.decode->PlaceWithPlan(request);
  parts_.sender->Assign(request, 0, sequence);
  parts_.effects->push_back(SendPlanUpdate{
      request.spec->id, PlannedOf(request, *parts_.registry, now - request.submitted_us)});
}

// Members keep their places. Those of one node stand together, so that they may be a tensor group.
void PrefillFlow::AddChunk(Request& request, const PlannedChunk& chunk, PlanSequence sequence,
                           TimeUs now) {
  std::vector<InstanceId> ranks;
  for (const Member& member : request.members) ranks.push_back(member.instance);
  const auto node_of = [this](InstanceId id) {
    const Instance* instance = parts_.registry->Find(id);
    return instance == nullptr ? absl::string_view() : instance->identity.node;
  };
  JoinByNode(chunk.instances, node_of, &ranks);
  for (size_t rank = request.members.size(); rank < ranks.size(); ++rank) {
    request.members.push_back({.instance = ranks[rank]});
  }
  request.chunks.push_back({.history = request.PlannedTokens(),
                            .tokens = chunk.tokens,
                            .members = request.members.size(),
                            .sequence = sequence,
                            .tp = request.AskedTp(request.members.size()).value_or(1)});
  parts_.pools->AddChunk(&request, request.chunks.size() - 1, now);
}

// The planner's estimates stand for the fastest shape of so many instances. Where they cannot run
// it, the chunk and those behind it end later. A plan that was asked for has no estimates.
void PrefillFlow::ExplainShapes(Request& request, size_t first) {
  PlanExplanation& plan = request.explanation.plans.back();
  const bool estimated = plan.ttft_s > 0;
  double before_s = 0;
  for (size_t k = first; k < std::min(plan.chunks.size(), request.chunks.size()); ++k) {
    ChunkExplanation& told = plan.chunks[k];
    const Chunk& chunk = request.chunks[k];
    told.tp = chunk.tp;
    told.instances.clear();
    for (size_t rank = 0; rank < chunk.members; ++rank) {
      told.instances.push_back(request.members[rank].instance);
    }
    if (!estimated) continue;
    const double slower_s = parts_.pools->SlowerSeconds(request, k);
    const double later_s = std::max(0.0, before_s - told.estimated_start_s);
    if (later_s + slower_s == 0) continue;
    told.estimated_start_s += later_s;
    told.estimated_end_s += later_s + slower_s;
    before_s = told.estimated_end_s;
    plan.ttft_s = std::max(plan.ttft_s, before_s);
  }
}

void PrefillFlow::Accepted(Request& request, Member& member, TimeUs now) {
  member.phase = Member::Phase::kAccepted;
  parts_.sender->StartMembers(request);
  if (request.state != State::kAssigning || !request.AllAccepted()) return;
  parts_.requests->Enter(request, State::kAssigned);
  parts_.decode->Assigned(request, now);
}

void PrefillFlow::TakeProgress(Request& request, Member& member, const HeldRequest& held,
                               TimeUs now) {
  if (held.chunks_done > member.chunks_done) {
    member.chunks_done = held.chunks_done;
    member.entered_us = -1;
    NoteChunksEnded(request, now);
  }
  // It has given a computed prompt's blocks back (PrefillCore, "yields"), and computes it again.
  // That time is in no estimate: the chunk has ended.
  if (!request.sequence_parallel) member.chunks_done = held.chunks_done;
  if (held.chunk_running_us < 0) return;
  member.entered_us = std::max<TimeUs>(0, now - held.chunk_running_us);
  NoteEntered(request, member);
}

void PrefillFlow::NoteEntered(Request& request, const Member& member) {
  const size_t k = request.NextChunkOf(member);
  if (k >= request.chunks.size() || request.chunks[k].ended_us >= 0) return;
  const Request::Entered entered = request.EnteredOf(k);
  const TimeUs started_us = request.chunks[k].started_us;
  if (entered.all) {
    parts_.pools->BeginChunk(&request, k, entered.last_us);
  } else if (started_us >= 0) {
    parts_.pools->BeginChunk(&request, k, std::max(started_us, entered.last_us));
  }
}

// It has committed its part.
void PrefillFlow::MemberDone(Request& request, Member& member, TimeUs now) {
  member.phase = Member::Phase::kGone;
  if (Instance* instance = parts_.registry->Find(member.instance)) {
    instance->Take(request.spec->id);
    parked_.NoteRoom(instance->identity.model);
  }
  NoteChunksEnded(request, now);
  if (!request.HasMembersHere() && request.IsPlanWhole()) {
    NotePrefilled(request, now);
  }
}

namespace {

// Of the plan's members; each pair once, the smaller id first.
template <class Use>
void ForEachPair(const Request& request, const Use& use) {
  for (const Member& one : request.members) {
    for (const Member& other : request.members) {
      if (one.instance < other.instance) use(one.instance, other.instance);
    }
  }
}

}  // namespace

void PrefillFlow::NoteRingBroken(const Request& request, TimeUs now) {
  ForEachPair(request, [&](InstanceId a, InstanceId b) { ring_pairs_.Failed(a, b, now); });
}

void PrefillFlow::NotePrefilled(Request& request, TimeUs now) {
  TimeUs& prefilled_us = request.explanation.prefilled_us;
  if (prefilled_us >= 0) return;
  prefilled_us = now - request.submitted_us;
  if (ring_pairs_.remembers_any()) {
    ForEachPair(request, [this](InstanceId a, InstanceId b) { ring_pairs_.Worked(a, b); });
  }
}

void PrefillFlow::TakeFromPrefill(Request& request) {
  for (Member& member : request.members) {
    member.phase = Member::Phase::kGone;
    if (Instance* instance = parts_.registry->Find(member.instance)) {
      instance->Take(request.spec->id);
      parked_.NoteRoom(instance->identity.model);
    }
  }
}

void PrefillFlow::ForgetPlan(Request& request, TimeUs now) {
  if (request.rolling_key != 0) {
    rolling_.Remove(&request, parts_.pools->Known(request.spec->model), now);
    rolled_.insert(request.spec->model);
  }
  TakeFromPrefill(request);
  parts_.pools->DropPlan(request);
  parked_.Remove(request);
}

// All members of its latest chunk have ended it.
void PrefillFlow::NoteChunksEnded(Request& request, TimeUs now) {
  for (size_t k = 0; k < request.chunks.size(); ++k) {
    if (request.chunks[k].ended_us >= 0) continue;
    if (!request.HasEnded(k)) return;
    parts_.pools->EndChunk(&request, k, now);
    if (parked_.HasLine(request.spec->model)) parked_.NoteRoom(request.spec->model);
    const bool last = k + 1 == request.chunks.size();
    if (request.rolling_running && last) {
      rolling_.EndChunk(&request, parts_.pools->Known(request.spec->model), now);
      rolled_.insert(request.spec->model);
    }
  }
}

// A report tells when a chunk of an SP plan began. A plain prompt has one chunk, which is taken to
// begin when nothing is in front of it and its lead has asked for a place or opened the transfer.
void PrefillFlow::NoteStarts(TimeUs now) {
  for (const std::string& model : parts_.pools->TakeMoved()) {
    for (const RequestId id : parts_.pools->TakeReady(model)) {
      Request& request = parts_.requests->At(id);
      if (!request.MayHaveBegun()) continue;
      const auto next = std::find_if(request.chunks.begin(), request.chunks.end(),
                                     [](const Chunk& chunk) { return chunk.ended_us < 0; });
      parts_.pools->BeginChunk(&request, static_cast<size_t>(next - request.chunks.begin()), now);
    }
  }
}

}  // namespace skein::scheduler::orchestrator
