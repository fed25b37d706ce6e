// The engine of a prefill-worker: which step is next, what came of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill_impl.h"

namespace skein::scheduler {

void PrefillCore::Impl::StartStep() {
  if (batch_.InFlight() || piece_.has_value() || !engine_status_.ok()) return;
  PlanSequence before{UINT64_MAX};
  Request* piece = EnterablePiece(&before);
  std::vector<StepItem> items = batch_.Plan(before);
  if (items.empty()) {
    if (piece != nullptr) StartPiece(*piece);
    return;
  }
  step_.clear();
  for (const StepItem& item : items) {
    Request& request = requests_.at(item.id);
    Started(request);
    step_.push_back({.id = item.id,
                     .epoch = request.epoch,
                     .spec = request.spec,
                     .position = item.position,
                     .count = item.count,
                     .blocks = request.blocks,
                     .sample = item.sample && request.spec->max_tokens > 0,
                     .output = nullptr});
  }
  step_started_us_ = now_;
  effects_.push_back(RunStep{++step_number_, step_});
}

void PrefillCore::Impl::On(const StepDone& event) {
  if (event.step != step_number_) return;
  if (piece_.has_value()) return PieceDone(event);
  if (!batch_.InFlight()) return;
  const std::vector<StepSequence> ran = std::move(step_);
  step_.clear();
  batch_.Complete();
  absl::Status status = event.status;
  if (status.ok() && event.results.size() != ran.size()) {
    status = absl::InternalError("the engine returned another number of results");
  }
  int64_t tokens = 0;
  for (size_t i = 0; i < ran.size(); ++i) {
    Request& request = requests_.at(ran[i].id);
    tokens += ran[i].count;
    if (request.state == State::kEnding) {
      MaybeLeave(request);
    } else if (!status.ok()) {
      End(request, status);
    } else {
      TakeResult(request, ran[i], event.results[i]);
    }
  }
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) FailEngine(status);
  if (!status.ok()) return;
  prompt_tokens_ += tokens;
  rate_.Add(tokens, now_ - step_started_us_);
}

void PrefillCore::Impl::TakeResult(Request& request, const StepSequence& ran,
                                   const StepResult& result) {
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

void PrefillCore::Impl::FailEngine(const absl::Status& status) {
  engine_status_ = status;
  EndAll(
      absl::UnavailableError(absl::StrCat("the engine failed: ", std::string(status.message()))));
  membership_.StartDrain();
}

}  // namespace skein::scheduler
