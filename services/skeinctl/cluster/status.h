// skeinctl status and skeinctl top: routers and instances as the orchestrator knows them.
#pragma once

#include <cstdint>
#include <string>

#include "services/flags/flags.h"

namespace skein::services {

// Flags of both commands.
struct ViewFlags {
  std::string orchestrator;
  std::string format = "table";
  double interval_s = 2;
  int64_t count = 0;
  std::string sort = "role";
  void Register(FlagSet* set);
};

struct StatusFlags : ViewFlags {
  bool watch = false;
  void Register(FlagSet* set);
};

struct TopFlags : ViewFlags {
  bool once = false;
  void Register(FlagSet* set);
};

// The exit code is the cluster's health (exit_codes.h).
int RunStatus(const StatusFlags& flags);
// The same on the full screen, updated repeatedly.
int RunTop(const TopFlags& flags);

}  // namespace skein::services
