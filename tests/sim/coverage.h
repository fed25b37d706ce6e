// Counts the events that a core has handled, by the request's state. A (state, event) pair that no
// run has reached is untested, even if all seeds pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tests/sim/virtual_time.h"

namespace skein::sim {

// The states that a core's StateOf may name, the core's name first.
struct CoreStates {
  std::string_view core;
  std::vector<std::string_view> states;
};
inline constexpr std::string_view kNoRequest = "none";       // the core has no such request
inline constexpr std::string_view kNotOfOne = "not-of-one";  // the event is not of a request

class Coverage {
 public:
  // An event of the variant `Event` that one of the processes of this kind handled.
  template <class Event>
  void Count(const CoreStates& states, std::string_view state, size_t event) {
    Table& table = tables_[states.core];
    if (table.events.empty()) {
      table.states = states.states;
      table.events = NamesOf<Event>(std::make_index_sequence<std::variant_size_v<Event>>());
    }
    ++table.counts[{state, table.events[event]}];
  }
  // Its own event brought a request into this state. REQUIRES: the event was counted.
  void Enter(const CoreStates& states, std::string_view state) {
    ++tables_.at(states.core).entered[state];
  }
  void Add(const Coverage& other);

  // For each core: a summary line, a line with the events that never came, and for each state a
  // line with the events that never came in it. Each request event is expected in every state,
  // kNoRequest included.
  std::string Report() const;
  // For tests/sim/coverage, which adds up what all runs reached: for each core "events CORE: ..."
  // with its events, "entered CORE: STATE=COUNT ..." with the states that requests entered by
  // events of their own, and for each state, the two of requests that are not there included,
  // "reached CORE STATE: EVENT=COUNT ..." with those that it handled in it.
  std::string Lines() const;

 private:
  struct Table {
    std::vector<std::string_view> states;
    std::vector<std::string_view> events;
    std::map<std::pair<std::string_view, std::string_view>, int64_t> counts;  // by state and event
    std::map<std::string_view, int64_t> entered;
  };
  template <class Event, size_t... index>
  static std::vector<std::string_view> NamesOf(std::index_sequence<index...>) {
    return {TypeName<std::variant_alternative_t<index, Event>>()...};
  }

  std::map<std::string_view, Table> tables_;
};

}  // namespace skein::sim
