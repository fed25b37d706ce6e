#include "scheduler/worker/steps/engine_watch.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr size_t kRecentSteps = 16;

// From the deadline or the abort of a ring step until the engine returns: it may have to end a
// layer, a small part of the chunk's time.
constexpr TimeUs kReturnUs = 100 * kMillisecondUs;
constexpr TimeUs kChunkParts = 20;

SpecPtr ProbeSpec() {
  static const SpecPtr spec = [] {
    auto made = std::make_shared<RequestSpec>();
    made->prompt = {0};
    return made;
  }();
  return spec;
}

int64_t TokensOf(const RunStep& step) {
  int64_t tokens = 0;
  for (const StepSequence& sequence : step.sequences) tokens += sequence.count;
  return std::max<int64_t>(tokens, 1);
}

}  // namespace

absl::Status EngineWatch::EndOfRequests() const {
  return absl::UnavailableError(
      absl::StrCat("the engine failed: ", std::string(status_.message())));
}

void EngineWatch::Fail(const absl::Status& status, const std::vector<StepSequence>& step) {
  SKEIN_CHECK(ok() && !status.ok());
  status_ = status;
  stepping_ = false;
  for (const StepSequence& sequence : step) failed_under_.insert(sequence.id);
}

void EngineWatch::Begin(const RunStep& step, TimeUs now) {
  SKEIN_CHECK(ok() && !stepping_ && !step.sequences.empty());
  const RingPart* part = step.sequences.front().ring.get();
  stepping_ = true;
  probe_ = step.probe;
  probes_ += step.probe ? 1 : 0;
  joint_ = step.IsJoint();
  const TimeUs estimated_us = part != nullptr ? part->estimated_us : 0;
  const TimeUs deadline_us = part != nullptr ? part->deadline_us : step.deadline_us;
  returns_us_ = joint_ ? std::max(kReturnUs, estimated_us / kChunkParts) : 0;
  tokens_ = TokensOf(step);
  since_us_ = joint_ ? std::max(deadline_us, now) : now;
  overdue_us_ = since_us_ + config_.step_timeout_us;
}

void EngineWatch::Abort(TimeUs now) {
  if (!stepping_ || !joint_) return;
  since_us_ = std::min(since_us_, now);
  overdue_us_ = since_us_ + config_.step_timeout_us;
}

void EngineWatch::End(TimeUs now) {
  SKEIN_CHECK(stepping_);
  stepping_ = false;
  proven_ = true;
  next_probe_us_ = now + config_.probe_interval_us;
  if (joint_) return;  // it took the others' time
  recent_.push_back({tokens_, now - since_us_});
  if (recent_.size() > kRecentSteps) recent_.pop_front();
}

absl::Status EngineWatch::OverdueStatus() const {
  const double seconds = static_cast<double>(config_.step_timeout_us) / kSecondUs;
  return absl::DeadlineExceededError(
      absl::StrCat("a step (", tokens_, tokens_ == 1 ? " token" : " tokens",
                   ") did not end within ", seconds, " s (--step-timeout-s)"));
}

bool EngineWatch::ProbeDue(TimeUs now) const {
  return CanProbe() && ok() && !stepping_ && now >= next_probe_us_;
}

RunStep EngineWatch::Probe(uint64_t step) const {
  RunStep probe{.step = step, .sequences = {}, .probe = true};
  probe.sequences.push_back({.id = {},
                             .epoch = {},
                             .spec = ProbeSpec(),
                             .position = 0,
                             .count = 1,
                             .blocks = std::make_shared<const std::vector<BlockId>>(
                                 std::vector<BlockId>{config_.probe_block}),
                             .sample = true});
  return probe;
}

TimeUs EngineWatch::NextDeadline(bool may_probe) const {
  if (stepping_) return overdue_us_;
  return may_probe && ok() && CanProbe() ? next_probe_us_ : kNever;
}

TimeUs EngineWatch::StepAgeUs(TimeUs now) const {
  return stepping_ ? std::max<TimeUs>(now - since_us_, 0) : 0;
}

// A step of fewer tokens than the one in flight is scaled up, one of more is not scaled down: the
// estimate errs to the long side, but no step may take longer than the timeout.
TimeUs EngineWatch::StepEstimateUs() const {
  if (!stepping_) return 0;
  if (joint_) return std::min(returns_us_, config_.step_timeout_us);
  double longest_us = 0;
  for (const Measured& step : recent_) {
    const double scale = static_cast<double>(tokens_) / static_cast<double>(step.tokens);
    longest_us = std::max(longest_us, static_cast<double>(step.took_us) * std::max(scale, 1.0));
  }
  return static_cast<TimeUs>(std::min(longest_us, static_cast<double>(config_.step_timeout_us)));
}

absl::Status EngineWatch::CheckInvariants() const {
  if (!stepping_) return absl::OkStatus();
  if (!ok()) return absl::InternalError("EngineWatch: a step is in flight at a failed engine");
  if (overdue_us_ == since_us_ + config_.step_timeout_us) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("EngineWatch: a step whose age counts from ", since_us_,
                                          " is overdue at ", overdue_us_, ", with a timeout of ",
                                          config_.step_timeout_us));
}

}  // namespace skein::scheduler
