// A request's life in a prefill-worker: it asks for a decode instance and opens the transfer, then
// computes and hands its KV over, then commits. How plans come and requests end: prefill_core.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {

void PrefillCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(now_)) {
    // The hung step may still write to its blocks. That is safe: a failed engine gets no more work,
    // so no other sequence is given them.
    const std::vector<StepSequence> ran = steps_.FailOverdue();
    LeaveWithFailedEngine();  // before the step is forgotten: the others in it must hear
    steps_.ForgetStep();
    for (const StepSequence& sequence : ran) {
      if (Request* request = requests_.Find(sequence.id)) MaybeLeave(*request);
    }
  }
  if (now_ >= drain_end_us_ && !drain_ended_) {
    drain_ended_ = true;  // nothing new is accepted any more
    const auto status = absl::UnavailableError("the prefill instance is going away");
    EndThose([](const Request&) { return true; }, status);
    EndSuccessors(status);
  }
  kv_out_.RunTimers(now_);
  while (const std::optional<RequestId> id = requests_.TakeOverdue(now_)) {
    Request& request = requests_.at(*id);
    End(request, now_ >= request.deadline_us
                     ? absl::DeadlineExceededError("the request's deadline passed in prefill")
                     : absl::UnavailableError("no blocks in time to join the plan"));
  }
  for (const RequestId id : place_calls_.RunTimers(now_)) {
    End(requests_.at(id), absl::UnavailableError("the orchestrator cannot be reached"));
  }
}

// In plan-sequence order, and none overtakes one that waits for blocks.
void PrefillCore::Impl::AdmitQueued() {
  std::vector<RequestId> gave_back;
  while (Request* request = requests_.Admit(&gave_back)) {
    for (const RequestId id : std::exchange(gave_back, {})) place_calls_.Suspend(id);
    if (!request->IsPlaced()) {
      if (request->OpensTransfer()) Ask(*request);  // other members wait for Start
    } else if (request->OpensTransfer()) {
      OpenTransfer(*request);
    } else {
      BeginWork(*request);
    }
  }
  for (const RequestId id : gave_back) place_calls_.Suspend(id);
}

void PrefillCore::Impl::Ask(const Request& request) {
  place_calls_.Ask({.id = request.id(),
                    .epoch = request.epoch,
                    .refused_by = request.refused_by,
                    .why = request.refused_why},
                   now_);
}

void PrefillCore::Impl::On(const PlaceDecodeReplied& event) {
  const absl::Status& status = event.reply.status;
  if (!place_calls_.Answered(event.id, event.epoch, status, now_)) return;
  Request& request = requests_.at(event.id);
  if (status.ok()) return Place(request, event.reply.placed);
  if (!absl::IsResourceExhausted(status)) return End(request, status);
  // No decode room: blocks that an SP plan before it waits for must not wait with it, for that plan
  // may hold the room.
  const bool yields = request.phase == Phase::kAsking && request.IsPlain() &&
                      requests_.SpPlanWaitsBefore(request.sequence);
  if (!yields) return;
  requests_.BackToQueue(request);
  place_calls_.Suspend(event.id);
}

void PrefillCore::Impl::On(const StartCalled& event) {
  const StartRequest& start = event.request;
  if (Request* request = requests_.FindLive(start.id, start.epoch); request != nullptr) {
    request->all_have_plan = true;
    Place(*request, start.placed);
  } else {
    successors_.Start(start);
  }
}

void PrefillCore::Impl::Place(Request& request, const Placed& placed) {
  if (request.IsPlaced()) return;  // after a break it is said once more
  requests_.SetPlaced(request, placed);
  place_calls_.Forget(request.id());
  if (request.phase != Phase::kAsking) return;
  request.OpensTransfer() ? OpenTransfer(request) : BeginWork(request);
}

void PrefillCore::Impl::OpenTransfer(Request& request) {
  const SpPlan* plan = sp_plans_.Find(request.id());
  request.writer = plan != nullptr ? plan->self() : membership_.instance();
  kv_out_.Open({.id = request.id(),
                .epoch = request.epoch,
                .spec = request.spec,
                .endpoint = request.placed.endpoint,
                .writer = request.writer,
                .one_of_several = plan != nullptr,
                .takes_blocks = request.OpensTransfer()},
               now_);
}

void PrefillCore::Impl::BeginWork(Request& request) {
  requests_.SetPhase(request, Phase::kComputing);
  if (request.IsPlain()) steps_.Add(request);
  OpenHandoffOf(request);
}

// Tells the handoff which blocks are computed here, as far as that is known. A member that does not
// lead opens its transfer when the first are.
void PrefillCore::Impl::OpenHandoffOf(Request& request) {
  const RequestId id = request.id();
  std::vector<HandoffBlock> puts;
  bool more = false;
  if (SpPlan* plan = sp_plans_.Find(id)) {
    puts = plan->TakeNewPuts(*request.blocks);
    more = !plan->Whole();
  } else {
    for (const BlockId block : *request.blocks) {
      puts.push_back({static_cast<int32_t>(puts.size()), block});
    }
  }
  if (kv_out_.Begun(id)) return kv_out_.AddBlocks(id, std::move(puts), more);
  if (puts.empty()) return;
  if (!kv_out_.Has(id)) OpenTransfer(request);
  kv_out_.Begin(id, std::move(puts), more, now_);
}

