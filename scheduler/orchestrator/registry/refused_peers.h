// RefusedPeers: workers and routers that the orchestrator refuses because they do not fit the
// cluster: another protocol, or another KV than the other workers of their model. For operators:
// such a process tries again until it gives up, and nothing else shows it. Bounded in number and in
// time. Part of OrchestratorCore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/base/time.h"

namespace skein::scheduler {

struct RefusedPeer {
  std::string what;   // "prefill-worker", "decode-worker" or "router"
  std::string model;  // of a worker
  std::string endpoint;
  std::string version;  // empty: it tells none
  std::string why;
  TimeUs first_us = 0;  // of this reason
  TimeUs last_us = 0;
  uint64_t times = 0;
};

class RefusedPeers {
 public:
  RefusedPeers(size_t max, TimeUs kept_us) : max_(max), kept_us_(kept_us) {}

  // It was refused now. The times and counts of `peer` are set here. When there are `max` others,
  // the one that was refused the longest ago makes room.
  void Refuse(RefusedPeer peer, TimeUs now);
  // A process of this endpoint was taken.
  void Take(const std::string& endpoint) { peers_.erase(endpoint); }
  // Those that were refused within `kept_us`, the latest first.
  std::vector<RefusedPeer> Latest(TimeUs now) const;

 private:
  size_t max_;
  TimeUs kept_us_;
  std::map<std::string, RefusedPeer> peers_;  // by endpoint
};

}  // namespace skein::scheduler
