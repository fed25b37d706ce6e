// The engine of a prefill-worker: which step is next, what came of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill_impl.h"

namespace skein::scheduler {

void PrefillCore::Impl::StartStep() {
  if (engine_.stepping() || !engine_.ok()) return;
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
  Launch(std::move(sequences));
}

void PrefillCore::Impl::Launch(std::vector<StepSequence> sequences) {
  step_ = std::move(sequences);
  step_started_us_ = now_;
  RunStep step{.step = ++step_number_, .sequences = step_};
  engine_.Begin(step, now_);
  effects_.push_back(std::move(step));
}

void PrefillCore::Impl::Probe() {
  if (membership_.leaving() || !engine_.ProbeDue(now_)) return;
  RunStep probe = engine_.Probe(++step_number_);
  engine_.Begin(probe, now_);
  effects_.push_back(std::move(probe));
}

void PrefillCore::Impl::ProbeDone(const StepDone& event) {
  absl::Status status = StatusOf(event, 1);
  if (status.ok()) status = event.results.front().status;
  if (status.ok()) return engine_.End(now_);
  engine_.Fail(status, {});
  LeaveWithFailedEngine();
}

void PrefillCore::Impl::On(const StepDone& event) {
  if (!engine_.stepping() || event.step != step_number_) return;
  if (engine_.probing()) return ProbeDone(event);
  if (piece_.has_value()) return PieceDone(event);
  const std::vector<StepSequence> ran = std::move(step_);
  step_.clear();
  batch_.Complete();
  absl::Status status = StatusOf(event, ran.size());
  if (EngineWatch::FailsEngine(status)) {
    engine_.Fail(status, ran);
    status = engine_.EndOfRequests();
  } else {
    engine_.End(now_);
  }
  int64_t tokens = 0;
  for (size_t i = 0; i < ran.size(); ++i) {
    Request& request = requests_.at(ran[i].id);
    if (request.state == State::kEnding) {
      MaybeLeave(request);
    } else if (status.ok()) {
      if (event.results[i].status.ok()) tokens += ran[i].count;
      TakeResult(request, ran[i], event.results[i]);
    } else {
      End(request, status);
    }
  }
  if (status.ok()) {
    prompt_tokens_ += tokens;
    rate_.Add(tokens, now_ - step_started_us_);
    CountNan(event.results);
  }
  if (!engine_.ok()) LeaveWithFailedEngine();
}

void PrefillCore::Impl::CountNan(const std::vector<StepResult>& results) {
  nan_steps_.Add(results);
  if (nan_steps_.EngineFailed()) engine_.Fail(NanSteps::Failure(), {});
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
  MaybeCommit(request);
}

// Whatever the engine still does is nobody's: nothing is given its blocks again.
void PrefillCore::Impl::FailOverdueStep() {
  const std::vector<StepSequence> ran = std::move(step_);
  step_.clear();
  engine_.Fail(engine_.OverdueStatus(), ran);
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
  for (const RequestId id : ids) End(requests_.at(id), engine_.EndOfRequests());
  while (!successors_.empty()) {
    EndSuccessors(successors_.begin()->first, {UINT64_MAX}, engine_.EndOfRequests());
  }
  membership_.StartDrain();
  drain_end_us_ = std::min(drain_end_us_, now_ + config_.engine.last_words_us);
  effects_.push_back(EngineFailed{engine_.status()});
}

}  // namespace skein::scheduler
