// A plan is told to its members, started, and followed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::SendPlan(Request& request, const std::vector<PlannedChunk>& chunks) {
  ForgetPlan(request);
  parked_.Remove(request);
  request.epoch = Epoch{++last_epoch_};
  Enter(request, State::kAssigning);
  request.unsure = false;
  request.members.clear();
  request.chunks.clear();
  const PlanSequence sequence{++last_sequence_};
  for (const PlannedChunk& chunk : chunks) AddChunk(request, chunk, sequence);
  NoteUnopened(request);
  const bool whole = chunks.size() == 1 && chunks[0].tokens == PromptTokens(*request.spec);
  request.sequence_parallel = !whole || request.members.size() > 1;
  sp_plans_ += request.members.size() > 1 ? 1 : 0;
  PlanExplanation& explained = request.explanation.plans.back();
  explained.epoch = request.epoch;
  for (size_t k = explained.chunks.size(); k < chunks.size(); ++k) {
    explained.chunks.push_back({chunks[k].tokens, chunks[k].instances});
  }
  PlaceWithPlan(request);
  sender_.Assign(request, 0, sequence);
  effects_.push_back(SendPlanUpdate{
      request.spec->id,
      Planned{request.epoch, request.members[0].instance, now_ - request.submitted_us}});
}

// Members keep their places.
void OrchestratorCore::Impl::AddChunk(Request& request, const PlannedChunk& chunk,
                                      PlanSequence sequence) {
  for (const InstanceId instance : chunk.instances) {
    const bool known = std::any_of(request.members.begin(), request.members.end(),
                                   [&](const Member& m) { return m.instance == instance; });
    if (!known) request.members.push_back({.instance = instance});
  }
  request.chunks.push_back({.history = request.PlannedTokens(),
                            .tokens = chunk.tokens,
                            .members = request.members.size(),
                            .sequence = sequence});
  pools_.AddChunk(request, request.chunks.size() - 1);
}

void OrchestratorCore::Impl::On(const AssignReplied& event) {
  Request* request = Find(event.id);
  if (request == nullptr) return;
  const absl::Status& status = event.reply.status;
  if (abandoned_.Is(event.id, event.epoch)) {
    if (!status.ok()) HasLeft(*request, event.instance);
    return;
  }
  Member* member = request->epoch == event.epoch ? request->MemberAt(event.instance) : nullptr;
  if (member == nullptr || member->assigned != event.sequence) return;
  if (status.ok()) return Accepted(*request, *member);
  if (status.code() == absl::StatusCode::kInvalidArgument) return Fail(*request, status);
  member->phase = Member::Phase::kLacksPlan;
  request->tried_prefill.insert(event.instance);
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("prefill instance ", event.instance.value,
                                          " did not take it: ", std::string(status.message())));
  const bool for_all = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                       absl::IsResourceExhausted(status);
  if (!for_all) return Replan(*request, why);
  registry_.Avoid(
      *registry_.Find(event.instance));  // it takes nothing now: no fault of the request
  GiveUpPlan(*request, why);
}

void OrchestratorCore::Impl::Accepted(Request& request, Member& member) {
  member.phase = Member::Phase::kAccepted;
  StartMembers(request);
  if (request.state != State::kAssigning || !request.AllAccepted()) return;
  Enter(request, State::kAssigned);
  if (request.asking.has_value()) EnterLine(request);
}

// A member that started while another lacks the plan would wait for it in vain if this
// orchestrator died: its successor does not know the plan. Members without a Start give it up then
// (PrefillCore).
void OrchestratorCore::Impl::StartMembers(const Request& request) {
  const bool open = request.sequence_parallel && request.state == State::kPlaced;
  if (open && request.AllAccepted()) sender_.StartMembers(request);
}

void OrchestratorCore::Impl::TakeProgress(Request& request, Member& member,
                                          const HeldRequest& held) {
  if (held.chunks_done > member.chunks_done) {
    member.chunks_done = held.chunks_done;
    member.entered_us = -1;
    NoteChunksEnded(request);
  }
  if (held.chunk_running_us < 0) return;
  member.entered_us = std::max<TimeUs>(0, now_ - held.chunk_running_us);
  NoteEntered(request, member);
}

void OrchestratorCore::Impl::NoteEntered(Request& request, const Member& member) {
  const size_t k = request.NextChunkOf(member);
  if (k >= request.chunks.size() || request.chunks[k].ended_us >= 0) return;
  const Request::Entered entered = request.EnteredOf(k);
  const TimeUs started_us = request.chunks[k].started_us;
  if (entered.all) {
    pools_.BeginChunk(&request, k, entered.last_us);
  } else if (started_us >= 0) {
    pools_.BeginChunk(&request, k, std::max(started_us, entered.last_us));
  }
}

// It has committed its part.
void OrchestratorCore::Impl::MemberDone(Request& request, Member& member) {
  member.phase = Member::Phase::kGone;
  if (Instance* instance = registry_.Find(member.instance)) {
    TakeFromInstance(*instance, request.spec->id);
  }
  NoteChunksEnded(request);
  if (!request.HasMembersHere() && request.IsPlanWhole()) {
    NotePrefilled(request);
  }
}

void OrchestratorCore::Impl::NotePrefilled(Request& request) {
  TimeUs& prefilled_us = request.explanation.prefilled_us;
  if (prefilled_us < 0) prefilled_us = now_ - request.submitted_us;
}

void OrchestratorCore::Impl::TakeFromPrefill(Request& request) {
  for (Member& member : request.members) {
    member.phase = Member::Phase::kGone;
    if (Instance* instance = registry_.Find(member.instance)) {
      TakeFromInstance(*instance, request.spec->id);
    }
  }
}

}  // namespace skein::scheduler
