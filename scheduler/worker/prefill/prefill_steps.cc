// The engine of a prefill-worker: which step is next, what came of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {

void PrefillCore::Impl::StartStep() {
  if (!steps_.MayLaunch()) return;
  if (steps_.doubtful() && !membership_.leaving()) return Probe();
  PlanSequence before{UINT64_MAX};
  Request* piece = EnterablePiece(&before);
  std::vector<StepItem> items = batch_.Plan(before);
  if (items.empty()) return piece != nullptr ? StartPiece(*piece) : Probe();
  std::vector<StepSequence> sequences;
  for (const StepItem& item : items) {
    Request& request = requests_.at(item.id);
    Started(request);
    sequences.push_back({.id = item.id,
                         .epoch = request.epoch,
                         .spec = request.spec,
                         .position = item.position,
                         .count = item.count,
                         .blocks = request.blocks,
                         .sample = item.sample && request.spec->max_tokens > 0,
                         .output = nullptr});
  }
  effects_.push_back(steps_.Launch(std::move(sequences), now_));
}

void PrefillCore::Impl::Probe() {
  if (membership_.leaving()) return;
  std::optional<RunStep> probe = steps_.Probe(now_);
  if (probe.has_value()) effects_.push_back(*std::move(probe));
}

void PrefillCore::Impl::On(const StepDone& event) {
  const std::optional<StepLoop::Ended> ended = steps_.End(event, now_);
  if (!ended.has_value()) return;
  if (piece_.has_value()) {
    PieceDone(*ended, event.results);
  } else {
    BatchDone(*ended, event.results);
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine();
}

void PrefillCore::Impl::BatchDone(const StepLoop::Ended& ended,
                                  const std::vector<StepResult>& results) {
  if (batch_.InFlight()) batch_.Complete();
  int64_t tokens = 0;
  for (size_t i = 0; i < ended.ran.size(); ++i) {
    Request& request = requests_.at(ended.ran[i].id);
    if (ended.status.ok() && results[i].status.ok()) tokens += ended.ran[i].count;
    if (request.state == State::kEnding) {
      MaybeLeave(request);
    } else if (ended.status.ok()) {
      TakeResult(request, ended.ran[i], results[i]);
    } else {
      End(request, ended.status);
    }
  }
  if (!ended.status.ok() || ended.ran.empty()) return;
  prompt_tokens_ += tokens;
  rate_.Add(tokens, ended.took_us);
}

void PrefillCore::Impl::TakeResult(Request& request, const StepSequence& ran,
                                   const StepResult& result) {
  if (!result.status.ok()) return End(request, result.status);
  absl::StrAppend(&request.prompt_logprobs, result.prompt_logprobs);
  if (ran.position + ran.count < PromptTokens(*request.spec)) return;
  request.has_token = ran.sample;
  request.token = result.token;
  request.payload = result.payload;
  batch_.Remove(ran.id);
  Computed(request);
}

void PrefillCore::Impl::Started(Request& request) const {
  if (request.started_us != kNever) return;
  request.started_us = now_;
  request.times.queue_us = now_ - request.arrived_us;
}

void PrefillCore::Impl::Computed(Request& request) {
  request.computed = true;
  request.times.prefill_us = now_ - request.started_us;
  LeaveFront(request);
  if (request.sp_plan.has_value() && request.sp_plan->share.empty()) return Finish(request);
  kv_out_.SetResult(request.spec->id,
                    {.has_token = request.has_token,
                     .token = request.token,
                     .payload = std::move(request.payload),
                     .prompt_logprobs = std::move(request.prompt_logprobs),
                     .times = request.times},
                    now_);
}

// The hung step may still write to its blocks. That is safe: a failed engine gets no more work, so
// no other sequence is given them.
void PrefillCore::Impl::FailOverdueStep() {
  const std::vector<StepSequence> ran = steps_.FailOverdue();
  LeaveWithFailedEngine();  // before the step is forgotten: the others in it must hear
  if (batch_.InFlight()) batch_.Complete();
  piece_.reset();
  for (const StepSequence& sequence : ran) {
    if (Request* request = Find(sequence.id, sequence.epoch)) MaybeLeave(*request);
  }
}

// What is computed needs the engine no more: it may still be handed over.
void PrefillCore::Impl::LeaveWithFailedEngine() {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (!request.computed) ids.push_back(id);
  }
  for (const RequestId id : ids) End(requests_.at(id), steps_.engine().EndOfRequests());
  while (!successors_.empty()) {
    EndSuccessors(successors_.begin()->first, {UINT64_MAX}, steps_.engine().EndOfRequests());
  }
  membership_.StartDrain();
  drain_end_us_ = std::min(drain_end_us_, now_ + config_.engine.last_words_us);
  effects_.push_back(EngineFailed{steps_.engine().status()});
}

}  // namespace skein::scheduler
