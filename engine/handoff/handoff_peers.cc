#include "engine/handoff/handoff_peers.h"

#include <iterator>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

absl::StatusOr<Peer> HandoffPeers::Acquire(const std::string& memory, const std::string& name) {
  absl::StatusOr<Peer> peer = transport_->Connect(memory);
  while (absl::IsResourceExhausted(peer.status()) && DropLeastRecentlyUsed()) {
    peer = transport_->Connect(memory);
  }
  if (!peer.ok()) return peer;
  Known& known = peers_[peer->id];
  known.name = name;
  known.used = ++uses_;
  ++known.handoffs;
  while (peers_.size() > peers_max_ && DropLeastRecentlyUsed()) {
  }
  return peer;
}

void HandoffPeers::Release(PeerId peer) {
  const auto it = peers_.find(peer);
  SKEIN_CHECK_MSG(it != peers_.end() && it->second.handoffs > 0, "the peer was not acquired");
  if (--it->second.handoffs == 0 && Broken(peer)) Drop(it);
}

void HandoffPeers::DropBroken() {
  for (auto it = peers_.begin(); it != peers_.end();) {
    it = it->second.handoffs == 0 && Broken(it->first) ? Drop(it) : std::next(it);
  }
}

bool HandoffPeers::DropLeastRecentlyUsed() {
  auto oldest = peers_.end();
  for (auto it = peers_.begin(); it != peers_.end(); ++it) {
    if (it->second.handoffs > 0) continue;
    if (oldest == peers_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (oldest == peers_.end()) return false;
  Drop(oldest);
  return true;
}

HandoffPeers::Peers::iterator HandoffPeers::Drop(Peers::iterator peer) {
  if (const absl::StatusOr<PeerInfo> info = transport_->Inspect(peer->first); info.ok()) {
    HandoffTotals& sum = gone_[{info->transport, info->path}];
    sum.transport = info->transport;
    sum.path = info->path;
    sum.bytes += info->put_bytes;
    sum.busy_seconds += info->busy_seconds;
  }
  const absl::Status disconnected = transport_->Disconnect(peer->first);
  SKEIN_CHECK_MSG(disconnected.ok(), "the transport lost a peer");
  return peers_.erase(peer);
}

bool HandoffPeers::Broken(PeerId peer) const {
  const absl::StatusOr<PeerInfo> info = transport_->Inspect(peer);
  return info.ok() && info->broken;
}

std::vector<HandoffTotals> HandoffPeers::Totals() const {
  std::vector<HandoffTotals> totals;
  for (const auto& [way, sum] : gone_) totals.push_back(sum);
  for (const auto& [peer, known] : peers_) {
    const absl::StatusOr<PeerInfo> info = transport_->Inspect(peer);
    if (!info.ok()) continue;
    totals.push_back({peer, known.name, info->transport, info->path, info->why_not_faster,
                      info->put_bytes, info->busy_seconds});
  }
  return totals;
}

}  // namespace skein::engine
