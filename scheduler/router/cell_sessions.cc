#include "scheduler/router/cell_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

CellSessions::CellSessions(size_t cells, const SessionConfig& config)
    : cells_(cells, Cell{.session = OrchestratorSession(config)}), picker_({.cells = cells}) {}

void CellSessions::Join(const RouterIdentity& identity, TimeUs now) {
  // So that routers do not all choose the same cells.
  picker_ = CellPicker({.cells = size(), .seed = identity.router});
  for (size_t cell = 0; cell < size(); ++cell) {
    cells_[cell].session.Join(identity, now);
    Note(cell, ready(cell), now);
  }
}

void CellSessions::Leave(TimeUs now) {
  for (size_t cell = 0; cell < size(); ++cell) {
    cells_[cell].session.Leave();
    Note(cell, ready(cell), now);
  }
}

void CellSessions::ReportSoon(TimeUs now) {
  for (size_t cell = 0; cell < size(); ++cell) {
    cells_[cell].session.ReportSoon();
    Note(cell, ready(cell), now);
  }
}

bool CellSessions::OnWelcomed(size_t cell, const RouterWelcome& welcome, TimeUs now) {
  const bool taken = cells_[cell].session.OnWelcomed(welcome, now);
  if (taken) {
    cells_[cell].lost = false;
    lost_at_.Remove(cell);
    TakeReport(cell, welcome.cell);
  }
  Note(cell, ready(cell), now);
  return taken;
}

void CellSessions::OnReportTaken(size_t cell, const CellReport& report, TimeUs now) {
  cells_[cell].session.OnReportTaken(now);
  if (ready(cell)) TakeReport(cell, report);
  Note(cell, ready(cell), now);
}

void CellSessions::TakeReport(size_t cell, const CellReport& report) {
  picker_.Report(cell, report);
  std::set<std::string>& served = cells_[cell].served;
  served.clear();
  for (const auto& [model, load] : report.models) {
    if (load.capacity > 0) served.insert(model);
  }
}

void CellSessions::OnGoodbyeTaken(size_t cell, TimeUs now) {
  cells_[cell].session.OnGoodbyeTaken();
  if (!ready(cell)) picker_.Lose(cell);
  Note(cell, /*was_ready=*/false, now);  // it was left, not lost
}

void CellSessions::OnBroken(size_t cell, const absl::Status& status, TimeUs now) {
  const bool was_ready = ready(cell);
  cells_[cell].session.OnBroken(status, now);
  Note(cell, was_ready, now);
}

void CellSessions::Note(size_t cell, bool was_ready, TimeUs now) {
  const OrchestratorSession& session = cells_[cell].session;
  if (was_ready && !session.ready()) {
    picker_.Lose(cell);
    lost_at_.Set(cell, now + session.lease_us());
  }
  due_.Set(cell, session.NextDeadline());
}

std::optional<size_t> CellSessions::Choose(const std::string& model, uint64_t affinity,
                                           const std::set<size_t>& left) {
  if (const auto cell = picker_.Place(model, affinity, left)) return cell;
  std::optional<size_t> any;
  for (size_t cell = 0; cell < size(); ++cell) {
    if (left.count(cell) > 0) continue;
    if (!ready(cell) && cells_[cell].served.count(model) > 0) return std::nullopt;
    if (ready(cell) && !any.has_value()) any = cell;
  }
  return any;
}

std::vector<size_t> CellSessions::TakeDue(TimeUs now) {
  std::vector<size_t> due;
  while (const auto cell = due_.TakeDue(now)) due.push_back(*cell);
  return due;
}

std::optional<size_t> CellSessions::TakeLost(TimeUs now) {
  const auto cell = lost_at_.TakeDue(now);
  if (cell.has_value()) cells_[*cell].lost = true;
  return cell;
}

absl::Status CellSessions::CheckInvariants() const {
  if (absl::Status status = picker_.CheckInvariants(); !status.ok()) return status;
  for (size_t cell = 0; cell < size(); ++cell) {
    const Cell& one = cells_[cell];
    if (absl::Status status = one.session.CheckInvariants(); !status.ok()) return status;
    const bool timed = due_.Of(cell) == one.session.NextDeadline();
    if (timed && picker_.IsAlive(cell) == ready(cell) && !(ready(cell) && one.lost)) continue;
    return absl::InternalError(absl::StrCat(
        "CellSessions: cell ", cell, ready(cell) ? " is ready" : " is not ready",
        one.lost ? ", lost" : "", picker_.IsAlive(cell) ? ", used" : "", timed ? "" : ", untimed"));
  }
  return absl::OkStatus();
}

TimeUs CellSessions::NextDeadline() const { return std::min(due_.Next(), lost_at_.Next()); }

}  // namespace skein::scheduler
