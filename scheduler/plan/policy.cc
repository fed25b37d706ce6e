#include "scheduler/plan/policy.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace skein::scheduler {

absl::StatusOr<Policy> Policy::Parse(std::string_view name) {
  const std::string text(name);
  if (text == "tetris") return Policy{text, Kind::kTetris, 0};
  if (text == "single") return Policy{text, Kind::kSingle, 0};
  if (text == "greedy") return Policy{text, Kind::kGreedy, 0};
  if (text == "rolling") return Policy{text, Kind::kRolling, 0};
  if (text == "random") return Policy{text, Kind::kRandom, 0};
  int sp = 0;
  if (text.starts_with("fixed") && absl::SimpleAtoi(text.substr(5), &sp) && sp > 0) {
    return Policy{text, Kind::kFixed, sp};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not tetris, rolling, single, greedy or fixedN with an SP size N"));
}

absl::Status CheckPolicy(const Policy& policy, const LatencyModel& model, const Cluster& cluster) {
  if (policy.kind == Policy::Kind::kRandom) {
    return absl::InvalidArgumentError("'random' is for live clusters only");
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
