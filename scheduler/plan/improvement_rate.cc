#include "scheduler/plan/improvement_rate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

absl::StatusOr<ImprovementRateTable> ImprovementRateTable::Make(std::vector<Row> rows) {
  if (rows.empty()) return absl::InvalidArgumentError("improvement rates: there is no row");
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [load, rate] = rows[i];
    if (!std::isfinite(load) || load < 0 || (i > 0 && load <= rows[i - 1].requests_per_s)) {
      return absl::InvalidArgumentError(
          absl::StrCat("improvement rates: row ", i, ": requests_per_s is ", load,
                       "; loads must ascend, be finite and not negative"));
    }
    if (!(rate >= 0 && rate < 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "improvement rates: row ", i, ": improvement_rate is ", rate, "; it must be in [0, 1)"));
    }
  }
  ImprovementRateTable table;
  table.rows_ = std::move(rows);
  return table;
}

ImprovementRateTable ImprovementRateTable::Constant(double improvement_rate) {
  SKEIN_CHECK(improvement_rate >= 0 && improvement_rate < 1);
  ImprovementRateTable table;
  table.rows_ = {{0, improvement_rate}};
  return table;
}

double ImprovementRateTable::RateAt(double requests_per_s) const {
  const auto above =
      std::lower_bound(rows_.begin(), rows_.end(), requests_per_s,
                       [](const Row& row, double load) { return row.requests_per_s < load; });
  if (above == rows_.begin()) return above->improvement_rate;
  const auto below = above - 1;
  if (above == rows_.end()) return below->improvement_rate;
  const bool below_is_nearer =
      requests_per_s - below->requests_per_s <= above->requests_per_s - requests_per_s;
  return (below_is_nearer ? below : above)->improvement_rate;
}

SlidingWindowRate::SlidingWindowRate(TimeUs window_us)
    : bucket_us_(std::max<TimeUs>(1, window_us / kBuckets)), arrivals_(kBuckets, 0) {}

void SlidingWindowRate::Advance(TimeUs now) {
  const int64_t bucket = now / bucket_us_;
  if (first_us_ == kNever) {
    first_us_ = now;
    last_bucket_ = bucket;
  }
  const int64_t steps = std::min<int64_t>(bucket - last_bucket_, kBuckets);
  for (int64_t i = 0; i < steps; ++i) {
    total_ -= arrivals_.front();
    arrivals_.pop_front();
    arrivals_.push_back(0);
  }
  last_bucket_ = std::max(last_bucket_, bucket);
}

void SlidingWindowRate::OnArrival(TimeUs now) {
  Advance(now);
  ++arrivals_.back();
  ++total_;
}

double SlidingWindowRate::RequestsPerSecond(TimeUs now) {
  Advance(now);
  // The oldest bucket is complete, the newest only as long as it has lasted.
  const TimeUs oldest_us = (last_bucket_ - kBuckets + 1) * bucket_us_;
  const TimeUs since_us = std::max(now - std::max(oldest_us, first_us_), kSecondUs);
  return static_cast<double>(total_) * kSecondUs / static_cast<double>(since_us);
}

ImprovementRateSelector::ImprovementRateSelector(ImprovementRateTable table, TimeUs window_us,
                                                 TimeUs period_us)
    : table_(std::move(table)),
      window_(window_us),
      period_us_(period_us),
      next_pick_us_(0),
      rate_(table_.RateAt(0)) {}

void ImprovementRateSelector::OnArrival(TimeUs now) {
  window_.OnArrival(now);
  Rate(now);
}

double ImprovementRateSelector::Rate(TimeUs now) {
  if (!started_) {  // no result before the first window is full
    started_ = true;
    next_pick_us_ = now + period_us_;
  }
  if (now >= next_pick_us_) {
    rate_ = table_.RateAt(window_.RequestsPerSecond(now));
    next_pick_us_ = now + period_us_;
  }
  return rate_;
}

void ImprovementRateSelector::Replace(ImprovementRateTable table) {
  table_ = std::move(table);
  if (started_)
    next_pick_us_ = 0;
  else
    rate_ = table_.RateAt(0);
}

}  // namespace skein::scheduler
