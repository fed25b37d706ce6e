// The spans that processes have kept of a request, as one tree, and its drawing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace skein::services {

// As /debug/trace writes it (services/tracing/trace_page.h).
struct KeptSpan {
  std::string trace, span, parent;  // hexadecimal; no parent: ""
  std::string name;
  int64_t start_ns = 0;  // since 1970, by the clock of its process's host
  int64_t end_ns = 0;
  nlohmann::ordered_json attributes = nlohmann::ordered_json::object();
  struct Event {
    int64_t at_ns = 0;
    std::string name;
    nlohmann::ordered_json attributes = nlohmann::ordered_json::object();
  };
  std::vector<Event> events;
  bool failed = false;
  std::string failure;
  std::string process;  // that has kept it
};

// What one process says.
struct ProcessSpans {
  std::string process;  // "router 127.0.0.1:7001"
  std::string error;    // it did not answer; ""
  bool tracing = false;
  std::vector<KeptSpan> spans;
};

// Of an answer of /debug/trace. One that is no such JSON becomes an error.
ProcessSpans ParseSpans(const std::string& process, const std::string& json);

// One trace. `spans[i]` is a child of `spans[parents[i]]`, or a root (-1). Roots and siblings stand
// in the order of their beginnings, each before its children.
struct TraceTree {
  std::vector<KeptSpan> spans;
  std::vector<int> parents;
  std::vector<int> depths;
  std::vector<std::string> silent;  // processes that did not answer, and why
  size_t other_traces = 0;          // that the same name belongs to, and that began earlier

  // The part of the first root's time, in [0, 1], that spans without children cover together.
  double Covered() const;
  // By how much spans of other processes lie outside their parents' time, at the most: what clocks
  // of hosts differ by, or messages that were on their way when the parent ended.
  int64_t OutsideNs() const;
};

// The latest trace of all that the processes tell of. No spans: an empty tree.
TraceTree TreeOf(std::vector<ProcessSpans> processes);

// A line for each span, and one for each event: name, process, beginning, duration, a bar over the
// request's time, and what its attributes say. `bar`: characters of the bar.
std::string TraceText(const TraceTree& tree, int bar = 32);
std::string TraceJson(const TraceTree& tree);

}  // namespace skein::services
