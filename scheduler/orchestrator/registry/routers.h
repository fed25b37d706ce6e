// Routers: those that are connected or were within a lease, what they last said, the operators'
// orders to drain them, and the failures that they have not confirmed. Part of OrchestratorCore.
//
// A router that was silent for a lease, while the orchestrator listened (ListeningClock), is lost.
// One whose stream broke, and that has not opened another one for half a lease, is absent: most
// likely its process has ended, since one that lives comes back at once.
// Which decode instances the routers hear is in `evidence`: what a router said holds until it says
// otherwise, leaves or is lost.
//
// Cost: a message of a router, and the time at which the next lease ends, cost the logarithm of the
// number of routers. Connect walks over all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/orchestrator/registry/evidence.h"

namespace skein::scheduler {

struct Router {
  RouterIdentity identity;
  RouterLoad load;    // without what it hears
  CallId connection;  // its stream; 0: it is broken
  TimeUs heard_us = 0;
  std::optional<bool> drain_order;
  bool absent = false;
  // Of its requests, until it says how they ended for its clients: a stream that broke may have
  // lost them.
  std::map<RequestId, Failed> failures;

  bool draining() const { return load.draining || drain_order == true; }
  // It says itself that it drains, and has nothing left.
  bool drained() const { return load.draining && load.queued + load.running == 0; }
};

class Routers {
 public:
  static constexpr size_t kMaxFailures = 65536;  // of one router; the oldest go first

  explicit Routers(TimeUs lease_us) : lease_us_(lease_us) {}

  struct Connected {
    bool is_new = false;
    CallId former;                   // the stream of this process that has been replaced; 0: none
    std::vector<uint64_t> replaced;  // processes that were at its address and are gone for sure
  };
  // `listened_us`: the listening clock now. The caller Removes the replaced ones.
  Connected Connect(const RouterHello& hello, CallId connection, TimeUs now, TimeUs listened_us);
  // Null if no router has this stream any more.
  Router* FindConnected(CallId connection);
  void Report(Router& router, const RouterLoad& load, TimeUs now, TimeUs listened_us);
  void Heard(uint64_t router, TimeUs listened_us);  // any message of its stream renews its lease
  void Disconnect(Router& router, TimeUs listened_us);  // its stream is broken
  // All streams are broken. Returns them.
  std::vector<CallId> DisconnectAll(TimeUs listened_us);

  void NoteFailure(RequestId id, const Failed& failed);
  void ForgetFailure(RequestId id);
  // Null: there is none.
  const Failed* FailureOf(RequestId id) const;

  const Evidence& evidence() const { return evidence_; }

  // NOT_FOUND: there is no such router. FAILED_PRECONDITION: it is the last one that serves.
  absl::Status Drain(const DrainRequest& request);

  const Router* Find(uint64_t router) const;
  void Remove(uint64_t router);
  // Those whose lease has ended, each once: the caller Removes them.
  std::vector<uint64_t> TakeSilent(TimeUs listened_us);
  // Those that are absent from now on, each once.
  std::vector<uint64_t> TakeAbsent(TimeUs listened_us);
  // When the next is silent or absent, by the listening clock.
  TimeUs NextDue() const { return std::min(leases_.Next(), absences_.Next()); }
  const std::map<uint64_t, Router>& all() const { return routers_; }
  size_t streams() const { return by_connection_.size(); }  // that stand

  // Each router has a lease, each stream belongs to one router, and neither belongs to another;
  // only routers that are known here hear instances.
  absl::Status CheckInvariants() const;

 private:
  void LeaveStream(Router& router);
  void TakeLoad(Router& router, const RouterLoad& load, TimeUs now, TimeUs listened_us);

  TimeUs lease_us_;
  std::map<uint64_t, Router> routers_;
  Evidence evidence_;
  std::map<CallId, uint64_t> by_connection_;
  TimerQueue<uint64_t> leases_;    // by the listening clock
  TimerQueue<uint64_t> absences_;  // likewise; of those without a stream that are not absent yet
};

}  // namespace skein::scheduler
