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

RunStep StepLoop::Launch(std::vector<StepSequence> sequences, TimeUs now) {
  SKEIN_CHECK(MayLaunch());
  in_flight_ = std::move(sequences);
  started_us_ = now;
  RunStep step{.step = ++number_, .sequences = in_flight_};
  engine_.Begin(step, now);
  return step;
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
  if (!engine_.stepping() || event.step != number_) return std::nullopt;
  const bool probe = engine_.probing();
  Ended ended{.ran = std::exchange(in_flight_, {}), .took_us = now - started_us_};
  ended.status = StatusOf(event, probe ? 1 : ended.ran.size());
  const bool joint = !probe && ended.ran.front().ring != nullptr;
  // A probe that the engine refuses has failed, too: it is a step that any engine can run.
  if (probe && ended.status.ok()) ended.status = event.results.front().status;
  if (joint && BrokeForOthers(ended.status)) {
    engine_.End(now);
    ended.status = absl::UnavailableError(
        absl::StrCat("a ring step failed: ", std::string(ended.status.message())));
  } else if (!ended.status.ok() && (probe || !absl::IsInvalidArgument(ended.status))) {
    engine_.Fail(ended.status, ended.ran);
    ended.status = engine_.EndOfRequests();
  } else {
    engine_.End(now);
    // No request is at fault for what it did not ask for: another instance may run it.
    if (!ended.status.ok()) {
      ended.status = absl::UnavailableError(
          absl::StrCat("the engine refused the step: ", std::string(ended.status.message())));
    }
  }
  if (!probe && ended.status.ok()) CountNan(event.results);
  return ended;
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
  if (took_us <= 0 || tokens <= 0) return;
  const double rate = static_cast<double>(tokens) * kSecondUs / static_cast<double>(took_us);
  double& mean = tokens_per_second_;
  mean = mean == 0 ? rate : mean + (rate - mean) / 8;
}

std::vector<StepSequence> StepLoop::FailOverdue() {
  std::vector<StepSequence> ran = std::exchange(in_flight_, {});
  engine_.Fail(engine_.OverdueStatus(), ran);
  return ran;
}

absl::Status StepLoop::CheckInvariants() const {
  const bool of_requests = engine_.stepping() && !engine_.probing();
  if (of_requests == in_flight_.empty()) {
    return absl::InternalError(absl::StrCat("StepLoop: ", in_flight_.size(), " sequences in a ",
                                            engine_.stepping() ? "running" : "finished", " step"));
  }
  if (engine_.probes() > number_) {
    return absl::InternalError(
        absl::StrCat("StepLoop: ", engine_.probes(), " probes of ", number_, " steps"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
