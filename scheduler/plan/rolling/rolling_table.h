// Tuning of the rolling planner: a table of settings per load, made offline by simulation. Online,
// the arrival rate over a sliding window selects a row every 30 seconds, as Tetris selects its
// improvement rate (section 5.1).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/base/time.h"
#include "scheduler/plan/improvement_rate.h"
#include "scheduler/plan/rolling/rolling_tuning.h"

namespace skein::scheduler {

struct RollingSetting {
  double requests_per_s = 0;
  RollingTuning tuning;
};

class RollingTable {
 public:
  // INVALID_ARGUMENT names the row: none; loads that are not ascending, negative or not finite; a
  // price outside [0, 1); another number that is negative or not finite.
  static absl::StatusOr<RollingTable> Make(std::vector<RollingSetting> rows);
  static RollingTable Constant(const RollingTuning& tuning);

  // The row of the nearest load; of equally near ones the lower.
  const RollingTuning& At(double requests_per_s) const;
  const std::vector<RollingSetting>& rows() const { return rows_; }  // ascending loads, not empty

 private:
  std::vector<RollingSetting> rows_;
};

// The tuning in use. Changes only every 30 s, or by Replace.
class RollingSelector {
 public:
  explicit RollingSelector(RollingTable table, TimeUs window_us = 30 * kSecondUs,
                           TimeUs period_us = 30 * kSecondUs);

  void OnArrival(TimeUs now);
  const RollingTuning& Current(TimeUs now);
  // Takes effect with the next call.
  void Replace(RollingTable table);

 private:
  RollingTable table_;
  SlidingWindowRate window_;
  TimeUs period_us_;
  TimeUs next_pick_us_ = 0;
  bool started_ = false;
  RollingTuning tuning_;
};

}  // namespace skein::scheduler
