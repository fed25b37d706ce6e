#include "scheduler/plan/rolling/rolling_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

absl::StatusOr<RollingTable> RollingTable::Make(std::vector<RollingSetting> rows) {
  if (rows.empty()) return absl::InvalidArgumentError("rows: there are none");
  double before = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RollingSetting& row = rows[i];
    const auto bad = [&](const char* field) {
      return absl::InvalidArgumentError(absl::StrCat("rows[", i, "].", field));
    };
    if (!std::isfinite(row.requests_per_s) || row.requests_per_s < 0 ||
        row.requests_per_s <= before) {
      return bad("requests_per_s");
    }
    const RollingTuning& tuning = row.tuning;
    if (!(tuning.price >= 0 && tuning.price < 1)) return bad("price");
    const std::pair<const char*, double> others[] = {{"slack", tuning.slack},
                                                     {"stretch", tuning.stretch},
                                                     {"waiting_weight", tuning.waiting_weight},
                                                     {"calm_s", tuning.calm_s}};
    for (const auto& [name, value] : others) {
      if (!(value >= 0 && std::isfinite(value))) return bad(name);
    }
    before = row.requests_per_s;
  }
  RollingTable table;
  table.rows_ = std::move(rows);
  return table;
}

RollingTable RollingTable::Constant(const RollingTuning& tuning) {
  RollingTable table;
  table.rows_ = {{0, tuning}};
  return table;
}

const RollingTuning& RollingTable::At(double requests_per_s) const {
  const auto nearest =
      std::min_element(rows_.begin(), rows_.end(), [&](const auto& a, const auto& b) {
        return std::abs(a.requests_per_s - requests_per_s) <
               std::abs(b.requests_per_s - requests_per_s);
      });
  return nearest->tuning;
}

RollingSelector::RollingSelector(RollingTable table, TimeUs window_us, TimeUs period_us)
    : table_(std::move(table)), window_(window_us), period_us_(period_us), tuning_(table_.At(0)) {}

void RollingSelector::OnArrival(TimeUs now) { window_.OnArrival(now); }

const RollingTuning& RollingSelector::Current(TimeUs now) {
  if (!started_) {  // no result before the first window is full
    started_ = true;
    next_pick_us_ = now + period_us_;
  }
  if (now >= next_pick_us_) {
    tuning_ = table_.At(window_.RequestsPerSecond(now));
    next_pick_us_ = now + period_us_;
  }
  return tuning_;
}

void RollingSelector::Replace(RollingTable table) {
  table_ = std::move(table);
  if (started_) {
    next_pick_us_ = 0;
  } else {
    tuning_ = table_.At(0);
  }
}

}  // namespace skein::scheduler
