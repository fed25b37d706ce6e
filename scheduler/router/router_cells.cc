// RouterCore's cells: where a request is submitted, how it moves, what becomes of it when a stream
// to an orchestrator breaks or comes back.
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/router/router_core.h"

namespace skein::scheduler {

bool RouterCore::Ready(const Request& request) const {
  return request.cell.has_value() && cells_.ready(*request.cell);
}

void RouterCore::Submit(Request& request) {
  request.known = Known::kUnsent;
  request.taken = false;
  if (!Ready(request)) {
    request.cell = cells_.Choose(request.spec->model, request.affinity, request.left);
    request.epoch = {};
  }
  if (!request.cell.has_value()) return AwaitCell(request);
  request.known = Known::kSent;
  StopWaiting(request);
  effects_.push_back(SendSubmit{request.spec, request.alone, request.accepted,
                                request.failed_engines, *request.cell});
}

void RouterCore::SubmitAnew(Request& request) {
  CloseStream(request);
  if (request.state == State::kPlaced) SetState(request, State::kSubmitted);
  request.tokens = Tokens::kNone;
  Keep(request);
  Submit(request);
}

// Epochs are those of a cell. What the former cell still sends is passed over: it is not the
// request's cell any more.
bool RouterCore::Move(Request& request, const absl::Status& why) {
  std::set<size_t> left = request.left;
  left.insert(*request.cell);
  const auto next = cells_.Choose(request.spec->model, request.affinity, left);
  if (!next.has_value()) return false;
  TellEnd(*request.cell,
          {.id = request.spec->id,
           .how = RouterEnd::How::kFailed,
           .why = absl::StrCat("moved to another cell: ", std::string(why.message()))});
  CloseStream(request);
  request.tokens = Tokens::kNone;
  request.left = std::move(left);
  request.cell = next;
  request.epoch = {};
  SubmitAnew(request);
  return true;
}

void RouterCore::AwaitCell(const Request& request) {
  const RequestId id = request.spec->id;
  if (unsettled_.insert(id).second) waits_.Set(id, now_ + config_.orchestrator_wait_us);
}

void RouterCore::StopWaiting(const Request& request) {
  waits_.Remove(request.spec->id);
  unsettled_.erase(request.spec->id);
}

const absl::Status& RouterCore::WhyUnreachable(const Request& request) const {
  if (request.cell.has_value()) return cells_.broken(*request.cell);
  size_t cell = 0;
  while (cell + 1 < cells_.size() && cells_.ready(cell)) ++cell;
  return cells_.broken(cell);
}

void RouterCore::Settle(Request& request) {
  if (!request.cell.has_value()) return Submit(request);
  if (!cells_.lost(*request.cell) || !Move(request, cells_.broken(*request.cell))) return;
  ++snapshot_.moved_lost;
  ++snapshot_version_;
}

// Few are, and only while a cell is unreachable.
void RouterCore::PlaceUnsettled() {
  const std::vector<RequestId> ids(unsettled_.begin(), unsettled_.end());
  for (const RequestId id : ids) Settle(requests_.at(id));
}

void RouterCore::TakeLostCells() {
  bool any = false;
  while (cells_.TakeLost(now_).has_value()) any = true;
  if (any) PlaceUnsettled();
}

void RouterCore::On(const Join& event) { cells_.Join(event.identity, now_); }

// What the orchestrator lost of is submitted anew as long as its client has nothing.
void RouterCore::On(const Welcomed& event) {
  if (!cells_.OnWelcomed(event.cell, event.welcome, now_)) return;
  snapshot_.ready[event.cell] = true;
  ++snapshot_version_;
  const std::set<RequestId> unknown(event.welcome.unknown.begin(), event.welcome.unknown.end());
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.cell == event.cell) ids.push_back(id);
  }
  for (const RequestId id : ids) TakeKnown(requests_.at(id), unknown.count(id) > 0);
  PlaceUnsettled();
}

