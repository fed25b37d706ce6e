// skeinctl explain: how a request was planned, what else there was, and why not.
#pragma once

#include <string>

#include "proto/orchestrator.pb.h"

namespace skein::services {

// argv[0] is "explain". Exit code: 0; 1 when the orchestrator does not answer; 2 for wrong flags
// and for a request that the orchestrator does not know.
int ExplainCommand(int argc, char** argv);

// Pure: text for people, and one JSON object for programs.
std::string ExplainText(const v1::ExplainResponse& response);
std::string ExplainJson(const v1::ExplainResponse& response);

}  // namespace skein::services