void PrefillCore::Impl::TakeOutcomes() {
  for (const KvOut::Outcome& outcome : kv_out_.TakeOutcomes()) {
    Request* request = requests_.Find(outcome.id);
    if (request == nullptr) continue;  // its deadline passed at the same time
    switch (outcome.end) {
      case KvOut::End::kOpened:
        if (request->phase == Phase::kAsking) BeginWork(*request);
        TellOpened(*request);
        break;
      case KvOut::End::kRefused:
        if (request->phase != Phase::kAsking) break;
        // It keeps its local blocks while it asks for another place: it is about to start.
        kv_out_.Forget(outcome.id);
        request->refused_by = request->placed.decode;
        request->refused_why = outcome.status;
        requests_.ClearPlaced(*request);
        Ask(*request);
        break;
      case KvOut::End::kCommitted:
        Erase(*request, absl::OkStatus(), outcome.path);
        break;
      case KvOut::End::kFailed:
        End(*request, outcome.status);
        break;
      case KvOut::End::kStopped:
        MaybeLeave(*request);
        break;
    }
  }
}

void PrefillCore::Impl::StartStep() {
  std::optional<RunStep> step =
      steps_.Next(requests_, sp_plans_, /*may_probe=*/!membership_.leaving(), now_);
  if (!step.has_value()) return;
  for (const StepSequence& sequence : step->sequences) {
    if (step->probe) break;
    Request& request = requests_.at(sequence.id);
    if (request.started_us == kNever) {
      request.started_us = now_;
      request.result.times.queue_us = now_ - request.arrived_us;
    }
    const bool starts_chunk = sequence.ring != nullptr && sequence.ring->piece.index == 0;
    if (starts_chunk) TellProgress(*sp_plans_.Find(sequence.id), request);
  }
  effects_.push_back(*std::move(step));
}

void PrefillCore::Impl::TellProgress(const SpPlan& plan, const Request& request) {
  membership_.Holds({.id = plan.id(),
                     .epoch = request.epoch,
                     .opened = HasOpened(request),
                     .chunks_done = plan.chunks_done()},
                    plan.chunk_since_us());
}

// The decode instance tells it, too, but may not reach the orchestrator.
void PrefillCore::Impl::TellOpened(const Request& request) {
  if (!HasOpened(request)) return;
  if (const SpPlan* plan = sp_plans_.Find(request.id())) return TellProgress(*plan, request);
  membership_.Holds({.id = request.id(), .epoch = request.epoch, .opened = true});
}

bool PrefillCore::Impl::HasOpened(const Request& request) {
  return request.OpensTransfer() &&
         (request.phase == Phase::kComputing || request.phase == Phase::kCommitting);
}

void PrefillCore::Impl::On(const StepDone& event) {
  const std::optional<StepLoop::Ended> ended = steps_.End(event, now_);
  if (!ended.has_value()) return;
  for (size_t i = 0; i < ended->ran.size(); ++i) {
    Request& request = requests_.at(ended->ran[i].id);
    if (request.IsEnding()) {
      MaybeLeave(request);
    } else if (ended->status.ok()) {
      const bool first = !request.ring.has_value() || !request.ring->through_host;
      if (event.ring.has_value() && first) request.ring = event.ring;
      TakeResult(request, ended->ran[i], event.results[i]);
    } else {
      End(request, ended->status);
    }
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine();
}

void PrefillCore::Impl::TakeResult(Request& request, const StepSequence& ran,
                                   const StepResult& result) {
  SpPlan* plan = sp_plans_.Find(ran.id);
  // The other members may still be at the end of this step: its failure here is none of theirs.
  if (plan != nullptr) sp_plans_.Leave(ran.id, ran, result.status.ok());
  if (!result.status.ok()) return End(request, result.status);
  absl::StrAppend(&request.result.prompt_logprobs, result.prompt_logprobs);
  if (ran.sample) {
    request.result.has_token = true;
    request.result.token = result.token;
    request.result.payload = result.payload;
  }
  if (plan != nullptr && ran.ring->piece.ends_chunk) {
    TellProgress(*plan, request);
    membership_.ReportSoon();
    if (plan->FirstChunksDone()) requests_.LeaveFront(ran.id);
  }
  const bool last = plan != nullptr ? ran.ring->piece.last
                                    : ran.position + ran.count >= PromptTokens(*request.spec);
  if (!last) return;
  request.result.times.prefill_us = now_ - request.started_us;
  requests_.SetPhase(request, Phase::kCommitting);
  if (plan == nullptr) steps_.Remove(ran.id);
  if (plan != nullptr && plan->ComputesNothing()) return Erase(request, absl::OkStatus());
  kv_out_.SetResult(ran.id, std::move(request.result), now_);
}

// What is computed needs the engine no more: it may still be handed over.
void PrefillCore::Impl::LeaveWithFailedEngine() {
  const absl::Status status = steps_.engine().EndOfRequests();
  EndThose([](const Request& request) { return request.phase < Phase::kCommitting; }, status);
  EndSuccessors(status);
  membership_.StartDrain();
  drain_end_us_ = std::min(drain_end_us_, now_ + config_.engine.last_words_us);
  effects_.push_back(EngineFailed{steps_.engine().status()});
}

}  // namespace skein::scheduler
