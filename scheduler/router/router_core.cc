#include "scheduler/router/router_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

constexpr size_t kRecentEnds = 64;

}  // namespace

RouterCore::RouterCore(const RouterConfig& config)
    : config_(config), cells_(config.cells, config.session) {
  snapshot_.ready.resize(config.cells);
}

std::vector<RouterEffect> RouterCore::Handle(const RouterEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit(
      [this]<class T>(const T& e) {
        if constexpr (requires { e.cell; }) {
          if (e.cell >= cells_.size()) return;
        }
        On(e);
      },
      event);
  TakeLostCells();
  RunTimers();
  AdmitQueued();
  RunSessions();
  snapshot_.oldest_arrival_us = queue_.empty() ? kNever : requests_.at(queue_.front()).arrived_us;
  return std::move(effects_);
}

void RouterCore::Count(const Request& request, int64_t change) {
  RouterSnapshot::OfModel& model = snapshot_.models[request.spec->model];
  switch (request.state) {
    case State::kQueued:
      snapshot_.queued += change;
      model.queued += change;
      break;
    case State::kSubmitted:
      snapshot_.submitted += change;
      model.submitted += change;
      break;
    case State::kPlaced:
      snapshot_.streaming += change;
      model.streaming += change;
      break;
  }
  ++snapshot_version_;
}

void RouterCore::SetState(Request& request, State state) {
  Count(request, -1);
  request.state = state;
  Count(request, 1);
}

void RouterCore::On(const Arrived& event) {
  const RequestId id = event.spec->id;
  if (requests_.count(id) > 0) {
    effects_.push_back(Reject{id, absl::AlreadyExistsError("the id was used before"), 0});
    return;
  }
  if (running_ >= config_.max_streams &&
      static_cast<int64_t>(queue_.size()) >= config_.max_queued) {
    ++snapshot_.rejected;
    ++snapshot_version_;
    effects_.push_back(
        Reject{id,
               absl::ResourceExhaustedError(absl::StrCat(
                   "The request queue is full (", config_.max_queued, " waiting). Retry later.")),
               RetryAfter()});
    return;
  }
  ++snapshot_.accepted;
  Request request;
  request.spec = event.spec;
  request.alone = event.alone;
  request.affinity = event.affinity;
  request.arrived_us = now_;
  const TimeUs budget = event.spec->deadline_us;
  request.deadline_us = now_ + (budget > 0 ? std::min(budget, config_.request_deadline_us)
                                           : config_.request_deadline_us);
  deadlines_.Set(id, request.deadline_us);
  Count(request, 1);
  requests_.emplace(id, std::move(request));
  queue_.push_back(id);
}

void RouterCore::AdmitQueued() {
  while (running_ < config_.max_streams && !queue_.empty()) {
    Request& request = requests_.at(queue_.front());
    queue_.pop_front();
    ++running_;
    SetState(request, State::kSubmitted);
    request.submitted_us = now_;
    request.times.admission_us = now_ - request.arrived_us;
    Submit(request);
  }
}

void RouterCore::On(const PlanUpdateReceived& event) {
  Request* request = Find(event.id);
  if (request == nullptr || request->cell != event.cell) return;
  if (request->known != Known::kSent) return;
  if (!std::holds_alternative<Failed>(event.update)) Accept(*request);
  std::visit([&](const auto& update) { Apply(*request, update); }, event.update);
}

void RouterCore::Accept(Request& request) {
  request.taken = true;
  if (std::exchange(request.accepted, true)) return;
  request.refusal = absl::OkStatus();
  effects_.push_back(RequestAccepted{request.spec->id});
}

void RouterCore::Apply(Request& request, const Accepted& accepted) {
  request.failed_engines = std::max(request.failed_engines, accepted.failed_engines);
}

void RouterCore::Apply(Request& request, const Planned& planned) {
  request.failed_engines = std::max(request.failed_engines, planned.failed_engines);
  if (planned.epoch >= request.epoch) request.times.plan_us = planned.decided_us;
  if (planned.epoch > request.epoch) {
    if (request.delivered > 0) {
      return Finish(request, FinishReason::kError,
                    absl::UnavailableError("the plan was lost after tokens were sent"));
    }
    CloseStream(request);
    if (request.state == State::kPlaced) {
      Keep(request);
      SetState(request, State::kSubmitted);
    }
    request.tokens = Tokens::kNone;
    request.epoch = planned.epoch;
  }
  AttachAhead(request, planned);
}

