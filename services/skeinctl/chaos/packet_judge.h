// What becomes of a packet while the network of a process is broken. No I/O of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "scheduler/simulator/random.h"
#include "services/skeinctl/chaos/network_fault.h"
#include "services/skeinctl/chaos/packet_queue.h"
#include "services/skeinctl/chaos/socket_table.h"

namespace skein::services::chaos {

enum class Side { kOrchestrator, kOther };

// Decides about packets between processes of a cluster. Clients are no part of it: packets to and
// from processes that it does not know go on. Used by one thread.
class PacketJudge {
 public:
  // `look` tells the sockets of all processes of `sides` as they are now.
  PacketJudge(NetworkFault fault, pid_t victim, std::map<pid_t, Side> sides,
              std::function<SocketTable()> look);

  // The ports at which the two sides of the fault listen: all that it can concern goes to or comes
  // from one of them.
  std::set<uint16_t> Ports() const;

  // `packet` begins with its IPv4 header.
  PacketVerdict Decide(std::span<const uint8_t> packet);

 private:
  void Look();
  bool IsPeer(pid_t pid) const;

  const NetworkFault fault_;
  const pid_t victim_;
  const std::map<pid_t, Side> sides_;
  const std::function<SocketTable()> look_;
  SocketTable table_;  // connections that were closed since stay, until their ports are used again
  scheduler::Random random_{1};
};

}  // namespace skein::services::chaos
