#include "services/skeinctl/terminal/table.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::services {
namespace {

constexpr size_t kGap = 2;  // spaces between columns

bool IsNumber(const std::string& cell) {
  return cell.find_first_not_of("0123456789.,+-%") == std::string::npos;
}

std::vector<size_t> ColumnWidths(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

}  // namespace

std::string AlignedTable(const std::vector<std::vector<std::string>>& rows) {
  const size_t columns = rows.front().size();
  const std::vector<size_t> widths = ColumnWidths(rows);
  std::vector<bool> right(columns, rows.size() > 1);
  for (size_t r = 1; r < rows.size(); ++r) {
    for (size_t i = 0; i < columns; ++i) {
      if (!IsNumber(rows[r][i])) right[i] = false;
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < columns; ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, right[i] ? padding : "", row[i], right[i] ? "" : padding,
                      std::string(kGap, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string FittedTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<std::string>& by_importance, size_t width) {
  const std::vector<size_t> widths = ColumnWidths(rows);
  const auto rank = [&](size_t column) {
    return std::find(by_importance.begin(), by_importance.end(), rows.front()[column]) -
           by_importance.begin();
  };
  std::vector<size_t> columns(widths.size());
  std::iota(columns.begin(), columns.end(), 0);
  std::stable_sort(columns.begin(), columns.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  size_t used = 0;
  size_t count = 0;
  while (count < columns.size() && used + widths[columns[count]] <= width) {
    used += widths[columns[count++]] + kGap;
  }
  columns.resize(std::max<size_t>(count, 1));
  std::sort(columns.begin(), columns.end());
  std::vector<std::vector<std::string>> fitted;
  for (const auto& row : rows) {
    fitted.emplace_back();
    for (const size_t column : columns) fitted.back().push_back(row[column]);
  }
  return AlignedTable(fitted);
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
