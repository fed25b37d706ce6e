#include "scheduler/worker/prefill/prefill_transfers.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

using Phase = PrefillRequest::Phase;

// In the order of the queue, and none overtakes one that waits for blocks.
void PrefillTransfers::AdmitQueued() {
  std::vector<RequestId> gave_back;
  while (Request* request = parts_.requests->Admit(&gave_back, *parts_.now)) {
    for (const RequestId id : std::exchange(gave_back, {})) parts_.place_calls->Suspend(id);
    Begin(*request);
  }
  for (const RequestId id : gave_back) parts_.place_calls->Suspend(id);
}

void PrefillTransfers::Begin(Request& request) {
  if (request.IsPlaced()) {
    UsePlace(request);
  } else if (request.OpensTransfer()) {
    Ask(request);  // other members wait for Start
  }
  if (!request.IsPlain()) return;
  parts_.steps->Add(request);
  OpenHandoffOf(request);
}

void PrefillTransfers::Ask(const Request& request) {
  parts_.place_calls->Ask({.id = request.id(),
                           .epoch = request.epoch,
                           .refused_by = request.refused_by,
                           .why = request.refused_why},
                          *parts_.now);
}

void PrefillTransfers::On(const PlaceDecodeReplied& event) {
  const absl::Status& status = event.reply.status;
  if (!parts_.place_calls->Answered(event.id, event.epoch, status, *parts_.now)) return;
  Request& request = parts_.requests->at(event.id);
  if (status.ok()) return Place(request, event.reply.placed);
  if (!absl::IsResourceExhausted(status)) return parts_.ends->End(request, status);
  // No decode room: blocks that an SP plan before it waits for must not wait with it, for that plan
  // may hold the room. It asks again when it gets blocks again.
  const bool yields = request.IsPlain() && parts_.requests->SpPlanWaitsBefore(request.sequence);
  if (!yields) return;
  parts_.place_calls->Forget(event.id);
  if (!parts_.steps->InFlight(event.id)) return Yield(request);
  parts_.requests->SetPhase(request, Phase::kYielding);
}

void PrefillTransfers::Yield(Request& request) {
  const RequestId id = request.id();
  if (request.started_us != kNever) {
    parts_.effects->push_back(ReleaseSequence{id, request.epoch});
  }
  parts_.steps->Remove(id);
  parts_.kv_out->Forget(id);
  parts_.requests->BackToQueue(request);
  if (parts_.membership->draining()) return parts_.ends->End(request, PrefillEnds::HandedBack());
  Tell(request);  // it may have told that it was computed
  parts_.membership->ReportSoon();
}

void PrefillTransfers::Place(Request& request, const Placed& placed) {
  if (request.IsPlaced()) return;  // after a break it is sent again
  parts_.requests->SetPlaced(request, placed);
  parts_.place_calls->Forget(request.id());
  if (request.phase == Phase::kQueued) return;
  parts_.steps->Rank(request);
  UsePlace(request);
}

void PrefillTransfers::UsePlace(Request& request) {
  request.OpensTransfer() ? OpenTransfer(request) : StartComputing(request);
}

void PrefillTransfers::OpenTransfer(Request& request) {
  const SpPlan* plan = parts_.sp_plans->Find(request.id());
  request.writer = plan != nullptr ? plan->self() : parts_.membership->instance();
  parts_.kv_out->Open({.id = request.id(),
                       .epoch = request.epoch,
                       .spec = request.spec,
                       .endpoint = request.placed.endpoint,
                       .writer = request.writer,
                       .one_of_several = plan != nullptr,
                       .takes_blocks = request.OpensTransfer(),
                       .permit = request.placed.permit},
                      *parts_.now);
}

// A plain request computes since it was admitted.
void PrefillTransfers::StartComputing(Request& request) {
  parts_.requests->SetPhase(request, Phase::kComputing);
  OpenHandoffOf(request);
}

// Tells the handoff which blocks are computed here, as far as that is known. A member that does not
// lead opens its transfer when the first are.
void PrefillTransfers::OpenHandoffOf(Request& request) {
  const RequestId id = request.id();
  std::vector<HandoffBlock> puts;
  bool more = false;
  if (SpPlan* plan = parts_.sp_plans->Find(id)) {
    puts = plan->TakeNewPuts(*request.blocks);
    more = !plan->Whole();
  } else {
    for (const BlockId block : *request.blocks) {
      puts.push_back({static_cast<int32_t>(puts.size()), block});
    }
  }
  if (parts_.kv_out->Begun(id)) return parts_.kv_out->AddBlocks(id, std::move(puts), more);
  if (puts.empty()) return;
  if (!request.OpensTransfer() && !parts_.kv_out->Has(id)) OpenTransfer(request);
  parts_.kv_out->Begin(request.spec, request.epoch, std::move(puts), more);
}

