#include "scheduler/worker/steps/step_loop.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

bool BrokeForOthers(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace

bool StepLoop::MayLaunchAhead() const {
  return engine_.ok() && !doubtful_ && in_flight_.size() == 1 && !in_flight_.front().IsJoint();
}

RunStep StepLoop::Launch(std::vector<StepSequence> sequences, TimeUs now) {
  return Begin({.sequences = std::move(sequences)}, now);
}

RunStep StepLoop::LaunchTogether(std::vector<StepSequence> sequences, StepMode mode,
                                 TimeUs deadline_us, TimeUs now) {
  SKEIN_CHECK(MayLaunch());
  return Begin({.sequences = std::move(sequences), .group = mode, .deadline_us = deadline_us}, now);
}

RunStep StepLoop::Begin(RunStep step, TimeUs now) {
  SKEIN_CHECK(MayLaunch() || MayLaunchAhead());
  step.step = ++number_;
  in_flight_.push_back(std::move(step));
  if (in_flight_.size() == 1) {
    started_us_ = now;
    engine_.Begin(in_flight_.front(), now);
  }
  return in_flight_.back();
}

std::optional<RunStep> StepLoop::Probe(TimeUs now) {
  if (!engine_.ProbeDue(now)) return std::nullopt;
  doubtful_ = false;
  RunStep probe = engine_.Probe(++number_);
  started_us_ = now;
  engine_.Begin(probe, now);
  return probe;
}

std::optional<StepLoop::Ended> StepLoop::End(const StepDone& event, TimeUs now) {
  const bool probe = engine_.probing();
  if (!engine_.stepping() || event.step != (probe ? number_ : in_flight_.front().step)) {
    return std::nullopt;
  }
  Ended ended{.ran = {}, .status = {}, .took_us = now - started_us_, .ahead = {}};
  const bool joint = !probe && in_flight_.front().IsJoint();
  if (!probe) {
    ended.of_group = in_flight_.front().group.has_value();
    ended.ran = std::move(in_flight_.front().sequences);
    in_flight_.pop_front();
  }
  Judge(event, now, probe, joint, &ended);
  if (!probe && ended.status.ok()) CountNan(event.results);
  if (!engine_.ok()) {
    ended.ahead = TakeInFlight();
  } else if (!in_flight_.empty()) {
    started_us_ = now;
    engine_.Begin(in_flight_.front(), now);
  }
  return ended;
}

// The status of the step, and whether the engine has failed.
void StepLoop::Judge(const StepDone& event, TimeUs now, bool probe, bool joint, Ended* ended) {
  ended->status = StatusOf(event, probe ? 1 : ended->ran.size());
  // A probe that the engine refuses has failed, too: it is a step that any engine can run.
  if (probe && ended->status.ok()) ended->status = event.results.front().status;
  // Ranks that were given different steps of a group find that out before anything has run.
  const bool differed = ended->of_group && absl::IsFailedPrecondition(ended->status);
  if (joint && (BrokeForOthers(ended->status) || differed)) {
    engine_.End(now);
    ended->status = absl::UnavailableError(
        absl::StrCat(ended->of_group ? "a step of the group failed: " : "a ring step failed: ",
                     std::string(ended->status.message())));
  } else if (!ended->status.ok() && (probe || !absl::IsInvalidArgument(ended->status))) {
    engine_.Fail(ended->status, ended->ran);
    ended->status = engine_.EndOfRequests();
  } else {
    engine_.End(now);
    if (doubtful_) engine_.ProbeSoon();  // this one was launched before the doubt
    // No request is at fault for what it did not ask for: another instance may run it.
    if (!ended->status.ok()) {
      ended->status = absl::UnavailableError(
          absl::StrCat("the engine refused the step: ", std::string(ended->status.message())));
    }
  }
}

std::vector<StepSequence> StepLoop::TakeInFlight() {
  std::vector<StepSequence> all;
  for (RunStep& step : std::exchange(in_flight_, {})) {
    for (StepSequence& sequence : step.sequences) all.push_back(std::move(sequence));
  }
  return all;
}

void StepLoop::CountNan(const std::vector<StepResult>& results) {
  nan_steps_.Add(results);
  if (!nan_steps_.Doubtful()) return;
  if (!engine_.CanProbe()) return engine_.Fail(NanSteps::Failure(), {});
  nan_steps_.Reset();
  doubtful_ = true;
  engine_.ProbeSoon();
}

void StepLoop::AddTokens(int64_t tokens, TimeUs took_us) {
  if (tokens <= 0) return;
  const double weight = mean_us_ > 0 ? 1.0 / 8 : 1;
  mean_tokens_ += (static_cast<double>(tokens) - mean_tokens_) * weight;
  mean_us_ += (static_cast<double>(took_us) - mean_us_) * weight;
  ++measured_;
}

std::vector<StepSequence> StepLoop::Fail(const absl::Status& status) {
  engine_.Fail(status, {});
  return TakeInFlight();
}

std::vector<StepSequence> StepLoop::FailOverdue() {
  engine_.Fail(engine_.OverdueStatus(),
               engine_.probing() ? std::vector<StepSequence>() : in_flight_.front().sequences);
  return TakeInFlight();
}

absl::Status StepLoop::CheckInvariants() const {
  if (absl::Status status = engine_.CheckInvariants(); !status.ok()) return status;
  const bool of_requests = engine_.stepping() && !engine_.probing();
  if (of_requests == in_flight_.empty()) {
    return absl::InternalError(absl::StrCat("StepLoop: ", in_flight_.size(),
                                            " steps of requests beside a ",
                                            engine_.stepping() ? "running" : "finished", " one"));
  }
  if (in_flight_.size() > 2) {
    return absl::InternalError("StepLoop: more than one step is launched ahead");
  }
  if (engine_.probes() > number_) {
    return absl::InternalError(
        absl::StrCat("StepLoop: ", engine_.probes(), " probes of ", number_, " steps"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
