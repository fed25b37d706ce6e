#include "scheduler/orchestrator/registry/refused_peers.h"

#include <algorithm>
#include <utility>

namespace skein::scheduler {

void RefusedPeers::Refuse(RefusedPeer peer, TimeUs now) {
  const auto known = peers_.find(peer.endpoint);
  const bool same = known != peers_.end() && known->second.why == peer.why;
  peer.first_us = same ? known->second.first_us : now;
  peer.times = same ? known->second.times + 1 : 1;
  peer.last_us = now;
  if (known == peers_.end() && peers_.size() >= max_) {
    peers_.erase(std::min_element(peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
      return a.second.last_us < b.second.last_us;
    }));
  }
  std::string endpoint = peer.endpoint;
  peers_[std::move(endpoint)] = std::move(peer);
}

std::vector<RefusedPeer> RefusedPeers::Latest(TimeUs now) const {
  std::vector<RefusedPeer> latest;
  latest.reserve(peers_.size());
  for (const auto& [endpoint, peer] : peers_) {
    if (now - peer.last_us <= kept_us_) latest.push_back(peer);
  }
  std::stable_sort(latest.begin(), latest.end(),
                   [](const auto& a, const auto& b) { return a.last_us > b.last_us; });
  return latest;
}

}  // namespace skein::scheduler
