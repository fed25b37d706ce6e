#include "scheduler/router/request_cells.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

RequestCells::RequestCells(const RequestCellsConfig& config, const Parts& parts)
    : config_(config), parts_(parts), sessions_(config.cells, config.session) {
  parts_.snapshot->ready.resize(config.cells);
}

bool RequestCells::Ready(const Request& request) const {
  return request.cell.has_value() && sessions_.ready(*request.cell);
}

void RequestCells::Submit(Request& request) {
  request.known = Known::kUnsent;
  if (!Ready(request)) {
    request.cell = sessions_.Choose(request.spec->model, request.affinity, request.left);
    request.epoch = {};
  }
  if (!request.cell.has_value()) return AwaitCell(request);
  request.known = Known::kSent;
  StopWaiting(request);
  const bool accepted = request.progress != Request::Progress::kNone;
  parts_.effects->push_back(SendSubmit{request.spec, request.shape, accepted,
                                       request.failed_engines,
                                       static_cast<uint32_t>(request.left.size()), *request.cell});
}

void RequestCells::SubmitAnew(Request& request) {
  Detach(request);
  StopWaiting(request);
  Submit(request);
}

void RequestCells::CloseStream(const Request& request) {
  if (!request.HasStream()) return;
  parts_.effects->push_back(CloseTokens{request.spec->id, request.epoch});
}

void RequestCells::Detach(Request& request) {
  CloseStream(request);
  if (request.state != State::kSubmitted) {
    parts_.requests->SetState(request, State::kSubmitted);
  }
}

// Epochs are those of a cell. What the former cell still sends is passed over: it is not the
// request's cell any more.
bool RequestCells::Move(Request& request, const absl::Status& why) {
  std::set<size_t> left = request.left;
  left.insert(*request.cell);
  const auto next = sessions_.Choose(request.spec->model, request.affinity, left);
  if (!next.has_value()) return false;
  TellEnd(*request.cell,
          {.id = request.spec->id,
           .how = RouterEnd::How::kFailed,
           .why = absl::StrCat("moved to another cell: ", std::string(why.message()))});
  Detach(request);
  request.left = std::move(left);
  request.cell = next;
  request.epoch = {};
  SubmitAnew(request);
  return true;
}

bool RequestCells::MoveRefused(Request& request, const absl::Status& why) {
  if (!Move(request, why)) return false;
  ++parts_.snapshot->moved_refused;
  ++parts_.snapshot->version;
  return true;
}

void RequestCells::NoteFull(const Request& request) {
  sessions_.OnRefused(*request.cell, request.spec->model);
}

void RequestCells::AwaitReplan(Request& request) {
  if (Ready(request)) {
    waits_.Set(request.spec->id, *parts_.now + config_.replan_wait_us);
  } else {
    AwaitCell(request);
    Settle(request);
  }
}

void RequestCells::AwaitCell(const Request& request) {
  const RequestId id = request.spec->id;
  if (unsettled_.insert(id).second) waits_.Set(id, *parts_.now + config_.orchestrator_wait_us);
}

void RequestCells::StopWaiting(const Request& request) {
  waits_.Remove(request.spec->id);
  unsettled_.erase(request.spec->id);
}

const absl::Status& RequestCells::WhyUnreachable(const Request& request) const {
  if (request.cell.has_value()) return sessions_.broken(*request.cell);
  size_t cell = 0;
  while (cell + 1 < sessions_.size() && sessions_.ready(cell)) ++cell;
  return sessions_.broken(cell);
}

void RequestCells::Settle(Request& request) {
  if (!request.cell.has_value()) return Submit(request);
  if (!sessions_.lost(*request.cell) || !Move(request, sessions_.broken(*request.cell))) return;
  ++parts_.snapshot->moved_lost;
  ++parts_.snapshot->version;
}

// Few are, and only while a cell is unreachable.
void RequestCells::SettleAll() {
  const std::vector<RequestId> ids(unsettled_.begin(), unsettled_.end());
  for (const RequestId id : ids) Settle(parts_.requests->at(id));
}

void RequestCells::TakeLostCells() {
  bool any = false;
  while (sessions_.TakeLost(*parts_.now).has_value()) any = true;
  if (any) SettleAll();
}

void RequestCells::On(const Join& event) { sessions_.Join(event.identity, *parts_.now); }

void RequestCells::On(const Leave&) { sessions_.Leave(*parts_.now); }

void RequestCells::On(const ReportSoon&) { sessions_.ReportSoon(*parts_.now); }

// Requests that the orchestrator does not know are submitted again while their client has received
// nothing.
void RequestCells::On(const Welcomed& event) {
  if (!sessions_.OnWelcomed(event.cell, event.welcome, *parts_.now)) return;
  parts_.snapshot->ready[event.cell] = true;
  ++parts_.snapshot->version;
  const std::set<RequestId> unknown(event.welcome.unknown.begin(), event.welcome.unknown.end());
  for (const RequestId id : parts_.requests->InCell(event.cell)) {
    Request& request = parts_.requests->at(id);
    TakeKnown(request, unknown.contains(request.spec->id));  // it was told of the attempt
  }
  SettleAll();
}

