// CellSessions: a router's standing with the orchestrators of all its cells, one
// OrchestratorSession each, and the choice of a cell for a request. Part of RouterCore.
//
// A cell is *ready* while its stream stands. One that is not ready gets nothing new. It is *lost*
// when its stream is gone for a lease: by then its orchestrator, if it lives, has given up the
// router and all its requests that are not placed. So these may be placed in another cell, and what
// the former cell still does for them reaches no client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/cell_load.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/placement/cells.h"
#include "scheduler/router/orchestrator_session.h"

namespace skein::scheduler {

class CellSessions {
 public:
  CellSessions(size_t cells, const SessionConfig& config);

  void Join(const RouterIdentity& identity, TimeUs now);
  void Leave(TimeUs now);
  void ReportSoon(TimeUs now);

  // As OrchestratorSession has them.
  bool OnWelcomed(size_t cell, const RouterWelcome& welcome, TimeUs now);
  void OnReportTaken(size_t cell, const CellReport& report, TimeUs now);
  void OnGoodbyeTaken(size_t cell, TimeUs now);
  void OnBroken(size_t cell, const absl::Status& status, TimeUs now);
  bool Ended(size_t cell, RouterEnd end) { return cells_[cell].session.Ended(std::move(end)); }

  // The ready cell for a request, counted as held there; never one of `left`. A model that no ready
  // cell serves goes to one that is ready, whose orchestrator says why it cannot be served; not if
  // a cell that served it is unreachable, since it may come back. Empty: there is none now.
  std::optional<size_t> Choose(const std::string& model, uint64_t affinity,
                               const std::set<size_t>& left);
  // The cell refused a request of the model for lack of room.
  void OnRefused(size_t cell, const std::string& model) { picker_.Refuse(cell, model); }

  // The cells whose time has come; each is given to Due until nothing is due there.
  std::vector<size_t> TakeDue(TimeUs now);
  template <class Load, class Requests>
  std::optional<SessionEffect> Due(size_t cell, TimeUs now, Load load, Requests requests) {
    const bool was_ready = ready(cell);
    auto effect = cells_[cell].session.Due(now, load, requests);
    Note(cell, was_ready, now);
    return effect;
  }
  // A cell that has become lost. Empty: none has.
  std::optional<size_t> TakeLost(TimeUs now);
  TimeUs NextDeadline() const;

  // INTERNAL names the violated invariant.
  absl::Status CheckInvariants() const;

  size_t size() const { return cells_.size(); }
  bool ready(size_t cell) const { return cells_[cell].session.ready(); }
  bool lost(size_t cell) const { return cells_[cell].lost; }
  // Why it is not ready.
  const absl::Status& broken(size_t cell) const { return cells_[cell].session.broken(); }

 private:
  struct Cell {
    OrchestratorSession session;
    bool lost = true;              // as it is before its first welcome
    std::set<std::string> served;  // by its last report
  };

  void TakeReport(size_t cell, const CellReport& report);
  void Note(size_t cell, bool was_ready, TimeUs now);  // after a change of its session

  std::vector<Cell> cells_;
  CellPicker picker_;
  TimerQueue<size_t> due_;
  TimerQueue<size_t> lost_at_;  // of cells whose stream broke
};

}  // namespace skein::scheduler