void RouterCore::AttachAhead(Request& request, const Planned& planned) {
  if (planned.decode_endpoint.empty() || planned.epoch != request.epoch) return;
  if (request.state != State::kSubmitted || request.tokens != Tokens::kNone) return;
  request.tokens = Tokens::kAhead;
  request.decode = planned.decode;
  effects_.push_back(OpenTokens{request.spec->id, request.epoch, planned.decode,
                                planned.decode_endpoint, request.cell.value_or(0),
                                /*ahead=*/true});
}

void RouterCore::CloseStream(Request& request) {
  if (request.tokens != Tokens::kAhead && request.tokens != Tokens::kOpen) return;
  effects_.push_back(CloseTokens{request.spec->id, request.epoch});
}

// Its end, unless the orchestrator may still plan it anew.
void RouterCore::Lose(Request& request, FinishReason reason, absl::Status status) {
  request.tokens = Tokens::kOver;
  const bool passing =
      absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsAborted(status);
  if (!passing || request.known == Known::kOver || request.delivered > 0) {
    return Finish(request, reason, std::move(status));
  }
  if (request.known == Known::kUnknown) return SubmitAnew(request);
  request.lost_reason = reason;
  request.lost = std::move(status);
  if (Ready(request)) {
    waits_.Set(request.spec->id, now_ + config_.replan_wait_us);
  } else {
    AwaitCell(request);
    Settle(request);
  }
}

void RouterCore::Keep(Request& request) {
  request.lost = absl::OkStatus();
  StopWaiting(request);
}

void RouterCore::Apply(Request& request, const Placed& placed) {
  if (request.state != State::kSubmitted || placed.epoch < request.epoch) return;
  const bool attached = request.tokens == Tokens::kAhead && request.epoch == placed.epoch &&
                        request.decode == placed.decode;
  if (!attached) CloseStream(request);
  Place(request, placed.epoch, placed.decode);
  if (attached) return;
  effects_.push_back(OpenTokens{request.spec->id, placed.epoch, placed.decode, placed.endpoint,
                                request.cell.value_or(0), /*ahead=*/false});
}

// Its cell need not be ready: a token that comes places it, too.
void RouterCore::Place(Request& request, Epoch epoch, InstanceId decode) {
  SetState(request, State::kPlaced);
  request.begun = true;
  request.tokens = Tokens::kOpen;
  request.epoch = epoch;
  request.decode = decode;
  StopWaiting(request);
}

void RouterCore::Apply(Request& request, const Failed& failed) {
  absl::Status status =
      failed.status.ok() ? absl::InternalError("failed without a reason") : failed.status;
  const bool elsewhere =
      absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || absl::IsNotFound(status);
  if (elsewhere && !request.taken) return TakeRefusal(request, status);
  Finish(request, FinishReason::kError, std::move(status));
}

// Nothing of it was begun in its cell.
void RouterCore::TakeRefusal(Request& request, const absl::Status& status) {
  const bool full = absl::IsResourceExhausted(status);
  if (full) cells_.OnRefused(*request.cell, request.spec->model);
  if (full || request.refusal.ok()) request.refusal = status;
  if (++request.refusals < kCellsTried && Move(request, status)) {
    ++snapshot_.moved_refused;
    ++snapshot_version_;
    return;
  }
  Finish(request, FinishReason::kError, request.refusal);
}

// A stream that is placed goes on without the orchestrator.
void RouterCore::Apply(Request& request, const PlanEnded&) {
  request.known = Known::kOver;
  if (!request.lost.ok()) return Finish(request, request.lost_reason, request.lost);
  if (request.state == State::kPlaced) return;
  Finish(request, FinishReason::kError,
         absl::UnavailableError("the plan ended before a decode instance"));
}

void RouterCore::On(const TokenReceived& event) {
  Request* request = FindStream(event.id, event.epoch);
  if (request == nullptr) return;
  if (request->tokens == Tokens::kAhead) Place(*request, request->epoch, request->decode);
  if (event.index != request->delivered) {
    return FailIndex(*request, absl::StrCat("token ", event.index, " came, ", request->delivered,
                                            " was expected"));
  }
  if (request->delivered++ == 0) request->first_token_us = now_;
  if (event.times.has_value()) request->times.prefill = event.times;
  effects_.push_back(
      DeliverToken{event.id, event.index, event.token, event.payload, event.prompt_logprobs});
}

