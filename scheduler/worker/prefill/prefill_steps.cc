#include "scheduler/worker/prefill/prefill_steps.h"

#include <algorithm>
#include <utility>

#include "scheduler/fairness/fair_order.h"

namespace skein::scheduler {

void PrefillSteps::Add(const PrefillRequest& request) {
  // The step of the last token samples.
  const int64_t prompt_tokens = PromptTokens(*request.spec);
  const int64_t computed = std::min(request.kept_tokens, prompt_tokens - 1);
  batch_.Add(request.id(), request.sequence, prompt_tokens, computed, request.suspect,
             OwnerOf(*request.spec));
  kept_tokens_ += computed;
  Rank(request);
}

std::optional<RunStep> PrefillSteps::Next(const PrefillRequests& requests, SpPlans& sp_plans,
                                          bool may_probe, TimeUs now) {
  if (!loop_.MayLaunch()) return std::nullopt;
  if (loop_.doubtful() && may_probe) return Probe(may_probe, now);
  std::optional<SpPlans::Turn> turn = sp_plans.Next();
  if (turn.has_value() && requests.at(turn->id).phase != PrefillRequest::Phase::kComputing) {
    turn.reset();
  }
  const std::vector<StepItem> items =
      batch_.Plan(turn.has_value() ? turn->sequence : BatchScheduler::kAll);
  if (items.empty()) {
    if (!turn.has_value()) return Probe(may_probe, now);
    return Enter(requests.at(turn->id), *sp_plans.Find(turn->id), now);
  }
  std::vector<StepSequence> sequences;
  for (const StepItem& item : items) {
    const PrefillRequest& request = requests.at(item.id);
    sequences.push_back({.id = item.id,
                         .epoch = request.epoch,
                         .spec = request.spec,
                         .position = item.position,
                         .count = item.count,
                         .blocks = request.blocks,
                         .sample = item.sample && request.spec->max_tokens > 0,
                         .output = nullptr});
  }
  return loop_.Launch(std::move(sequences), now);
}

RunStep PrefillSteps::Enter(const PrefillRequest& request, SpPlan& plan, TimeUs now) {
  piece_ = request.id();
  const TimeUs deadline_us = std::min(now + ring_.For(plan.NextEstimateUs()), request.deadline_us);
  return loop_.Launch({plan.Enter(*request.blocks, deadline_us, now)}, now);
}

std::optional<RunStep> PrefillSteps::Probe(bool may_probe, TimeUs now) {
  if (!may_probe) return std::nullopt;
  return loop_.Probe(now);
}

std::optional<AbortStep> PrefillSteps::Abort(RequestId id, TimeUs now) {
  if (piece_ != id) return std::nullopt;
  loop_.Abort(now);
  return AbortStep{loop_.number()};
}

std::optional<StepLoop::Ended> PrefillSteps::End(const StepDone& event, TimeUs now) {
  std::optional<StepLoop::Ended> ended = loop_.End(event, now);
  if (!ended.has_value()) return ended;
  Count(*ended, event.results);
  ForgetStep();
  return ended;
}

void PrefillSteps::ForgetStep() {
  if (batch_.InFlight()) batch_.Complete();
  piece_.reset();
}

void PrefillSteps::Count(const StepLoop::Ended& ended, const std::vector<StepResult>& results) {
  if (!ended.status.ok()) return;
  int64_t tokens = 0;
  for (size_t i = 0; i < ended.ran.size(); ++i) {
    if (!results[i].status.ok()) continue;
    tokens += ended.ran[i].count;
    if (piece_.has_value()) batch_.Charge(OwnerOf(*ended.ran[i].spec), ended.ran[i].count);
  }
  prompt_tokens_ += tokens;
  if (!piece_.has_value()) loop_.AddTokens(tokens, ended.took_us);  // a piece waits for its members
}

absl::Status PrefillSteps::CheckInvariants() const {
  if (absl::Status status = batch_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = loop_.CheckInvariants(); !status.ok()) return status;
  const bool in_step = batch_.InFlight() || piece_.has_value();
  if ((batch_.InFlight() && piece_.has_value()) ||
      (in_step && engine().ok() && !engine().stepping())) {
    return absl::InternalError("PrefillSteps: requests are in a step that is not in flight");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
