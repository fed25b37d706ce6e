// Which decode workers of a world hold which formations, and the fault at a named point of one
// (PointedFault): the worker that comes there dies, or stands still. Then no other member may hold
// that formation longer than the configured limits say (Within); that is checked in virtual time,
// to the microsecond, and what a member still holds then is a violation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "scheduler/base/formation_messages.h"
#include "services/worker/group/testing/fault_point.h"
#include "tests/sim/core_process.h"
#include "tests/sim/network.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

using services::testing::FaultPoint;

class FormationWatch {
 public:
  // A worker's part in a formation.
  struct Part {
    uint64_t epoch = 0;
    int rank = 0;
    int size = 0;
    scheduler::OwnSequences own = scheduler::OwnSequences::kShare;
    bool bound = false;
  };
  // What the fault met.
  struct Struck {
    Part part;             // the victim's
    TimeUs at_us = 0;      // virtual time, as all here
    int64_t handoffs = 0;  // that were on their way to members
    TimeUs within_us = 0;  // by when they are to work alone, after at_us
    TimeUs alone_us = 0;   // when the last of them did, after at_us
  };

  // All outlive it.
  FormationWatch(Network* network, Verdict* verdict) : network_(network), verdict_(verdict) {}

  // How many handoffs are on their way to the worker at an endpoint.
  void CountHandoffsBy(std::function<int64_t(const std::string& endpoint)> handoffs) {
    handoffs_ = std::move(handoffs);
  }

  // Of a worker: it takes an order to prepare, tells its orchestrator, dies.
  void Asked(const Process* worker, const Part& part) { parts_[worker][part.epoch] = part; }
  void Told(const Process* worker, const scheduler::FormationTold& told);
  void Died(const Process* worker) { parts_.erase(worker); }

  std::optional<Part> PartOf(const Process* worker, uint64_t epoch) const;
  std::optional<Part> BoundPartOf(const Process* worker) const;

  // The worker comes to the point; `go_on` is what it does next: at once, or, if the fault strikes
  // it, when it runs again, or never.
  void Pass(FaultPoint point, Process* worker, const Part& part,
            const std::function<void()>& go_on);
  // The same in a step of the group that it is bound in; without one it just goes on.
  void PassInStep(FaultPoint point, Process* worker, const std::function<void()>& go_on);

  const std::optional<Struck>& struck() const { return struck_; }
  bool HasStruck(const std::string& endpoint) const {
    return victim_ != nullptr && victim_->endpoint() == endpoint;
  }

 private:
  bool Strikes(FaultPoint point, const Process* worker, const Part& part);
  // That are on their way to the worker or to a member of the formation.
  int64_t HandoffsTo(const Process* worker, uint64_t epoch) const;
  TimeUs Within(FaultPoint point, const PointedFault& fault, const Part& part) const;
  void Strike(FaultPoint point, Process* worker, const Part& part,
              const std::function<void()>& go_on);
  void CheckOthers(const Process* victim) const;

  Network* const network_;
  Verdict* const verdict_;
  std::function<int64_t(const std::string& endpoint)> handoffs_;
  std::map<const Process*, std::map<uint64_t, Part>> parts_;  // by epoch
  int passed_ = 0;  // times that a worker came to the point, and was not struck
  const Process* victim_ = nullptr;
  std::optional<Struck> struck_;
};

}  // namespace skein::sim
