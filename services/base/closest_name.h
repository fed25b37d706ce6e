// What somebody may have meant who wrote a name that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::services {

// The name that differs from `name` by the fewest letters put in, left out, changed or swapped;
// empty if none is close: more than 2 of them, or more than a third of the letters, are another
// name.
std::string ClosestName(std::string_view name, const std::vector<std::string>& names);

// "; did you mean 'status'?", or nothing.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names);

}  // namespace skein::services
