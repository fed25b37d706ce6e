// The peers of a HandoffSender. One is connected when a handoff needs it. It is disconnected when
// it is gone, or when many are connected and it was used least recently: decode instances come and
// go, and each incarnation is a peer of its own. Not thread-safe; the sender's lock covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/transport/transport.h"

namespace skein::engine {

// What has been moved to one peer so far, for logs and metrics.
struct HandoffTotals {
  PeerId id;                   // 0: all peers that were disconnected, by transport and path
  std::string peer;            // HandoffGrant::peer of the last grant; "" if id is 0
  std::string transport;       // what carries the bytes: PeerInfo::transport
  std::string path;            // and the way they take: PeerInfo::path
  std::string why_not_faster;  // PeerInfo's
  uint64_t bytes = 0;
  double busy_seconds = 0;
};

class HandoffPeers {
 public:
  // `transport` outlives this. More than `peers_max` stay connected only while handoffs use them.
  HandoffPeers(Transport* transport, size_t peers_max)
      : transport_(transport), peers_max_(peers_max) {}

  // The peer of a description, for one more handoff. Errors are those of Transport::Connect;
  // RESOURCE_EXHAUSTED only when all peers are in use.
  absl::StatusOr<Peer> Acquire(const std::string& memory, const std::string& name);
  // A handoff that acquired the peer no longer uses it.
  void Release(PeerId peer);

  // Disconnects peers that the transport found broken and that no handoff uses.
  void DropBroken();

  size_t connected() const { return peers_.size(); }
  std::vector<HandoffTotals> Totals() const;

 private:
  struct Known {
    std::string name;
    int handoffs = 0;
    uint64_t used = 0;  // the larger, the later
  };
  using Peers = std::map<PeerId, Known>;

  // False: all are in use.
  bool DropLeastRecentlyUsed();
  Peers::iterator Drop(Peers::iterator peer);
  bool Broken(PeerId peer) const;

  Transport* const transport_;
  const size_t peers_max_;
  Peers peers_;
  uint64_t uses_ = 0;
  // The totals of disconnected peers, by transport and path.
  std::map<std::pair<std::string, std::string>, HandoffTotals> gone_;
};

}  // namespace skein::engine
