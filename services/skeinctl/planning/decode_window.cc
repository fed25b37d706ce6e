#include "services/skeinctl/planning/decode_window.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::services {
namespace {

// What one target ran in a mode.
struct Ran {
  double steps = 0;
  double tokens = 0;
};

Ran RanBetween(const DecodeWindow& window, const std::string& mode, int32_t ranks) {
  const auto at = [&](const std::map<std::pair<std::string, int>, double>& numbers) {
    const auto found = numbers.find({mode, ranks});
    return found == numbers.end() ? 0 : found->second;
  };
  return {at(window.last.steps) - at(window.first.steps),
          at(window.last.step_tokens) - at(window.first.step_tokens)};
}

// Of a bound group the mode is "tp", or that of its base: "sp", or "sp_tp" with a tp above 1.
absl::StatusOr<DecodeSample> SampleOf(const DecodeWindow& window) {
  DecodeSample sample{.instances = window.target.instances};
  Ran ran;
  if (sample.instances == 1) {
    ran = RanBetween(window, "own", 1);
  } else {
    const Ran tp = RanBetween(window, "tp", sample.instances);
    const bool pure = window.target.base_tp == 1;
    const Ran base = RanBetween(window, pure ? "sp" : "sp_tp", sample.instances);
    const Ran other = RanBetween(window, pure ? "sp_tp" : "sp", sample.instances);
    if (other.steps > 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%.0f steps ran in %s, which was not ordered", other.steps, pure ? "SP x TP" : "SP"));
    }
    if (tp.steps > 0 && base.steps > 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%.0f steps ran in TP and %.0f in %s", tp.steps, base.steps, pure ? "SP" : "SP x TP"));
    }
    if (base.steps > 0) {
      sample.mode = DecodeMode::kBase;
      sample.base_tp = window.target.base_tp;
    } else {
      sample.mode = DecodeMode::kTp;
    }
    ran = base.steps > 0 ? base : tp;
    if (const Ran own = RanBetween(window, "own", 1); own.tokens > 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("a bound instance ran %.0f steps alone", own.steps));
    }
  }
  if (ran.steps <= 0) return sample;
  sample.tokens = ran.tokens / ran.steps;
  sample.seconds = window.seconds / ran.steps;
  return sample;
}

}  // namespace

absl::StatusOr<std::vector<DecodeTarget>> DecodeTargets(const v1::ListGroupsResponse& groups,
                                                        const std::string& model) {
  std::vector<DecodeTarget> targets;
  for (const v1::GroupStatus& group : groups.groups()) {
    if (group.role() != v1::ROLE_DECODE || group.model() != model) continue;
    for (const v1::GroupStatus::Formation& formation : group.formations()) {
      if (formation.stage() != "stands") {
        return absl::FailedPreconditionError(absl::StrCat(
            "group ", group.name(), ": ", formation.name(), " is ", formation.stage()));
      }
      if (formation.epoch() != 0) {
        targets.push_back({formation.members(0), formation.members_size()});
        continue;
      }
      for (const uint64_t member : formation.members()) targets.push_back({member, 1});
    }
  }
  return targets;
}

absl::StatusOr<std::vector<DecodeSample>> SamplesOf(const std::vector<DecodeWindow>& windows,
                                                    int32_t size, int64_t streams,
                                                    int64_t least_steps) {
  std::vector<DecodeSample> samples;
  double tokens = 0;
  for (const DecodeWindow& window : windows) {
    auto sample = SampleOf(window);
    if (!sample.ok()) return sample.status();
    tokens += sample->tokens;
    sample->streams = streams;
    const bool busy =
        sample->seconds > 0 && window.seconds / sample->seconds >= static_cast<double>(least_steps);
    if (busy && sample->instances == size) samples.push_back(*sample);
  }
  // A stream pauses for a step now and then; a stream more or less is a whole token a step.
  if (std::abs(tokens - static_cast<double>(streams)) < 0.5) return samples;
  return absl::FailedPreconditionError(absl::StrFormat(
      "%d streams ran %.2f tokens a step: other requests ran, or some waited", streams, tokens));
}

std::vector<int64_t> StreamCounts(int64_t targets, int64_t instances, int64_t most) {
  std::set<int64_t> counts = {1, instances};
  for (int64_t each = 1; each <= most; each *= 2) counts.insert(each * targets);
  return {counts.begin(), counts.end()};
}

}  // namespace skein::services
