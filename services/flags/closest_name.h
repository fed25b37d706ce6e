// The known name closest to an unknown one, for "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::services {

// The name that differs from `name` by the fewest inserted, deleted, changed or swapped letters.
// Empty if the difference is more than 2 letters or more than a third of the letters.
std::string ClosestName(std::string_view name, const std::vector<std::string>& names);

// "; did you mean 'status'?", or empty.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names);

}  // namespace skein::services
