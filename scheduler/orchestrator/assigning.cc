// A plan is told to its members, started, and followed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

OrchestratorCore::Impl::Member* OrchestratorCore::Impl::MemberAt(Request& request,
                                                                 InstanceId instance) {
  for (Member& member : request.members) {
    if (member.instance == instance && member.here) return &member;
  }
  return nullptr;
}

bool OrchestratorCore::Impl::HasMembersHere(const Request& request) {
  return std::any_of(request.members.begin(), request.members.end(),
                     [](const Member& member) { return member.here; });
}

int64_t OrchestratorCore::Impl::PlannedTokens(const Request& request) {
  return request.chunks.empty() ? 0 : request.chunks.back().history + request.chunks.back().tokens;
}

void OrchestratorCore::Impl::SendPlan(Request& request, const std::vector<PlannedChunk>& chunks) {
  ForgetPlan(request);
  Unpark(request);
  request.epoch = Epoch{++last_epoch_};
  Enter(request, State::kAssigning);
  request.unsure = false;
  request.members.clear();
  request.chunks.clear();
  const PlanSequence sequence{++last_sequence_};
  for (const PlannedChunk& chunk : chunks) AddChunk(request, chunk, sequence);
  NoteUnplaced(request);
  const bool whole = chunks.size() == 1 && chunks[0].tokens == PromptTokens(*request.spec);
  request.spanning = !whole || request.members.size() > 1;
  spanning_plans_ += request.members.size() > 1 ? 1 : 0;
  PlanExplanation& explained = request.explanation.plans.back();
  explained.epoch = request.epoch;
  for (size_t k = explained.chunks.size(); k < chunks.size(); ++k) {
    explained.chunks.push_back({chunks[k].tokens, chunks[k].instances});
  }
  request.spanning ? SendAssigns(request, 0, sequence) : SendPlainAssign(request, sequence);
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
  request.chunks.push_back({.history = PlannedTokens(request),
                            .tokens = chunk.tokens,
                            .members = request.members.size(),
                            .sequence = sequence});
  Foresee(request, request.chunks.size() - 1);
}

void OrchestratorCore::Impl::SendPlainAssign(Request& request, PlanSequence sequence) {
  const InstanceId to = request.members[0].instance;
  Instance& instance = *registry_.Find(to);
  instance.Place(request.spec, request.epoch);
  request.members[0].assigned = sequence;
  Send(CallAssign{to,
                  {.spec = request.spec,
                   .epoch = request.epoch,
                   .sequence = sequence,
                   .suspect = IsSuspect(request)}});
}

void OrchestratorCore::Impl::SendAssigns(Request& request, size_t from_chunk,
                                         PlanSequence sequence) {
  AssignRequest assign{request.spec, request.epoch, sequence};
  assign.from_chunk = static_cast<uint32_t>(from_chunk);
  assign.suspect = IsSuspect(request);
  for (const Member& member : request.members) {
    const WorkerIdentity& identity = registry_.Find(member.instance)->identity;
    assign.members.push_back(
        {member.instance, identity.incarnation, identity.endpoint, identity.comm_address});
  }
  for (const Chunk& chunk : request.chunks) {
    PlanChunk& out = assign.chunks.emplace_back();
    out.tokens = chunk.tokens;
    for (uint32_t i = 0; i < chunk.members; ++i) out.members.push_back(i);
  }
  for (Member& member : request.members) {
    Instance& instance = *registry_.Find(member.instance);
    const bool joins = member.assigned == PlanSequence{};
    assign.placed.reset();
    if (request.state == State::kPlaced && joins) assign.placed = PlacedOf(request);
    member.assigned = sequence;
    member.accepted = false;
    instance.Place(request.spec, request.epoch);
    Send(CallAssign{member.instance, assign});
  }
}

void OrchestratorCore::Impl::On(const AssignReplied& event) {
  Request* request = Find(event.id);
  if (request == nullptr) return;
  const absl::Status& status = event.reply.status;
  if (request->state == State::kReplanning && request->left_epoch == event.epoch) {
    if (!status.ok()) HasLeft(*request, event.instance);
    return;
  }
  Member* member = request->epoch == event.epoch ? MemberAt(*request, event.instance) : nullptr;
  if (member == nullptr || member->assigned != event.sequence) return;
  if (status.ok()) return Accepted(*request, *member);
  if (status.code() == absl::StatusCode::kInvalidArgument) return Fail(*request, status);
  member->lacks_plan = true;
  request->tried_prefill.insert(event.instance);
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("prefill instance ", event.instance.value,
                                          " did not take it: ", std::string(status.message())));
  const bool for_all = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                       absl::IsResourceExhausted(status);
  if (!for_all) return Replan(*request, why);
  registry_.Find(event.instance)->avoid = true;  // it takes nothing now: no fault of the request
  GiveUpPlan(*request, why);
}

