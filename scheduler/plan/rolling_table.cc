#include "scheduler/plan/rolling_table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"

namespace skein::scheduler {

absl::StatusOr<RollingTable> RollingTable::Make(std::vector<RollingSetting> rows) {
  if (rows.empty()) return absl::InvalidArgumentError("rows: none");
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
    if (!(row.price >= 0 && row.price < 1)) return bad("price");
    if (!(row.slack >= 0 && std::isfinite(row.slack))) return bad("slack");
    before = row.requests_per_s;
  }
  RollingTable table;
  table.rows_ = std::move(rows);
  return table;
}

RollingTable RollingTable::Constant(const RollingSetting& setting) {
  RollingTable table;
  table.rows_ = {setting};
  return table;
}

const RollingSetting& RollingTable::At(double requests_per_s) const {
  return *std::min_element(rows_.begin(), rows_.end(), [&](const auto& a, const auto& b) {
    return std::abs(a.requests_per_s - requests_per_s) <
           std::abs(b.requests_per_s - requests_per_s);
  });
}

RollingSelector::RollingSelector(RollingTable table, TimeUs window_us, TimeUs period_us)
    : table_(std::move(table)), window_(window_us), period_us_(period_us), setting_(table_.At(0)) {}

void RollingSelector::OnArrival(TimeUs now) { window_.OnArrival(now); }

const RollingSetting& RollingSelector::Setting(TimeUs now) {
  if (!started_) {  // the first window must fill before it says anything
    started_ = true;
    next_pick_us_ = now + period_us_;
  }
  if (now >= next_pick_us_) {
    setting_ = table_.At(window_.RequestsPerSecond(now));
    next_pick_us_ = now + period_us_;
  }
  return setting_;
}

}  // namespace skein::scheduler
