// What `skeinctl chaos` can play. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::services::chaos {

// What is done to a process.
enum class Fault {
  kKill,  // SIGKILL, then it is started again
  kStop,  // SIGSTOP, and SIGCONT some seconds later
  kTerm,  // SIGTERM, then it is started again
};
const char* NameOf(Fault fault);  // "kill"

enum class Play {
  kNothing,  // the load alone
  kOne,      // one process of the role, the one with most requests
  kEach,     // every process, one after another
  kRandom,   // a process and a fault by chance, again and again
  kBind,     // one process of the role, while decode instances are bound into a group and released
};

struct Scenario {
  std::string name;
  std::string summary;  // a sentence
  Play play = Play::kOne;
  Fault fault = Fault::kKill;
  // "prefill", "decode", "router", "orchestrator" (the one that leads), "standby"; kOne and kBind.
  std::string role;
  bool in_all = true;  // "all" includes it
};

// In the order in which "all" plays them. The first is the one without a fault.
const std::vector<Scenario>& Scenarios();

// Null: no scenario has this name.
const Scenario* FindScenario(std::string_view name);

}  // namespace skein::services::chaos
