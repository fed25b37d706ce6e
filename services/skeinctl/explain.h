// skeinctl explain: how a request was planned, what else there was, and why not.
#pragma once

#include <string>

#include "proto/orchestrator.pb.h"
#include "services/base/flags.h"

namespace skein::services {

struct ExplainFlags {
  std::string request;
  std::string orchestrator = "127.0.0.1:7100";
  std::string format = "text";

  void Register(FlagSet* set);
};

// Exit code: 0; 1 when the orchestrator does not answer; 2 for a request that it does not know.
int RunExplain(const ExplainFlags& flags);

// Pure: text for people, and one JSON object for programs.
std::string ExplainText(const v1::ExplainResponse& response);
std::string ExplainJson(const v1::ExplainResponse& response);

}  // namespace skein::services
