// Text for people: tables, durations.
#pragma once

#include <string>
#include <vector>

namespace skein::services {

// Rows of equally many cells, the headings first, in aligned columns; columns of numbers are
// aligned at the right.
std::string AlignedTable(const std::vector<std::vector<std::string>>& rows);

// In the largest two units: "0.2 s", "12 s", "3 min 5 s", "2 h 1 min", "4 d 3 h".
std::string DurationText(double seconds);

}  // namespace skein::services
