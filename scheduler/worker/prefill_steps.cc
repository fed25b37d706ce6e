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
  const absl::Status status = StatusOf(event, ran.size());
  const bool failed = !status.ok() && !absl::IsInvalidArgument(status);
  int64_t tokens = 0;
  for (size_t i = 0; i < ran.size(); ++i) {
    Request& request = requests_.at(ran[i].id);
    if (request.state == State::kEnding) {
      MaybeLeave(request);
    } else if (status.ok()) {
      if (event.results[i].status.ok()) tokens += ran[i].count;
      TakeResult(request, ran[i], event.results[i]);
    } else if (!failed) {
      End(request, status);
    }
  }
  if (failed) return FailEngine(status);
  if (!status.ok()) return;
  prompt_tokens_ += tokens;
  rate_.Add(tokens, now_ - step_started_us_);
  CountNan(event.results);
}

void PrefillCore::Impl::CountNan(const std::vector<StepResult>& results) {
  nan_steps_.Add(results);
  if (nan_steps_.EngineFailed() && engine_status_.ok()) FailEngine(NanSteps::Failure());
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

void PrefillCore::Impl::FailEngine(const absl::Status& status) {
  engine_status_ = status;
  EndAll(
      absl::UnavailableError(absl::StrCat("the engine failed: ", std::string(status.message()))));
  membership_.StartDrain();
}

}  // namespace skein::scheduler
