// Text for people: tables, durations.
#pragma once

#include <string>
#include <vector>

namespace skein::services {

// Rows of equally many cells, the headings first, in aligned columns; columns of numbers are
// aligned at the right.
std::string AlignedTable(const std::vector<std::vector<std::string>>& rows);

// The same of the columns that fit into `width` characters: what fits of those headings of
// `by_importance`, the most important first. Headings that it lacks come last.
std::string FittedTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<std::string>& by_importance, size_t width);

// In the largest two units: "0.2 s", "12 s", "3 min 5 s", "2 h 1 min", "4 d 3 h".
std::string DurationText(double seconds);

}  // namespace skein::services