void RouterCore::On(const FinishedReceived& event) {
  Request* request = FindStream(event.id, event.epoch);
  if (request == nullptr) return;
  const int64_t emitted = event.output_tokens - (event.stop_token >= 0 ? 1 : 0);
  const bool complete =
      event.reason == FinishReason::kStop || event.reason == FinishReason::kLength;
  if (request->tokens == Tokens::kAhead) {
    // It got no blocks there. If it did, and failed, then its orchestrator says so.
    if (!complete) {
      request->tokens = Tokens::kNone;
      return;
    }
    Place(*request, request->epoch, request->decode);
  }
  request->tokens = Tokens::kOver;
  if (complete && emitted != request->delivered) {
    return FailIndex(*request,
                     absl::StrCat(emitted, " tokens sent, ", request->delivered, " received"));
  }
  absl::Status status = event.status;
  if (!complete && status.ok()) status = absl::InternalError("failed without a reason");
  if (!complete) return Lose(*request, event.reason, std::move(status));
  if (event.times.has_value()) request->times.prefill = event.times;
  Finish(*request, event.reason, std::move(status), event.stop_token, event.prompt_logprobs);
}

void RouterCore::On(const TokenStreamLost& event) {
  Request* request = FindStream(event.id, event.epoch);
  if (request == nullptr) return;
  if (request->tokens == Tokens::kAhead) {
    request->tokens = Tokens::kNone;
    return;
  }
  absl::Status status = event.status;
  if (status.ok()) status = absl::UnavailableError("the token stream ended early");
  // The decode instance's inbox was full. The request was accepted, so this is not a 429.
  if (absl::IsResourceExhausted(status)) status = absl::UnavailableError(status.message());
  Lose(*request, FinishReason::kError, std::move(status));
}

void RouterCore::On(const ClientGone& event) {
  if (Request* request = Find(event.id); request != nullptr) {
    Finish(*request, FinishReason::kCancelled, absl::CancelledError("the client went away"), -1, {},
           /*client_gone=*/true);
  }
}

void RouterCore::On(const StopMatched& event) {
  Request* request = Find(event.id);
  if (request == nullptr || request->state != State::kPlaced) return;
  Finish(*request, FinishReason::kStop, absl::OkStatus());
}

void RouterCore::RunTimers() {
  while (const auto id = deadlines_.TakeDue(now_)) {
    Finish(requests_.at(*id), FinishReason::kError,
           absl::DeadlineExceededError("the request's deadline passed"));
  }
  while (const auto id = waits_.TakeDue(now_)) {
    Request& request = requests_.at(*id);
    if (!request.lost.ok()) {
      Finish(request, request.lost_reason, request.lost);
    } else {
      Finish(request, FinishReason::kError,
             absl::UnavailableError(absl::StrCat("The orchestrator cannot be reached (",
                                                 WhyUnreachable(request).message(), "). Retry.")));
    }
  }
}

void RouterCore::FailIndex(Request& request, const std::string& what) {
  ++snapshot_.index_errors;
  Finish(request, FinishReason::kError, absl::InternalError(what));
}

void RouterCore::Finish(Request& request, FinishReason reason, absl::Status status,
                        int32_t stop_token, std::string prompt_logprobs, bool client_gone) {
  const RequestId id = request.spec->id;
  if (request.state == State::kQueued) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), id));
  } else {
    --running_;
    recent_ends_.push_back(now_);
    if (recent_ends_.size() > kRecentEnds) recent_ends_.pop_front();
  }
  CloseStream(request);
  const bool complete = reason == FinishReason::kStop || reason == FinishReason::kLength;
  const bool cancelled = reason == FinishReason::kCancelled;
  ++(complete ? snapshot_.finished : cancelled ? snapshot_.cancelled : snapshot_.failed);
  End end{.id = id,
          .reason = reason,
          .status = std::move(status),
          .prompt_tokens = PromptTokens(*request.spec),
          .output_tokens = request.delivered + (stop_token >= 0 ? 1 : 0),
          .stop_token = stop_token,
          .prompt_logprobs = std::move(prompt_logprobs),
          .begun = request.begun,
          .times = request.times};
  if (request.cell.has_value()) TellEnd(*request.cell, EndOf(request, end, client_gone));
  effects_.push_back(std::move(end));
  deadlines_.Remove(id);
  StopWaiting(request);
  Count(request, -1);
  requests_.erase(id);
}

