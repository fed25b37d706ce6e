#include "scheduler/orchestrator/groups/shared_mode_policy.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::scheduler::orchestrator {

namespace {

constexpr char kNoThreshold[] =
    "the profile of this model and device does not say from which batch on WaS hides the reads of "
    "weights, so the mode is WaS";

// Of an instance, over all of them; those without work count as 0.
double MeanOf(const std::vector<int64_t>& batches) {
  if (batches.empty()) return 0;
  const int64_t all = std::accumulate(batches.begin(), batches.end(), int64_t{0});
  return static_cast<double>(all) / static_cast<double>(batches.size());
}

double Seconds(TimeUs us) { return static_cast<double>(us) / kSecondUs; }

}  // namespace

absl::Status CheckSharedMode(const SharedModeConfig& config) {
  if (config.threshold.has_value() && *config.threshold < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold: ", *config.threshold, " is below 1"));
  }
  if (!(config.leave_factor >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("leave_factor: ", config.leave_factor, " is below 1"));
  }
  if (config.persists_us < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("persists_us: ", config.persists_us, " is below 0"));
  }
  if (config.min_dwell_us < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_dwell_us: ", config.min_dwell_us, " is below 0"));
  }
  return absl::OkStatus();
}

SharedModePolicy::Choice SharedModePolicy::First(const std::vector<int64_t>& batches) const {
  if (!config_.threshold) return {SharedMode::kWas, kNoThreshold};
  const double batch = MeanOf(batches);
  const bool small = batch < static_cast<double>(*config_.threshold);
  return {small ? SharedMode::kCas : SharedMode::kWas,
          absl::StrFormat("a mean batch of %.1f, %s %d", batch, small ? "below" : "at least",
                          *config_.threshold)};
}

void SharedModePolicy::Began(SharedMode mode, TimeUs now) {
  mode_ = mode;
  since_us_ = now;
  beyond_us_.reset();
}

bool SharedModePolicy::IsBeyond(double batch) const {
  const auto threshold = static_cast<double>(*config_.threshold);
  return mode_ == SharedMode::kWas ? batch < threshold : batch >= threshold * config_.leave_factor;
}

SharedModePolicy::Choice SharedModePolicy::Look(const std::vector<int64_t>& batches, TimeUs now) {
  if (!config_.threshold) {  // an operator may have ordered CaS before
    const bool kept = now < since_us_ + config_.min_dwell_us;
    return {kept ? mode_ : SharedMode::kWas, kNoThreshold};
  }
  const double batch = MeanOf(batches);
  const double limit = static_cast<double>(*config_.threshold) *
                       (mode_ == SharedMode::kWas ? 1 : config_.leave_factor);
  std::string why = absl::StrFormat("a mean batch of %.1f, %s %.1f", batch,
                                    batch < limit ? "below" : "at least", limit);
  if (!IsBeyond(batch)) {
    beyond_us_.reset();
    return {mode_, std::move(why)};
  }
  if (!beyond_us_) beyond_us_ = now;
  const SharedMode other = mode_ == SharedMode::kWas ? SharedMode::kCas : SharedMode::kWas;
  if (now < *beyond_us_ + config_.persists_us) {
    absl::StrAppendFormat(&why, " for %.1f s; %s from %.1f s on", Seconds(now - *beyond_us_),
                          ToString(other), Seconds(config_.persists_us));
    return {mode_, std::move(why)};
  }
  if (now < since_us_ + config_.min_dwell_us) {
    absl::StrAppendFormat(&why, "; %s is kept for %.1f s, and is %.1f s old", ToString(mode_),
                          Seconds(config_.min_dwell_us), Seconds(now - since_us_));
    return {mode_, std::move(why)};
  }
  absl::StrAppendFormat(&why, " for %.1f s", Seconds(now - *beyond_us_));
  return {other, std::move(why)};
}

absl::Status SharedModePolicy::CheckInvariants() const {
  if (beyond_us_ && !config_.threshold) {
    return absl::InternalError("SharedModePolicy: a batch is beyond a threshold that is not there");
  }
  if (beyond_us_ && *beyond_us_ < since_us_) {
    return absl::InternalError("SharedModePolicy: a batch of a former mode is remembered");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
