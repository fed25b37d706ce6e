// skeinctl logs: the merged logs of the cluster that deploy/local/up started.
#pragma once

#include <string>

#include "services/flags/flags.h"

namespace skein::services {

struct LogsFlags {
  std::string process;
  std::string request;
  std::string level = "info";
  std::string format = "text";
  bool follow = false;
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h.
int RunLogs(const LogsFlags& flags);

}  // namespace skein::services
