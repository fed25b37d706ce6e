// RouterSide: the streams of routers. A router connects or reconnects, reports how requests ended,
// reports its load, leaves or is lost; it is told the state of its requests. Owns what is known of
// the routers, and submissions that wait until instances have reconnected. Part of
// OrchestratorCore.
//
// A router that reconnects lists its requests. It is told their state, and which are unknown here.
// A request that it does not list has ended for its client and is cancelled. A hello that arrives
// after a later one is refused and changes nothing (registry/latest_streams.h).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/peer_build.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/registry/gone_list.h"
#include "scheduler/orchestrator/registry/latest_streams.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/registry/routers.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/held_submissions.h"
#include "scheduler/orchestrator/requests/lost_attempts.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

class RouterSide {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    const Registry* registry = nullptr;  // its listening clock, and where requests are placed
    ExplanationLog* explanations = nullptr;
    GoneList* gone = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
    PlanSender* sender = nullptr;
    PeerBuild build = {};  // of this process
  };
  // `requests_max`: the most requests that the orchestrator holds at a time.
  RouterSide(TimeUs lease_us, int64_t requests_max, const Parts& parts)
      : lease_us_(lease_us), requests_max_(requests_max), parts_(parts), routers_(lease_us) {}

  // `own`: this orchestrator's generation. REQUIRES: it is not lower than the one the router saw.
  void Connect(const RouterConnected& event, const Generation& own, TimeUs now);
  void On(const RouterEnded& event, TimeUs now);
  void On(const RouterReported& event, TimeUs now);
  void On(const RouterLeft& event, TimeUs now);
  void On(const RouterDisconnected& event, TimeUs now);
  void LoseTheSilent(TimeUs now);
  void LeaveTheAbsent();                                   // after LoseTheSilent
  void CloseStreams(const absl::Status& why, TimeUs now);  // of all
  // See Routers::Drain. The router hears of it.
  absl::Status Drain(const DrainRequest& request);

  void TellState(const Request& request);
  // The request failed. The router hears of it again, on its next stream, until it confirms.
  void TellFailed(RequestId id, Failed failed);

  // Submissions that come before `until_us`, or while others are held, are held. Those held are not
  // in RequestTable.
  void HoldUntil(TimeUs until_us) { early_until_us_ = until_us; }
  bool Waits(TimeUs now) const { return now < early_until_us_; }
  bool Holds(TimeUs now) const { return now < early_until_us_ || !early_.empty(); }
  void Hold(const SubmitCalled& submission) { early_.Hold(submission); }
  bool HasHeld(RequestId id) const { return early_.Has(id); }
  // The next that have waited for long enough, at most kTakenAtOnce: to plan all that came in half
  // a lease would keep every other message, and leases, waiting. For ticks: the shell sends what
  // one has caused before it handles the next, and NextTick is due while some wait.
  static constexpr size_t kTakenAtOnce = 64;
  std::vector<SubmitCalled> TakeHeld(TimeUs now);
  size_t held() const { return early_.size(); }

  // An attempt of a request is submitted: where the attempts before it were lost.
  // The attempt ends, and its router may try again.
  void NoteLost(const Request& request);
  LostAttempts::Lost TakeLost(RequestId attempt) { return lost_.Take(attempt); }

  void Heard(uint64_t router, TimeUs now);  // a message of its stream
  int64_t HeardBy(Incarnation decode) const { return routers_.evidence().HeardBy(decode); }
  TimeUs NextTick() const;
  const Routers& routers() const { return routers_; }
  absl::Status CheckInvariants() const;

 private:
  enum class Gone { kSilent, kDead, kLeft };

  void Tell(const OrchestratorEffect& effect) { parts_.effects->push_back(effect); }
  void TakeEnd(const RouterEnd& end);
  void Lose(uint64_t router, const std::string& why, Gone how, TimeUs now);
  void LeaveUnclaimed(uint64_t router, const std::string& why);
  void CloseUnlisted(uint64_t router, const std::vector<RouterRequest>& listed);
  void Welcome(const RouterConnected& event, const Generation& own);
  CellReport Cell() const;  // what the cell can take, for routers

  TimeUs lease_us_;
  int64_t requests_max_;
  Parts parts_;
  Routers routers_;
  TimeUs early_until_us_ = 0;
  HeldSubmissions early_;
  LostAttempts lost_;
  LatestStreams streams_;
};

}  // namespace skein::scheduler::orchestrator
