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

  // Of its network, for some seconds (network_fault.h).
  kPartitionControl,
  kPartitionData,
  kPartitionBoth,
  kOnewayControlIn,
  kOnewayControlOut,
  kOnewayDataIn,
  kOnewayDataOut,
  kDelay,
  kLoss,
};
const char* NameOf(Fault fault);  // "kill"

// It lasts for some seconds and is then ended; the process lives on.
bool Lasts(Fault fault);

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
  std::string role;    // "prefill", "decode", "orchestrator", "router"; kOne and kBind
  bool in_all = true;  // "all" includes it
};

// In the order in which "all" plays them. The first is the one without a fault.
const std::vector<Scenario>& Scenarios();

// Null: no scenario has this name.
const Scenario* FindScenario(std::string_view name);

}  // namespace skein::services::chaos