void RequestCells::TakeKnown(Request& request, bool unknown) {
  if (request.known == Known::kOver) return;
  if (!unknown) {
    request.known = Known::kTaken;  // if it fails now, it was not refused
    StopWaiting(request);
    if (request.IsLost()) waits_.Set(request.spec->id, *parts_.now + config_.replan_wait_us);
    return;
  }
  request.known = Known::kUnknown;
  if (request.IsSubmitted() || request.IsLost()) SubmitAnew(request);
}

void RequestCells::On(const RouterReportTaken& event) {
  sessions_.OnReportTaken(event.cell, event.report, *parts_.now);
  SettleAll();
}

void RequestCells::On(const RouterGoodbyeTaken& event) {
  sessions_.OnGoodbyeTaken(event.cell, *parts_.now);
  parts_.snapshot->ready[event.cell] = sessions_.ready(event.cell);
  ++parts_.snapshot->version;
}

void RequestCells::On(const LinkBroken& event) {
  const bool was_ready = sessions_.ready(event.cell);
  sessions_.OnBroken(event.cell, event.status, *parts_.now);
  if (was_ready) NoteBroken(event.cell);
}

void RequestCells::NoteBroken(size_t cell) {
  parts_.snapshot->ready[cell] = false;
  ++parts_.snapshot->version;
  for (const auto& [id, request] : parts_.requests->all()) {
    if (request.cell != cell) continue;
    if (request.IsSubmitted() || request.IsLost()) AwaitCell(request);
  }
}

void RequestCells::RunSessions() {
  for (const size_t cell : sessions_.TakeDue(*parts_.now)) RunSession(cell);
}

void RequestCells::RunSession(size_t cell) {
  const auto load = [this] {
    return RouterLoad{.queued = parts_.snapshot->queued, .running = parts_.requests->running()};
  };
  const bool was_ready = sessions_.ready(cell);
  while (auto effect =
             sessions_.Due(cell, *parts_.now, load, [this, cell] { return Told(cell); })) {
    Send(*std::move(effect), cell);
  }
  if (was_ready && !sessions_.ready(cell)) NoteBroken(cell);
}

void RequestCells::Send(SessionEffect effect, size_t cell) {
  if (std::holds_alternative<RouterHasLeft>(effect) && ++sessions_left_ < sessions_.size()) return;
  std::visit(
      [this, cell]<class T>(T& one) {
        if constexpr (requires { one.cell; }) one.cell = cell;
        parts_.effects->push_back(std::move(one));
      },
      effect);
}

void RequestCells::Forget(const Request& request, RouterEnd end) {
  if (request.cell.has_value()) TellEnd(*request.cell, std::move(end));
  StopWaiting(request);
}

void RequestCells::LeaveCell(Request& request, RouterEnd end) {
  Forget(request, std::move(end));
  request.cell.reset();
  request.left.clear();
  request.known = Known::kUnsent;
  request.refusals = 0;
  request.refusal = absl::OkStatus();
  request.epoch = {};
}

void RequestCells::TellEnd(size_t cell, RouterEnd end) {
  if (sessions_.Ended(cell, end)) parts_.effects->push_back(SendRouterEnd{std::move(end), cell});
}

std::vector<RouterRequest> RequestCells::Told(size_t cell) const {
  std::vector<RouterRequest> told;
  for (const auto& [id, request] : parts_.requests->all()) {
    if (request.cell != cell) continue;
    if (!request.IsKnown() && request.known != Known::kUnknown) continue;
    const bool placed = request.IsPlaced();
    told.push_back({.id = request.spec->id,
                    .epoch = request.epoch,
                    .placed = placed,
                    .decode = placed ? request.decode : InstanceId{},
                    .streams = request.state == State::kStreaming});
  }
  return told;
}

TimeUs RequestCells::NextDeadline() const {
  return std::min(waits_.Next(), sessions_.NextDeadline());
}

absl::Status RequestCells::CheckInvariants() const {
  if (absl::Status status = sessions_.CheckInvariants(); !status.ok()) return status;
  for (const auto& [first, request] : parts_.requests->all()) {
    const RequestId id = request.spec->id;
    const bool lost = request.IsLost();
    const bool waits = lost || (request.IsSubmitted() && !Ready(request));
    const bool timed = waits_.Of(id) != kNever;
    const bool unsettled = unsettled_.count(id) > 0;
    if (waits != timed || unsettled != (waits && !Ready(request)) || (lost && request.lost.ok())) {
      return absl::InternalError(absl::StrCat(
          "RouterCore 5: ", ToString(id), " has a timer without a wait, or waits without a timer"));
    }
    const bool told = request.known != Known::kUnsent;
    if (told != request.cell.has_value() || (told && request.left.count(*request.cell) > 0)) {
      return absl::InternalError(
          absl::StrCat("RouterCore 6: ", ToString(id), " has a cell that does not fit its state"));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
