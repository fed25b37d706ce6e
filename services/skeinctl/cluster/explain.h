// skeinctl explain: how a request was planned, why alternatives were rejected, and how it ended.
#pragma once

#include <string>

#include "proto/orchestrator.pb.h"
#include "services/flags/flags.h"

namespace skein::services {

struct ExplainFlags {
  std::string request;
  std::string orchestrator;
  std::string format = "text";
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h; kNotFound for an unknown request.
int RunExplain(const ExplainFlags& flags);

// Pure: text for people, and one JSON object for programs.
std::string ExplainText(const v1::ExplainResponse& response);
std::string ExplainJson(const v1::ExplainResponse& response);

}  // namespace skein::services
