// Chooses the planner's improvement rate: Tetris sections 5.1 and 7.1. A table, made offline by
// simulation, holds the best rate per load. Online, the arrival rate over a sliding window selects
// a row every 30 seconds.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

class ImprovementRateTable {
 public:
  struct Row {
    double requests_per_s = 0;
    double improvement_rate = 0;

    bool operator==(const Row&) const = default;
  };

  // INVALID_ARGUMENT names the row: none; loads that are not ascending, negative or not finite; a
  // rate outside [0, 1).
  static absl::StatusOr<ImprovementRateTable> Make(std::vector<Row> rows);
  // The same rate at any load. REQUIRES 0 <= improvement_rate < 1.
  static ImprovementRateTable Constant(double improvement_rate);

  // The rate of the nearest load; of equally near ones the lower load.
  double RateAt(double requests_per_s) const;
  const std::vector<Row>& rows() const { return rows_; }  // ascending loads, not empty

 private:
  std::vector<Row> rows_;
};

// Arrivals per second over the last `window_us`. `now` never decreases.
class SlidingWindowRate {
 public:
  explicit SlidingWindowRate(TimeUs window_us);

  void OnArrival(TimeUs now);
  // Over the window, or over the time since the first call if shorter (at least 1 s).
  double RequestsPerSecond(TimeUs now);

 private:
  static constexpr int kBuckets = 60;

  void Advance(TimeUs now);

  TimeUs bucket_us_;
  TimeUs first_us_ = kNever;
  int64_t last_bucket_ = 0;
  std::deque<int64_t> arrivals_;  // in the last kBuckets buckets, newest last
  int64_t total_ = 0;
};

// The rate in use. Changes only every 30 s, or by Replace.
class ImprovementRateSelector {
 public:
  explicit ImprovementRateSelector(ImprovementRateTable table, TimeUs window_us = 30 * kSecondUs,
                                   TimeUs period_us = 30 * kSecondUs);

  void OnArrival(TimeUs now);
  double Rate(TimeUs now);
  // Takes effect with the next call.
  void Replace(ImprovementRateTable table);

 private:
  ImprovementRateTable table_;
  SlidingWindowRate window_;
  TimeUs period_us_;
  TimeUs next_pick_us_;
  bool started_ = false;
  double rate_;
};

}  // namespace skein::scheduler
