#include "scheduler/plan/policy.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

constexpr std::string_view kPipeline = "pipeline";
constexpr std::string_view kDynamic = "dynamic";

bool ParsePipeline(std::string_view text, Policy* policy) {
  if (!text.starts_with(kPipeline)) return false;
  text.remove_prefix(kPipeline.size());
  policy->dynamic = text.ends_with(kDynamic);
  if (policy->dynamic) text.remove_suffix(kDynamic.size());
  policy->kind = Policy::Kind::kPipeline;
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &policy->stages) &&
         policy->stages > 0;
}

}  // namespace

absl::StatusOr<Policy> Policy::Parse(std::string_view name) {
  const std::string text(name);
  if (text == "tetris") return Policy{text, Kind::kTetris};
  if (text == "single") return Policy{text, Kind::kSingle};
  if (text == "greedy") return Policy{text, Kind::kGreedy};
  if (text == "rolling") return Policy{text, Kind::kRolling};
  if (text == "random") return Policy{text, Kind::kRandom};
  if (text == "loongserve") return Policy{text, Kind::kLoongServe};
  if (Policy pipeline{text}; ParsePipeline(text, &pipeline)) return pipeline;
  int sp = 0;
  if (text.starts_with("fixed") && absl::SimpleAtoi(text.substr(5), &sp) && sp > 0) {
    return Policy{text, Kind::kFixed, sp};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "' is not tetris, rolling, single, greedy, fixedN with an SP size N, pipelineN or "
      "pipelineNdynamic with N stages, or loongserve"));
}

absl::Status CheckPolicy(const Policy& policy, const LatencyModel& model, const Cluster& cluster) {
  if (policy.kind == Policy::Kind::kRandom) {
    return absl::InvalidArgumentError("'random' is for live clusters only");
  }
  if (policy.kind == Policy::Kind::kPipeline) {
    if (!model.HasSp(1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", policy.name, "': the profile has no SP size 1"));
    }
    if (policy.stages > cluster.instances) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", policy.name, "' needs ", policy.stages, " instances"));
    }
  }
  if (policy.kind != Policy::Kind::kFixed) return absl::OkStatus();
  if (!model.HasSp(policy.sp)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", policy.name, "': the profile has no SP size ", policy.sp));
  }
  if (policy.sp > cluster.instances) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", policy.name, "' needs ", policy.sp, " instances"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
