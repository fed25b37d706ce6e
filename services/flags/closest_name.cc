#include "services/flags/closest_name.h"

#include <algorithm>

namespace skein::services {
namespace {

// Levenshtein distance; swapping two neighbours counts as one change.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t changed = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({changed, distance[i - 1][j] + 1, distance[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string ClosestName(std::string_view name, const std::vector<std::string>& names) {
  std::string closest;
  size_t best = std::min<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : names) {
    const size_t distance = Distance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    closest = candidate;
  }
  return closest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& names) {
  const std::string closest = ClosestName(name, names);
  return closest.empty() ? "" : "; did you mean '" + closest + "'?";
}

}  // namespace skein::services
