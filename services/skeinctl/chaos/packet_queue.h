// Packets that the kernel hands to this process, which decides about each of them: a queue of
// netfilter (NFQUEUE), spoken to by netlink. The kernel of a machine may lack `tc netem`; this
// works without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "absl/status/status.h"

namespace skein::services::chaos {

struct PacketVerdict {
  bool drop = false;
  double delay_s = 0;  // it goes on so much later, in the order of arrival; 0: at once
};

// Used by one thread. When this process ends, however it does, the kernel forgets the queue.
class PacketQueue {
 public:
  PacketQueue() = default;
  ~PacketQueue();
  PacketQueue(const PacketQueue&) = delete;
  PacketQueue& operator=(const PacketQueue&) = delete;

  // PERMISSION_DENIED: not root. UNAVAILABLE: another process has this queue.
  // UNIMPLEMENTED: this kernel has no such queues.
  absl::Status Open(uint16_t number);

  // Decides about what comes within `for_s` seconds, and lets delayed packets go when they are due.
  // `decide` gets the first bytes of a packet, from its IP header on.
  void Serve(double for_s, const std::function<PacketVerdict(std::span<const uint8_t>)>& decide);

  // Lets all packets go: those that wait and those that are still in the queue.
  void LetGo();

  // Gives the queue back.
  void Close();

 private:
  absl::Status Configure(uint16_t type, const void* value, size_t size);
  void Receive(const std::function<PacketVerdict(std::span<const uint8_t>)>& decide);
  void ReleaseDue(double now_s);
  void Tell(uint32_t id, bool drop);

  int socket_ = -1;
  uint16_t number_ = 0;
  std::multimap<double, uint32_t> waiting_;  // ids of delayed packets, by when they go on
};

}  // namespace skein::services::chaos
