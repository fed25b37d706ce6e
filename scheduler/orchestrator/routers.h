// Routers: those that report, and the operators' orders to drain them. Nothing is decided by it but
// what operators see. Part of OrchestratorCore.
//
// A router that was silent for a lease, while the orchestrator listened (ListeningClock), is lost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

struct Router {
  RouterReport report;  // its latest, without `ended`
  TimeUs heard_us = 0;
  TimeUs lease_end_us = 0;  // by the listening clock
  std::optional<bool> drain_order;

  bool draining() const { return report.draining || drain_order == true; }
  // It says itself that it drains, and has nothing left.
  bool drained() const { return report.draining && report.requests == 0; }
};

class Routers {
 public:
  explicit Routers(TimeUs lease_us) : lease_us_(lease_us) {}

  // True: it is a new one. `listened_us`: the listening clock now.
  bool Report(RouterReport report, TimeUs now, TimeUs listened_us);
  // NOT_FOUND: there is no such router. FAILED_PRECONDITION: it is the last one that serves.
  absl::Status Drain(const DrainRequest& request);

  const Router* Find(uint64_t router) const;
  void Remove(uint64_t router) { routers_.erase(router); }
  std::vector<uint64_t> Silent(TimeUs listened_us) const;  // the caller Removes them
  TimeUs NextLeaseEnd() const;                             // by the listening clock
  const std::map<uint64_t, Router>& all() const { return routers_; }

 private:
  TimeUs lease_us_;
  std::map<uint64_t, Router> routers_;
};

}  // namespace skein::scheduler
