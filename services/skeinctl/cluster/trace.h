// skeinctl trace: the spans of one request through all processes, as a tree drawn over its time.
// Needs no collector: each process is asked for the spans that it has kept (/debug/trace).
#pragma once

#include <string>
#include <vector>

#include "services/flags/flags.h"
#include "services/skeinctl/cluster/trace_tree.h"

namespace skein::services {

struct TraceFlags {
  std::string request;
  std::string orchestrator;
  std::string also;
  std::string format = "text";
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h; kNotFound if no process has spans of the request.
int RunTrace(const TraceFlags& flags);

// Pure. Why nothing was found, and what to do: `known`: the orchestrator can explain the request.
std::string WhyNoTrace(const std::string& request, const std::vector<ProcessSpans>& asked,
                       bool known);

}  // namespace skein::services
