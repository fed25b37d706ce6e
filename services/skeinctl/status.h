// skeinctl status: what the orchestrator knows of its instances.
#pragma once

#include <string>

#include "proto/orchestrator.pb.h"
#include "services/base/flags.h"

namespace skein::services {

struct StatusFlags {
  std::string orchestrator = "127.0.0.1:7100";
  std::string format = "table";

  void Register(FlagSet* set);
};

// Exit code: 0; 1 when the orchestrator does not answer.
int RunStatus(const StatusFlags& flags);

// Pure: a table for people, and one JSON object for programs.
std::string StatusTable(const v1::StatusResponse& status);
std::string StatusJson(const v1::StatusResponse& status);

}  // namespace skein::services
