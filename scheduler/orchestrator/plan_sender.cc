#include "scheduler/orchestrator/plan_sender.h"

#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

// From this protocol revision on prefill-workers show the permits that they got.
constexpr uint32_t kShowsPermits = 2;

bool IsSuspect(const Request& request) { return request.failures.failed_or_lost() > 0; }

}  // namespace

Planned PlannedOf(const Request& request, const Registry& registry, TimeUs decided_us) {
  const InstanceId lead = request.members.empty() ? InstanceId{} : request.members[0].instance;
  Planned planned{request.epoch, lead, decided_us, request.failures.failed()};
  if (request.decode == InstanceId{}) return planned;
  Placed announced = registry.PlacedAt(request.decode, request.epoch);
  planned.decode = announced.decode;
  planned.decode_endpoint = std::move(announced.endpoint);
  planned.decode_incarnation = announced.incarnation;
  return planned;
}

void PlanSender::Assign(Request& request, size_t from_chunk, PlanSequence sequence) {
  request.sequence_parallel ? AssignMembers(request, from_chunk, sequence)
                            : AssignPlain(request, sequence);
}

void PlanSender::AssignPlain(Request& request, PlanSequence sequence) {
  const InstanceId to = request.members[0].instance;
  Instance& instance = *registry_->Find(to);
  instance.Place(request.spec, request.epoch);
  request.members[0].assigned = sequence;
  AssignOrder assign{request.spec, request.epoch, sequence};
  assign.suspect = IsSuspect(request);
  if (request.decode != InstanceId{}) {
    assign.placed = PlacedFor(instance.identity.incarnation, request);
  }
  Send(CallAssign{to, std::move(assign)});
}

void PlanSender::AssignMembers(Request& request, size_t from_chunk, PlanSequence sequence) {
  AssignOrder assign{request.spec, request.epoch, sequence};
  assign.from_chunk = static_cast<uint32_t>(from_chunk);
  assign.suspect = IsSuspect(request);
  assign.members.reserve(request.members.size());
  for (const Member& member : request.members) {
    const WorkerIdentity& identity = registry_->Find(member.instance)->identity;
    assign.members.push_back(
        {member.instance, identity.incarnation, identity.endpoint, identity.comm_address});
  }
  for (const Chunk& chunk : request.chunks) {
    PlanChunk& out = assign.chunks.emplace_back();
    out.tokens = chunk.tokens;
    for (uint32_t i = 0; i < chunk.members; ++i) out.members.push_back(i);
    out.estimated_us = chunk.estimated_us;
    out.tp = static_cast<uint32_t>(chunk.tp);
  }
  for (Member& member : request.members) {
    Instance& instance = *registry_->Find(member.instance);
    const bool joins = member.assigned == PlanSequence{};
    const bool leads = &member == request.members.data();
    assign.placed.reset();
    if (joins && (request.state == State::kPlaced || (leads && request.decode != InstanceId{}))) {
      assign.placed = PlacedFor(instance.identity.incarnation, request);
    }
    member.assigned = sequence;
    member.phase = Member::Phase::kAssigned;
    instance.Place(request.spec, request.epoch, /*announced_only=*/false,
                   request.chunks[0].sequence);
    if (instance.connected()) effects_->push_back(CallAssign{member.instance, assign});
  }
}

// A member that started while another lacks the plan would wait for it in vain if this
// orchestrator died: its successor does not know the plan. Members without a Start give it up then
// (PrefillCore).
bool PlanSender::MayStart(const Request& request) {
  return request.sequence_parallel && request.state == State::kPlaced && request.AllAccepted();
}

void PlanSender::StartMembers(const Request& request) {
  if (!MayStart(request)) return;
  for (const Member& member : request.members) {
    if (member.here()) Start(request, member);
  }
}

void PlanSender::Start(const Request& request, const Member& member) {
  const Instance* writer = registry_->Find(member.instance);
  if (writer == nullptr) return;
  Send(CallStart{
      member.instance,
      {request.spec->id, request.epoch, PlacedFor(writer->identity.incarnation, request)}});
}

void PlanSender::Announce(const Request& request) {
  AnnounceOrder announce{request.spec, request.epoch};
  announce.suspect = IsSuspect(request);
  if (request.shares_prompt) announce.prompt_of = request.spec->prompt_of;
  if (!request.shares_prompt) announce.formation = request.formation;
  for (const Member& member : request.members) {
    const Instance* writer = registry_->Find(member.instance);  // null: it committed, and left
    if (writer == nullptr) continue;
    announce.writers.push_back(writer->identity.incarnation);
    if (writer->identity.build.protocol.newest < kShowsPermits) {
      announce.excused.push_back(writer->identity.incarnation);
    }
  }
  Send(CallAnnounce{request.decode, std::move(announce)});
}

void PlanSender::CancelAtMembers(const Request& request, const std::string& why) {
  for (const Member& member : request.members) {
    if (member.here()) CancelAt(member.instance, request, why);
  }
}

void PlanSender::CancelAt(InstanceId id, const Request& request, const std::string& why) {
  if (registry_->Find(id) == nullptr) return;
  Send(CallCancel{id, {request.spec->id, request.epoch, why}});
}

}  // namespace skein::scheduler::orchestrator