void PrefillTransfers::Computed(Request& request) {
  request.result.times.prefill_us = *parts_.now - request.started_us;
  request.result.computed_us = *parts_.now;
  request.computed = true;
  parts_.requests->SetPhase(request, Phase::kComputed);
  if (request.IsPlain()) {
    parts_.steps->Remove(request.id());
    Tell(request);
    if (!request.IsOpened()) parts_.membership->ReportSoon();  // it may wait for long
  }
  if (request.IsOpened()) HandResultOver(request);
}

void PrefillTransfers::HandResultOver(Request& request) {
  parts_.kv_out->SetResult(request.id(), std::move(request.result), *parts_.now);
}

void PrefillTransfers::TakeOutcomes() {
  for (const KvOut::Outcome& outcome : parts_.kv_out->TakeOutcomes()) {
    Request* request = parts_.requests->Find(outcome.id);
    if (request == nullptr) continue;  // its deadline passed at the same time
    switch (outcome.end) {
      case KvOut::End::kOpened:
        if (!request->IsEnding()) Opened(*request);
        break;
      case KvOut::End::kRefused:
        if (!request->IsEnding()) Refused(*request, outcome.status);
        break;
      case KvOut::End::kCommitted:
        parts_.ends->Erase(*request, absl::OkStatus(), outcome.path);
        break;
      case KvOut::End::kFailed:
        parts_.ends->End(*request, outcome.status);
        break;
      case KvOut::End::kStopped:
        parts_.ends->MaybeLeave(*request);
        break;
    }
  }
}

void PrefillTransfers::Opened(Request& request) {
  parts_.requests->SetOpened(request);
  if (request.phase == Phase::kHolding) StartComputing(request);
  if (request.phase == Phase::kComputed) HandResultOver(request);
  if (HasOpened(request)) Tell(request);
}

// It keeps its local blocks, and what is in them, while it asks for another place.
void PrefillTransfers::Refused(Request& request, const absl::Status& why) {
  parts_.kv_out->Close(request.id());
  if (SKEIN_PLANT(refusal_forgets_kv) && request.IsPlain()) {
    parts_.kv_out->Forget(request.id());
    OpenHandoffOf(request);
  }
  request.refused_by = request.placed.decode;
  request.refused_why = why;
  parts_.requests->ClearPlaced(request);
  parts_.steps->Rank(request);
  Ask(request);
}

void PrefillTransfers::TellProgress(const SpPlan& plan, const Request& request) {
  parts_.membership->Holds({.id = plan.id(),
                            .epoch = request.epoch,
                            .opened = HasOpened(request),
                            .chunks_done = plan.chunks_done()},
                           plan.chunk_since_us());
}

// That the transfer is open, the decode instance tells, too, but may not reach the orchestrator.
void PrefillTransfers::Tell(const Request& request) {
  if (const SpPlan* plan = parts_.sp_plans->Find(request.id())) return TellProgress(*plan, request);
  parts_.membership->Holds({.id = request.id(),
                            .epoch = request.epoch,
                            .opened = HasOpened(request),
                            .chunks_done = ChunksDone(request)});
}

bool PrefillTransfers::HasOpened(const Request& request) {
  return request.OpensTransfer() && request.IsOpened() && !request.IsEnding();
}

absl::Status PrefillTransfers::CheckInvariants() const {
  for (const auto& [id, request] : parts_.requests->all()) {
    if (!request.IsPlain() || request.IsEnding()) continue;
    const auto violated = [one = id](const char* what) {
      return absl::InternalError(absl::StrCat("PrefillCore 6: ", ToString(one), what));
    };
    const bool computes = request.phase == Phase::kComputing || request.phase == Phase::kYielding;
    if (parts_.steps->Has(id) != computes) {
      return violated(computes ? " computes, but in no step"
                               : " is in steps, but computes nothing");
    }
    if (!parts_.steps->IsRanked(request)) return violated(" has a wrong rank in the batch");
    const bool opens = request.IsPlaced() && request.blocks != nullptr;
    if (parts_.kv_out->Has(id) != opens) {
      return violated(opens ? " is placed, but has no transfer" : " has a transfer too early");
    }
  }
  return absl::OkStatus();
}

uint32_t PrefillTransfers::ChunksDone(const Request& request) {
  return request.IsPlain() && request.phase == Phase::kComputed ? 1 : 0;
}

}  // namespace skein::scheduler