std::string_view RouterCore::StateOf(RequestId id) const {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return "";
  switch (it->second.state) {
    case State::kQueued:
      return "queued";
    case State::kSubmitted:
      return "submitted";
    case State::kPlaced:
      return "placed";
  }
  return "";
}

RouterCore::Request* RouterCore::Find(RequestId id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : &it->second;
}

RouterCore::Request* RouterCore::FindStream(RequestId id, Epoch epoch) {
  Request* request = Find(id);
  if (request == nullptr || request->epoch != epoch) return nullptr;
  const bool has_one = request->tokens == Tokens::kAhead || request->tokens == Tokens::kOpen;
  return has_one ? request : nullptr;
}

// How long until a place in the queue is likely to be free: one more end at the recent rate.
TimeUs RouterCore::RetryAfter() const {
  TimeUs wait = config_.max_retry_after_us;
  if (recent_ends_.size() >= 2) {
    const TimeUs span = now_ - recent_ends_.front();
    const auto ends = static_cast<int64_t>(recent_ends_.size());
    wait = span / ends * (1 + static_cast<int64_t>(queue_.size()));
  } else if (recent_ends_.empty()) {
    wait = config_.min_retry_after_us;
  }
  return std::clamp(wait, config_.min_retry_after_us, config_.max_retry_after_us);
}

TimeUs RouterCore::NextDeadline() const {
  return std::min({deadlines_.Next(), waits_.Next(), cells_.NextDeadline()});
}

absl::Status RouterCore::CheckInvariants() const {
  if (absl::Status status = cells_.CheckInvariants(); !status.ok()) return status;
  int64_t running = 0, streaming = 0;
  for (const auto& [id, request] : requests_) {
    running += request.state != State::kQueued;
    streaming += request.state == State::kPlaced;
    if (request.delivered > 0 && request.state != State::kPlaced) {
      return absl::InternalError(absl::StrCat("RouterCore 2: ", ToString(id), " too early"));
    }
  }
  const auto queued = static_cast<int64_t>(requests_.size()) - running;
  if (running != running_ || running > config_.max_streams || queued > config_.max_queued ||
      queued != static_cast<int64_t>(queue_.size()) ||
      (queued > 0 && running < config_.max_streams)) {
    return absl::InternalError(
        absl::StrCat("RouterCore 1: ", running, " running, ", queued, " queued"));
  }
  if (queued != snapshot_.queued || streaming != snapshot_.streaming ||
      running != snapshot_.submitted + snapshot_.streaming) {
    return absl::InternalError(absl::StrCat("RouterCore 4: counted ", snapshot_.queued, " queued, ",
                                            snapshot_.submitted, " submitted, ",
                                            snapshot_.streaming, " streaming"));
  }
  for (const auto& [id, request] : requests_) {
    const bool lost = !request.lost.ok();
    const bool waits = lost || (request.state == State::kSubmitted && !Ready(request));
    const bool timed = waits_.Of(id) != kNever;
    const bool unsettled = unsettled_.count(id) > 0;
    if (deadlines_.Of(id) != request.deadline_us || waits != timed ||
        unsettled != (waits && !Ready(request)) || (lost && request.tokens != Tokens::kOver)) {
      return absl::InternalError(absl::StrCat(
          "RouterCore 5: ", ToString(id), " has a timer without a wait, or waits without a timer"));
    }
    const bool placed = request.tokens == Tokens::kOpen || request.tokens == Tokens::kOver;
    if (placed != (request.state == State::kPlaced)) {
      return absl::InternalError(absl::StrCat("RouterCore 7: the token stream of ", ToString(id)));
    }
    const bool told = request.known != Known::kUnsent;
    if (told != request.cell.has_value() || (told && request.left.count(*request.cell) > 0)) {
      return absl::InternalError(absl::StrCat("RouterCore 6: the cell of ", ToString(id)));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
