// Faults of the network between one process of a cluster and the others. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "services/skeinctl/chaos/scenario.h"

namespace skein::services::chaos {

enum class Plane {
  kControl,  // between the process and the orchestrators; an orchestrator's own is all of it
  kData,     // between workers, and between them and routers
  kBoth,
};

struct NetworkFault {
  Plane plane = Plane::kBoth;
  bool in = true;      // packets to the process
  bool out = true;     // packets from it
  double loss = 0;     // share of packets that are lost
  double delay_s = 0;  // by which each of them is late
};

// In the order in which scenarios play them.
const std::vector<Fault>& NetworkFaults();

// None: it is no fault of the network.
std::optional<NetworkFault> NetworkFaultOf(Fault fault);

// A sentence.
std::string NetworkSummary(Fault fault, const std::string& role);

}  // namespace skein::services::chaos
