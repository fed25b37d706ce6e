// skeinctl requests: recent or slowest requests from the orchestrator.
#pragma once

#include <cstdint>
#include <string>

#include "proto/orchestrator.pb.h"
#include "services/flags/flags.h"

namespace skein::services {

struct RequestsFlags {
  std::string orchestrator;
  std::string format = "table";
  bool recent = false;
  bool slowest = false;
  int64_t limit = 20;
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h.
int RunRequests(const RequestsFlags& flags);

// Pure.
std::string RequestsTable(const v1::ListRequestsResponse& response);
std::string RequestsJson(const v1::ListRequestsResponse& response);

}  // namespace skein::services
