// Text for people: tables and durations.
#pragma once

#include <string>
#include <vector>

namespace skein::services {

// Aligned columns from rows of equal length, headings first. Columns of numbers are right-aligned.
std::string AlignedTable(const std::vector<std::vector<std::string>>& rows);

// The same with only the columns that fit into `width` characters, by the order of `by_importance`,
// most important first. Headings not listed come last.
std::string FittedTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<std::string>& by_importance, size_t width);

// In the largest two units: "0.2 s", "12 s", "3 min 5 s", "2 h 1 min", "4 d 3 h".
std::string DurationText(double seconds);

}  // namespace skein::services
