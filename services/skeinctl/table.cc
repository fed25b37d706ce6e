#include "services/skeinctl/table.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::services {
namespace {

bool IsNumber(const std::string& cell) {
  return cell.find_first_not_of("0123456789.,+-%") == std::string::npos;
}

}  // namespace

std::string AlignedTable(const std::vector<std::vector<std::string>>& rows) {
  const size_t columns = rows.front().size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> right(columns, rows.size() > 1);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < columns; ++i) {
      widths[i] = std::max(widths[i], rows[r][i].size());
      if (r > 0 && !IsNumber(rows[r][i])) right[i] = false;
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < columns; ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, right[i] ? padding : "", row[i], right[i] ? "" : padding, "  ");
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string DurationText(double seconds) {
  if (seconds < 10) return absl::StrFormat("%.1f s", std::max(seconds, 0.0));
  const auto whole = static_cast<int64_t>(seconds);
  const struct {
    int64_t length;
    const char* unit;
    int64_t next;
    const char* next_unit;
  } units[] = {{86400, "d", 3600, "h"}, {3600, "h", 60, "min"}, {60, "min", 1, "s"}};
  for (const auto& unit : units) {
    if (whole < unit.length) continue;
    return absl::StrCat(whole / unit.length, " ", unit.unit, " ", whole % unit.length / unit.next,
                        " ", unit.next_unit);
  }
  return absl::StrCat(whole, " s");
}

}  // namespace skein::services
