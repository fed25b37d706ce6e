// StepShare: whether the next step of a bound group is one of the group's batch or one of each
// rank's own. Each kind gets steps in proportion to the tokens that wait for it, or by a fixed
// share, and at least one step in kLeastSteps: neither starves.
#pragma once

#include <algorithm>
#include <cstdint>

namespace skein::scheduler {

class StepShare {
 public:
  static constexpr double kLeastSteps = 16;

  // `own_share`: of the steps, for own batches while both kinds have work; 0: by waiting tokens.
  explicit StepShare(double own_share) : own_share_(own_share) {}

  // Tokens that a step of each kind would run now; not both 0. Counts the step.
  bool NextIsOwn(int64_t own_tokens, int64_t group_tokens) {
    if (own_tokens == 0 || group_tokens == 0) {
      owed_ = 0;
      return group_tokens == 0;
    }
    const auto own = static_cast<double>(own_tokens);
    const double fair =
        own_share_ > 0 ? own_share_ : own / (own + static_cast<double>(group_tokens));
    owed_ += std::clamp(fair, 1 / kLeastSteps, 1 - 1 / kLeastSteps);
    if (owed_ < 1) return false;
    owed_ -= 1;
    return true;
  }

 private:
  const double own_share_;
  double owed_ = 0;  // of an own step
};

}  // namespace skein::scheduler
