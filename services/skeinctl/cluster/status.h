// skeinctl status and skeinctl top: what the orchestrator knows of routers and instances.
#pragma once

#include <cstdint>
#include <string>

#include "services/flags/flags.h"

namespace skein::services {

// The flags that both commands have.
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
// The same, on the whole screen, again and again.
int RunTop(const TopFlags& flags);

}  // namespace skein::services
