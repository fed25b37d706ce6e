#include "tests/sim/coverage.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace skein::sim {

void Coverage::Add(const Coverage& other) {
  for (const auto& [core, from] : other.tables_) {
    Table& to = tables_[core];
    to.states = from.states;
    to.events = from.events;
    for (const auto& [pair, count] : from.counts) to.counts[pair] += count;
    for (const auto& [state, count] : from.entered) to.entered[state] += count;
  }
}

std::string Coverage::Lines() const {
  std::string lines;
  for (const auto& [core, table] : tables_) {
    absl::StrAppend(&lines, "events ", std::string(core), ":");
    for (const std::string_view event : table.events) {
      absl::StrAppend(&lines, " ", std::string(event));
    }
    absl::StrAppend(&lines, "\nentered ", std::string(core), ":");
    for (const auto& [state, count] : table.entered) {
      absl::StrAppend(&lines, " ", std::string(state), "=", count);
    }
    absl::StrAppend(&lines, "\n");
    std::vector<std::string_view> states = table.states;
    states.insert(states.end(), {kNoRequest, kNotOfOne});
    for (const std::string_view state : states) {
      absl::StrAppend(&lines, "reached ", std::string(core), " ", std::string(state), ":");
      for (const auto& [pair, count] : table.counts) {
        if (pair.first == state) absl::StrAppend(&lines, " ", std::string(pair.second), "=", count);
      }
      absl::StrAppend(&lines, "\n");
    }
  }
  return lines;
}

std::string Coverage::Report() const {
  std::string report;
  for (const auto& [core, table] : tables_) {
    std::string never, absent;
    size_t pairs = 0, reached = 0;
    std::set<std::string_view> came;
    for (const auto& [pair, count] : table.counts) came.insert(pair.second);
    for (const std::string_view event : table.events) {
      if (!came.contains(event)) absl::StrAppend(&absent, " ", std::string(event));
    }
    if (!absent.empty())
      absl::StrAppend(&never, "  ", std::string(core), " in no state:", absent, "\n");
    std::vector<std::string_view> states = table.states;
    states.push_back(kNoRequest);
    for (const std::string_view state : states) {
      std::string missing;
      for (const std::string_view event : table.events) {
        if (!came.contains(event) || table.counts.contains({kNotOfOne, event})) continue;
        ++pairs;
        if (table.counts.contains({state, event})) {
          ++reached;
        } else {
          absl::StrAppend(&missing, " ", std::string(event));
        }
      }
      if (!missing.empty()) {
        absl::StrAppend(&never, "  ", std::string(core), " ", std::string(state), ":", missing,
                        "\n");
      }
    }
    absl::StrAppend(&report, std::string(core), ": ", reached, " of ", pairs,
                    " pairs of a request's state and an event were reached; never:\n", never);
  }
  return report;
}

}  // namespace skein::sim
