// Breaks the network of a process of this host, as long as the object lives.
//
// The kernel gives the packets of the cluster's ports on the loopback device to this process, which
// loses or delays those that are meant (network_fault.h). The rules let packets pass when nobody
// takes them, so the network is whole again as soon as this process ends, however it ends. What a
// killed run leaves of them is removed by the next one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/chaos/network_fault.h"
#include "services/skeinctl/chaos/packet_judge.h"
#include "services/skeinctl/chaos/packet_queue.h"

namespace skein::services::chaos {

class NetworkImpairment {
 public:
  // PERMISSION_DENIED, UNIMPLEMENTED or UNAVAILABLE says what this machine lacks: root, iptables,
  // or a kernel with NFQUEUE; or that another process breaks the network already.
  static absl::Status Possible();

  // `sides`: all processes of the cluster on this host, the victim too. Errors of Possible();
  // FAILED_PRECONDITION: the victim has no TCP socket in this network namespace.
  static absl::StatusOr<std::unique_ptr<NetworkImpairment>> Start(NetworkFault fault, pid_t victim,
                                                                  std::map<pid_t, Side> sides);

  ~NetworkImpairment();
  NetworkImpairment(const NetworkImpairment&) = delete;
  NetworkImpairment& operator=(const NetworkImpairment&) = delete;

  // Removes the rules and lets go what is late. Once is enough. UNAVAILABLE: iptables failed; the
  // network is whole all the same.
  absl::Status End();

 private:
  explicit NetworkImpairment(PacketJudge judge) : judge_(std::move(judge)) {}

  PacketJudge judge_;  // of the thread while it runs
  PacketQueue queue_;  // of the thread while it runs
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace skein::services::chaos