void OrchestratorCore::Impl::Accepted(Request& request, Member& member) {
  member.accepted = true;
  if (request.state != State::kAssigning) return;
  const bool all = std::all_of(request.members.begin(), request.members.end(),
                               [](const Member& m) { return m.accepted; });
  if (!all) return;
  Enter(request, State::kAssigned);
  if (request.begin_call.has_value()) BackToWaiting(request);
}

void OrchestratorCore::Impl::On(const BeginPrefillCalled& event) {
  Request* request = Find(event.request.id);
  Member* lead = nullptr;
  if (request != nullptr && request->epoch == event.request.epoch && !request->members.empty() &&
      request->members[0].instance == event.request.instance) {
    lead = MemberAt(*request, event.request.instance);
  }
  if (lead == nullptr) {
    absl::Status status = request == nullptr ? absl::NotFoundError("unknown request")
                                             : absl::FailedPreconditionError("epoch: stale");
    effects_.push_back(AnswerBeginPrefill{
        event.call, event.request.id, event.request.epoch, {std::move(status), {}}});
    return;
  }
  request->begin_call = event.call;
  request->begin_deadline_us = now_ + config_.begin_wait_us;
  Arm(request->begin_deadline_us);
  if (request->state == State::kPlaced) {
    AnswerBegin(*request, absl::OkStatus());
  } else if (request->state == State::kAssigned) {
    BackToWaiting(*request);
  }
}

// The lead hears it in the answer to its BeginPrefill.
void OrchestratorCore::Impl::StartMembers(Request& request) {
  for (size_t i = 1; i < request.members.size(); ++i) {
    const Member& member = request.members[i];
    if (member.here) SendStart(request, member);
  }
}

void OrchestratorCore::Impl::SendStart(const Request& request, const Member& member) {
  Send(CallStart{member.instance, {request.spec->id, request.epoch, PlacedOf(request)}});
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

// Who joins later takes no part in the first chunks.
size_t OrchestratorCore::Impl::ChunkOf(const Request& request, const Member& member) {
  const auto rank = static_cast<size_t>(&member - request.members.data());
  size_t chunk = member.chunks_done;
  while (chunk < request.chunks.size() && request.chunks[chunk].members <= rank) ++chunk;
  return chunk;
}

// A chunk begins when the last of its members has entered it: who is there early only waits.
void OrchestratorCore::Impl::NoteEntered(Request& request, const Member& member) {
  const size_t k = ChunkOf(request, member);
  if (k >= request.chunks.size() || request.chunks[k].ended_us >= 0) return;
  Chunk& chunk = request.chunks[k];
  TimeUs last_us = -1;
  bool all = true;
  for (size_t i = 0; i < chunk.members; ++i) {
    const Member& other = request.members[i];
    const bool entered = other.entered_us >= 0 && ChunkOf(request, other) == k;
    if (entered) last_us = std::max(last_us, other.entered_us);
    all = all && entered;
  }
  if (all) {
    NoteBegun(request, chunk, last_us);
  } else if (chunk.started_us >= 0) {
    NoteBegun(request, chunk, std::max(chunk.started_us, last_us));
  }
}

// It has committed its part.
void OrchestratorCore::Impl::MemberDone(Request& request, Member& member) {
  member.here = false;
  if (Instance* instance = registry_.Find(member.instance)) {
    TakeFromInstance(*instance, request.spec->id);
  }
  NoteChunksEnded(request);
  if (!HasMembersHere(request) && PlannedTokens(request) == PromptTokens(*request.spec)) {
    NotePrefilled(request);
  }
}

void OrchestratorCore::Impl::NotePrefilled(Request& request) {
  TimeUs& prefilled_us = request.explanation.prefilled_us;
  if (prefilled_us < 0) prefilled_us = now_ - request.submitted_us;
}

void OrchestratorCore::Impl::TakeFromPrefill(Request& request) {
  for (Member& member : request.members) {
    member.here = false;
    if (Instance* instance = registry_.Find(member.instance)) {
      TakeFromInstance(*instance, request.spec->id);
    }
  }
}

}  // namespace skein::scheduler
