// The known name that is closest to an unknown one, for "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::services {

// The name that differs from `name` by the fewest letters inserted, deleted, changed or swapped.
// Empty if none is close: a difference of more than 2 letters, or of more than a third of the
// letters, is too large.
std::string ClosestName(std::string_view name, const std::vector<std::string>& names);

// "; did you mean 'status'?", or nothing.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names);

}  // namespace skein::services
