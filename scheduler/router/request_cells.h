// RequestCells: where a request is submitted, how it moves between cells, and what becomes of it
// when a stream to an orchestrator breaks or comes back. Owns the sessions of the cells, and the
// waits of requests for one. Part of RouterCore, and used only on its thread. An event costs O(log
// requests), but a stream that begins or breaks costs as much as the cell's requests.
//
// Invariants (CheckInvariants names them, by RouterCore's numbers):
//   5. A request waits for an orchestrator, under a time, exactly if its token stream was lost, or
//      if it is submitted and its cell is not ready.
//   6. A request has a cell exactly if it was submitted there, and none in which it was before.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/router/cell_sessions.h"
#include "scheduler/router/client_request.h"
#include "scheduler/router/client_requests.h"
#include "scheduler/router/router_events.h"

namespace skein::scheduler {

struct RequestCellsConfig {
  size_t cells = 1;
  TimeUs replan_wait_us = 0;        // for the orchestrator, when a token stream failed early
  TimeUs orchestrator_wait_us = 0;  // for a stream to one
  SessionConfig session;
};

class RequestCells {
 public:
  using Request = ClientRequest;

  // Not owned; they outlive it.
  struct Parts {
    const TimeUs* now = nullptr;  // of the event
    ClientRequests* requests = nullptr;
    RouterSnapshot* snapshot = nullptr;
    std::vector<RouterEffect>* effects = nullptr;
  };
  RequestCells(const RequestCellsConfig& config, const Parts& parts);

  // REQUIRES of all that name a cell: it is below size().
  void On(const Join& event);
  void On(const Leave& event);
  void On(const ReportSoon& event);
  void On(const Welcomed& event);
  void On(const RouterReportTaken& event);
  void On(const RouterGoodbyeTaken& event);
  void On(const LinkBroken& event);

  // Sends it to its cell, or to one that is chosen now, or lets it wait for one.
  void Submit(Request& request);
  // The cell refused it, and nothing was begun there. To another cell; false: there is none.
  bool MoveRefused(Request& request, const absl::Status& why);
  void NoteFull(const Request& request);  // its cell refused it for lack of room
  // Its token stream is over before its first token: it waits to be planned anew.
  void AwaitReplan(Request& request);
  void SubmitAnew(Request& request);         // its client has nothing of it
  void CloseStream(const Request& request);  // if it has one; its state is the caller's
  // It has no token stream any more, and is not placed. Its client has nothing of it.
  void Detach(Request& request);
  // Its cell, if it has one, hears of its end. It waits no more.
  void Forget(const Request& request, RouterEnd end);
  // Its attempt in its cell, which hears of the end, is over; the next one may be in any cell.
  void LeaveCell(Request& request, RouterEnd end);
  void StopWaiting(const Request& request);

  void TakeLostCells();  // requests of cells that are lost by now move
  void RunSessions();
  // One whose wait is over. The caller ends it.
  std::optional<RequestId> TakeOverdue() { return waits_.TakeDue(*parts_.now); }
  const absl::Status& WhyUnreachable(const Request& request) const;

  bool Ready(const Request& request) const;  // it has a cell, whose stream stands
  size_t size() const { return sessions_.size(); }
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;

 private:
  using State = Request::State;
  using Known = Request::Known;

  bool Move(Request& request, const absl::Status& why);
  void AwaitCell(const Request& request);
  void Settle(Request& request);  // one that is unsettled, if a cell can take it now
  void SettleAll();
  void TakeKnown(Request& request, bool unknown);
  void NoteBroken(size_t cell);
  void RunSession(size_t cell);
  void Send(SessionEffect effect, size_t cell);
  void TellEnd(size_t cell, RouterEnd end);
  std::vector<RouterRequest> Told(size_t cell) const;

  const RequestCellsConfig config_;
  const Parts parts_;
  CellSessions sessions_;
  TimerQueue<RequestId> waits_;    // for an orchestrator
  std::set<RequestId> unsettled_;  // of these, those whose cell is not ready, or that have none
  size_t sessions_left_ = 0;       // that have said goodbye
};

}  // namespace skein::scheduler