void RouterCore::TakeKnown(Request& request, bool unknown) {
  if (request.known == Known::kOver) return;
  if (!unknown) {
    request.known = Known::kSent;
    request.taken = true;  // if it fails now, it was not refused
    StopWaiting(request);
    if (!request.lost.ok()) waits_.Set(request.spec->id, now_ + config_.replan_wait_us);
    return;
  }
  request.known = Known::kUnknown;
  if (request.state == State::kSubmitted || !request.lost.ok()) SubmitAnew(request);
}

void RouterCore::On(const RouterReportTaken& event) {
  cells_.OnReportTaken(event.cell, event.report, now_);
  PlaceUnsettled();
}

void RouterCore::On(const RouterGoodbyeTaken& event) {
  cells_.OnGoodbyeTaken(event.cell, now_);
  snapshot_.ready[event.cell] = cells_.ready(event.cell);
  ++snapshot_version_;
}

void RouterCore::On(const LinkBroken& event) {
  const bool was_ready = cells_.ready(event.cell);
  cells_.OnBroken(event.cell, event.status, now_);
  if (was_ready) NoteBroken(event.cell);
}

void RouterCore::NoteBroken(size_t cell) {
  snapshot_.ready[cell] = false;
  ++snapshot_version_;
  for (const auto& [id, request] : requests_) {
    if (request.cell != cell) continue;
    if (request.state == State::kSubmitted || !request.lost.ok()) AwaitCell(request);
  }
}

void RouterCore::RunSessions() {
  for (const size_t cell : cells_.TakeDue(now_)) RunSession(cell);
}

void RouterCore::RunSession(size_t cell) {
  const auto load = [this] { return RouterLoad{.queued = snapshot_.queued, .running = running_}; };
  const bool was_ready = cells_.ready(cell);
  while (auto effect = cells_.Due(cell, now_, load, [this, cell] { return RequestsTold(cell); })) {
    Send(*std::move(effect), cell);
  }
  if (was_ready && !cells_.ready(cell)) NoteBroken(cell);
}

void RouterCore::Send(SessionEffect effect, size_t cell) {
  if (std::holds_alternative<RouterHasLeft>(effect) && ++sessions_left_ < cells_.size()) return;
  std::visit(
      [this, cell]<class T>(T& one) {
        if constexpr (requires { one.cell; }) one.cell = cell;
        effects_.push_back(std::move(one));
      },
      effect);
}

void RouterCore::TellEnd(size_t cell, RouterEnd end) {
  if (cells_.Ended(cell, end)) effects_.push_back(SendRouterEnd{std::move(end), cell});
}

std::vector<RouterRequest> RouterCore::RequestsTold(size_t cell) const {
  std::vector<RouterRequest> told;
  for (const auto& [id, request] : requests_) {
    if (request.cell != cell) continue;
    if (request.known != Known::kSent && request.known != Known::kUnknown) continue;
    const bool placed = request.state == State::kPlaced;
    told.push_back({.id = id,
                    .epoch = request.epoch,
                    .placed = placed,
                    .decode = placed ? request.decode : InstanceId{},
                    .streams = request.tokens == Tokens::kOpen});
  }
  return told;
}

RouterEnd RouterCore::EndOf(const Request& request, const End& end, bool client_gone) const {
  RouterEnd out{.id = end.id, .output_tokens = end.output_tokens};
  switch (end.reason) {
    case FinishReason::kStop:
      out.how = end.stop_token >= 0 ? RouterEnd::How::kStopToken : RouterEnd::How::kStopString;
      break;
    case FinishReason::kLength:
      out.how = RouterEnd::How::kMaxTokens;
      break;
    default:
      out.how = client_gone ? RouterEnd::How::kClientGone : RouterEnd::How::kFailed;
      if (!client_gone) out.why = std::string(end.status.message());
  }
  if (request.first_token_us >= 0) {
    out.first_token_us = request.first_token_us - request.submitted_us;
  }
  return out;
}

}  // namespace skein::scheduler
