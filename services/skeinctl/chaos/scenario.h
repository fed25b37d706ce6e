// What `skeinctl chaos` can play. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

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
};

// What the cluster does while one process is broken.
enum class Moment {
  kAny,
  kBind,     // decode instances are being bound into a group
  kRelease,  // a group is being released
  kHandoff,  // KV of prompts is being handed from prefill to decode instances
  kBatch,    // a batch is being computed, and some of its lines are answered
};
const char* NameOf(Moment moment);  // "bind"; "" of kAny

struct Scenario {
  std::string name;
  std::string summary;  // a sentence
  Play play = Play::kOne;
  Fault fault = Fault::kKill;
  // "prefill", "decode", "router", "orchestrator" (the one that leads), "standby"; kOne.
  std::string role;
  Moment moment = Moment::kAny;  // kOne
  bool stays_away = false;       // kOne of kTerm: it is started again when the scenario has ended
  bool in_all = true;            // "all" includes it
};

// In the order in which "all" plays them. The first is the one without a fault.
const std::vector<Scenario>& Scenarios();

// Whether a name asks for this scenario: its own, that of its moment, or "all".
bool Asks(std::string_view name, const Scenario& scenario);

struct Choice {
  std::vector<const Scenario*> scenarios;  // the one without a fault is always the first
  std::string left_out;                    // a sentence; empty: nothing is
};

// What `names` ask for. Faults of the network that only "all" asks for are left out where `allows`
// refuses them; it is called once for all of them.
Choice Choose(const std::vector<std::string>& names,
              const std::function<absl::Status(Fault)>& allows);

// Null: no scenario has this name.
const Scenario* FindScenario(std::string_view name);

}  // namespace skein::services::chaos
