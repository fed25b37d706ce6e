#include "services/admin/drain_arguments.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace skein::services {
namespace {

constexpr double kWaitMaxS = 3600;

BadArgument NotA(const std::string& name, const std::string& value, const std::string& wanted) {
  return {name, name + ": '" + value + "' is not " + wanted};
}

bool ReadWait(const std::string& value, double* wait_s) {
  char* end = nullptr;
  *wait_s = std::strtod(value.c_str(), &end);
  return !value.empty() && *end == '\0' && *wait_s >= 0 && *wait_s <= kWaitMaxS;
}

// The pieces between '&', as names and values.
std::vector<std::pair<std::string, std::string>> Split(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const std::string_view piece = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), piece.size() + 1));
    const size_t equals = std::min(piece.find('='), piece.size());
    if (piece.empty()) continue;
    pairs.emplace_back(piece.substr(0, equals), piece.substr(std::min(piece.size(), equals + 1)));
  }
  return pairs;
}

}  // namespace

std::variant<DrainArguments, BadArgument> ParseDrainArguments(std::string_view query) {
  DrainArguments out;
  std::set<std::string> seen;
  for (const auto& [name, value] : Split(query)) {
    if (!seen.insert(name).second) return BadArgument{name, name + ": given twice"};
    if (name == "wait_s") {
      if (!ReadWait(value, &out.wait_s)) return NotA(name, value, "a number from 0 to 3600");
    } else if (name == "force") {
      out.force = value == "1" || value == "true";
      if (!out.force && value != "0" && value != "false") {
        return NotA(name, value, "0, 1, false or true");
      }
    } else {
      return BadArgument{name, "'" + name + "' is unknown; known: wait_s, force"};
    }
  }
  return out;
}

}  // namespace skein::services
