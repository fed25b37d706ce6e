#include "scheduler/router/router_core.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {
namespace {

// What its cell is told of its end.
RouterEnd EndOf(const ClientRequest& request, const End& end, bool client_gone) {
  RouterEnd out{.id = request.spec->id,
                .output_tokens = end.output_tokens - request.delivered_before};
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

// A further attempt is sooner there than a plan that takes long to come.
TimeUs ReplanWait(const RouterConfig& config) {
  constexpr TimeUs kMaxUs = kSecondUs / 2;
  const bool resumes = config.head_of_attempt != nullptr && config.resume_wait_us > 0;
  return resumes ? std::min(config.replan_wait_us, kMaxUs) : config.replan_wait_us;
}

// What was lost with the instances: others may do it.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsAborted(status);
}

}  // namespace

RouterCore::RouterCore(const RouterConfig& config)
    : config_(config),
      requests_({.max_streams = config.max_streams,
                 .max_queued = config.max_queued,
                 .min_retry_after_us = config.min_retry_after_us,
                 .max_retry_after_us = config.max_retry_after_us},
                &snapshot_),
      budget_(config.max_streams),
      cells_({.cells = config.cells,
              .replan_wait_us = ReplanWait(config),
              .orchestrator_wait_us = config.orchestrator_wait_us,
              .session = config.session},
             {.now = &now_, .requests = &requests_, .snapshot = &snapshot_, .effects = &effects_}) {
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
  cells_.TakeLostCells();
  RunTimers();
  while (Request* request = requests_.Admit(now_)) cells_.Submit(*request);
  cells_.RunSessions();
  snapshot_.oldest_arrival_us = requests_.OldestQueuedUs();
  return std::move(effects_);
}

void RouterCore::On(const Arrived& event) {
  const RequestId id = event.spec->id;
  if (requests_.Has(id) || id.attempt() != 0) {
    effects_.push_back(Reject{id, absl::AlreadyExistsError("the id was used before"), 0});
    return;
  }
  if (const std::string why = requests_.WhyFull(*event.spec, now_); !why.empty()) {
    ++snapshot_.rejected;
    ++snapshot_.version;
    effects_.push_back(Reject{id, absl::ResourceExhaustedError(why), requests_.RetryAfter(now_)});
    return;
  }
  ++snapshot_.accepted;
  budget_.Requested();
  Request request;
  request.spec = event.spec;
  request.shape = event.shape;
  request.affinity = event.affinity;
  request.arrived_us = now_;
  const TimeUs budget = event.spec->deadline_us;
  request.deadline_us = now_ + (budget > 0 ? std::min(budget, config_.request_deadline_us)
                                           : config_.request_deadline_us);
  deadlines_.Set(id, request.deadline_us);
  requests_.Add(std::move(request));
}

void RouterCore::On(const PlanUpdateReceived& event) {
  Request* request = requests_.Find(event.id);
  if (request == nullptr || request->cell != event.cell) return;
  if (!request->IsKnown()) return;
  if (!std::holds_alternative<Failed>(event.update)) Accept(*request);
  std::visit([&](const auto& update) { Apply(*request, update); }, event.update);
}

void RouterCore::Accept(Request& request) {
  request.known = Known::kTaken;
  if (request.progress != Progress::kNone) return;
  request.progress = Progress::kAccepted;
  request.refusal = absl::OkStatus();
  effects_.push_back(RequestAccepted{request.asked->id});
}

void RouterCore::NoteFailed(const FailedEngines& engines, Request* request) {
  FailedEngines& known = request->failed_engines;
  for (const Incarnation engine : engines) {
    if (std::find(known.begin(), known.end(), engine) == known.end()) known.push_back(engine);
  }
}

void RouterCore::Apply(Request& request, const Accepted& accepted) {
  NoteFailed(accepted.failed_engines, &request);
}

void RouterCore::Apply(Request& request, const Planned& planned) {
  NoteFailed(planned.failed_engines, &request);
  const bool first = request.delivered_before == 0;
  if (first && planned.epoch >= request.epoch) request.times.plan_us = planned.decided_us;
  if (planned.epoch > request.epoch) {
    if (request.DeliveredNow() > 0) {
      return LoseAttempt(request, FinishReason::kError,
                         absl::UnavailableError("the plan was lost after tokens were sent"));
    }
    if (request.IsPlaced()) cells_.StopWaiting(request);
    cells_.Detach(request);
    request.epoch = planned.epoch;
  }
  AttachAhead(request, planned);
}

void RouterCore::AttachAhead(Request& request, const Planned& planned) {
  if (planned.decode_endpoint.empty() || planned.epoch != request.epoch) return;
  if (request.state != State::kSubmitted) return;
  requests_.SetState(request, State::kAhead);
  request.decode = planned.decode;
  request.decode_process = planned.decode_incarnation;
  request.decode_endpoint = planned.decode_endpoint;
  effects_.push_back(OpenTokens{request.spec->id, request.epoch, planned.decode_incarnation,
                                planned.decode_endpoint, request.cell.value_or(0),
                                /*ahead=*/true});
}

// Its attempt is lost, unless the orchestrator may still plan it anew.
void RouterCore::Lose(Request& request, FinishReason reason, absl::Status status) {
  requests_.SetState(request, State::kStreamOver);
  if (!IsPassing(status) || request.known == Known::kOver || request.DeliveredNow() > 0) {
    return LoseAttempt(request, reason, std::move(status));
  }
  if (request.known == Known::kUnknown) return cells_.SubmitAnew(request);
  request.lost_reason = reason;
  request.lost = std::move(status);
  cells_.AwaitReplan(request);
}

// A client that knows nothing of its request yet may send it again itself. A first attempt was
// found possible; what makes a later one impossible is a loss, too.
void RouterCore::LoseAttempt(Request& request, FinishReason reason, absl::Status status) {
  if (request.losses.count() > 0 && absl::IsInvalidArgument(status)) {
    status = absl::UnavailableError(status.message());
  }
  if (!IsPassing(status) || request.progress == Progress::kNone) {
    return Finish(request, reason, std::move(status));
  }
  Resume(request, reason, std::move(status));
}

void RouterCore::Resume(Request& request, FinishReason reason, absl::Status status) {
  if (request.delivered > 0 && request.delivered == request.asked->max_tokens) {
    return Finish(request, FinishReason::kLength, absl::OkStatus());  // only its end was lost
  }
  const bool free = request.losses.count() == 0 || request.DeliveredNow() > 0;
  if (config_.head_of_attempt == nullptr ||
      !request.losses.Lose(request.placed_us, config_.resume_wait_us, now_)) {
    return Finish(request, reason, std::move(status));
  }
  EndAttempt(request, reason, std::move(status), free);
}

// The next one begins at its time; unless it is free, when the budget allows it.
void RouterCore::EndAttempt(Request& request, FinishReason reason, absl::Status status, bool free) {
  ++snapshot_.resumes;
  const RequestId first = request.asked->id;
  End end{.id = first, .reason = reason, .status = status, .output_tokens = request.delivered};
  RouterEnd told = EndOf(request, end, /*client_gone=*/false);
  told.how = RouterEnd::How::kResumed;
  told.why = absl::StrCat(std::string(status.message()), "; it goes on as request ",
                          ToString(first.Attempt(request.losses.count())));
  cells_.CloseStream(request);
  cells_.LeaveCell(request, std::move(told));
  request.lost_reason = reason;
  request.lost = std::move(status);
  requests_.SetState(request, State::kResuming);
  request.paid = !free;
  (free ? attempts_ : retries_).Set(first, request.losses.begins_us());
}

void RouterCore::BeginRetries() {
  while (retries_.Next() <= now_) {
    if (!budget_.Take(now_)) {
      budget_is_short_ = true;
      return;
    }
    snapshot_.retries_delayed += budget_is_short_ ? 1 : 0;
    BeginAttempt(requests_.at(*retries_.TakeDue(now_)));
  }
  budget_is_short_ = false;
}

TimeUs RouterCore::NextRetry() const {
  const TimeUs next = retries_.Next();
  return next == kNever ? kNever : std::max(next, budget_.NextUs());
}

void RouterCore::BeginAttempt(Request& request) {
  std::span<const int32_t> sent(request.sent);
  if (SKEIN_PLANT(resume_at_wrong_index) && !sent.empty()) sent = sent.first(sent.size() - 1);
  RequestHead asked = *request.asked;
  asked.deadline_us = std::max<TimeUs>(request.deadline_us - now_, 1);  // what is left of it
  request.spec = config_.head_of_attempt(asked, asked.id.Attempt(request.losses.count()), sent);
  request.delivered_before = request.delivered;
  request.submitted_us = now_;
  request.first_token_us = -1;
  request.placed_us = kNever;
  request.lost = absl::OkStatus();
  requests_.SetState(request, State::kSubmitted);
  cells_.Submit(request);
}

// An instance that was given up and came back is the same process under another number: closing the
// stream there would cancel the request.
void RouterCore::Apply(Request& request, const Placed& placed) {
  if (!request.IsSubmitted() || placed.epoch < request.epoch) return;
  const bool attached = request.state == State::kAhead && request.epoch == placed.epoch &&
                        request.decode_endpoint == placed.endpoint;
  if (!attached) cells_.CloseStream(request);
  request.decode_process = placed.incarnation;
  Place(request, placed.epoch, placed.decode);
  if (attached) return;
  effects_.push_back(OpenTokens{request.spec->id, placed.epoch, placed.incarnation, placed.endpoint,
                                request.cell.value_or(0), /*ahead=*/false});
}

// Its cell need not be ready: a token that comes places it, too.
void RouterCore::Place(Request& request, Epoch epoch, InstanceId decode) {
  requests_.SetState(request, State::kStreaming);
  request.progress = Progress::kBegun;
  request.placed_us = std::min(request.placed_us, now_);
  request.epoch = epoch;
  request.decode = decode;
  cells_.StopWaiting(request);
}

void RouterCore::Apply(Request& request, const Failed& failed) {
  NoteFailed(failed.failed_engines, &request);
  absl::Status status =
      failed.status.ok() ? absl::InternalError("the orchestrator gave no reason") : failed.status;
  const bool elsewhere =
      absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || absl::IsNotFound(status);
  if (elsewhere && request.known == Known::kSent) return TakeRefusal(request, status);
  if (failed.condemned) return Finish(request, FinishReason::kError, std::move(status));
  LoseAttempt(request, FinishReason::kError, std::move(status));
}

// Nothing of it was begun in its cell. What was accepted before is not refused to its client: it is
// tried until an instance has room.
void RouterCore::TakeRefusal(Request& request, const absl::Status& status) {
  const bool full = absl::IsResourceExhausted(status);
  if (full) cells_.NoteFull(request);
  if (full || request.refusal.ok()) request.refusal = status;
  if (++request.refusals < kCellsTried && cells_.MoveRefused(request, status)) return;
  if (request.progress == Progress::kNone) {
    return Finish(request, FinishReason::kError, request.refusal);
  }
  Resume(request, FinishReason::kError, absl::UnavailableError(request.refusal.message()));
}

// A stream that is placed goes on without the orchestrator.
void RouterCore::Apply(Request& request, const PlanEnded&) {
  request.known = Known::kOver;
  if (request.IsLost()) return LoseAttempt(request, request.lost_reason, request.lost);
  if (request.IsPlaced()) return;
  LoseAttempt(request, FinishReason::kError,
              absl::UnavailableError("the plan ended before a decode instance was assigned"));
}

void RouterCore::On(const TokenReceived& event) {
  Request* request = requests_.FindStream(event.id, event.epoch);
  if (request == nullptr) return;
  if (request->state == State::kAhead) Place(*request, request->epoch, request->decode);
  if (event.again) return TakeAgain(*request, event);
  if (event.index != request->DeliveredNow()) {
    return FailIndex(*request, absl::StrCat("token ", event.index, " arrived, but token ",
                                            request->DeliveredNow(), " was expected"));
  }
  if (request->DeliveredNow() == 0) request->first_token_us = now_;
  if (request->first_us == kNever) request->first_us = now_;
  request->last_us = now_;
  if (std::exchange(request->paid, false)) budget_.Progressed();
  if (event.times.has_value() && request->delivered == 0) request->times.prefill = event.times;
  request->sent.push_back(event.token);
  effects_.push_back(DeliverToken{request->asked->id, request->delivered++, event.token,
                                  event.payload, event.prompt_logprobs});
  requests_.NoteDelivered(*request);
}

void RouterCore::TakeAgain(Request& request, const TokenReceived& event) {
  if (event.index < 0 || event.index >= request.DeliveredNow()) {
    return FailIndex(request, absl::StrCat("token ", event.index, " came again, but only ",
                                           request.DeliveredNow(), " were received"));
  }
  const int64_t place = request.delivered_before + event.index;
  if (request.sent[static_cast<size_t>(place)] != event.token) {
    return FailIndex(request,
                     absl::StrCat("token ", event.index,
                                  " came again after its stream broke, and is another one"));
  }
  ++snapshot_.reattached;
  ++snapshot_.version;
}

void RouterCore::On(const FinishedReceived& event) {
  Request* request = requests_.FindStream(event.id, event.epoch);
  if (request == nullptr) return;
  if (event.engine_failed && request->decode_process != Incarnation{}) {
    NoteFailed({request->decode_process}, request);
  }
  const int64_t emitted = event.output_tokens - (event.stop_token >= 0 ? 1 : 0);
  const bool complete =
      event.reason == FinishReason::kStop || event.reason == FinishReason::kLength;
  if (request->state == State::kAhead) {
    // It got no blocks there. If it did, and failed, then its orchestrator says so.
    if (!complete) return requests_.SetState(*request, State::kSubmitted);
    Place(*request, request->epoch, request->decode);
  }
  requests_.SetState(*request, State::kStreamOver);
  if (complete && emitted != request->DeliveredNow()) {
    return FailIndex(*request,
                     absl::StrCat(emitted, " tokens sent, ", request->DeliveredNow(), " received"));
  }
  absl::Status status = event.status;
  if (!complete && status.ok()) status = absl::InternalError("the decode instance gave no reason");
  // The process at that address is another one, or keeps the request no more after a break.
  const bool unknown = absl::IsNotFound(status) || absl::IsAlreadyExists(status);
  if (unknown) status = absl::UnavailableError(status.message());
  if (!complete) return Lose(*request, event.reason, std::move(status));
  if (event.times.has_value() && request->delivered == 0) request->times.prefill = event.times;
  Finish(*request, event.reason, std::move(status), event.stop_token, event.prompt_logprobs);
}

void RouterCore::On(const TokenStreamLost& event) {
  Request* request = requests_.FindStream(event.id, event.epoch);
  if (request == nullptr) return;
  if (event.unreached) return LeaveUnreached(*request, event.status);
  if (request->state == State::kAhead) return requests_.SetState(*request, State::kSubmitted);
  absl::Status status = event.status;
  if (status.ok()) status = absl::UnavailableError("the token stream ended early");
  // The decode instance's inbox was full. The request was accepted, so this is not a 429.
  if (absl::IsResourceExhausted(status)) status = absl::UnavailableError(status.message());
  Lose(*request, FinishReason::kError, std::move(status));
}

// Its orchestrator reaches the instance, and would not plan it anew. Nothing has run there, so this
// says nothing against the request.
void RouterCore::LeaveUnreached(Request& request, const absl::Status& status) {
  ++snapshot_.unreached;
  ++snapshot_.version;
  if (request.known == Known::kUnknown) return cells_.SubmitAnew(request);
  request.placed_us = kNever;
  LoseAttempt(request, FinishReason::kError, status);
}

void RouterCore::On(const StreamLeaving& event) {
  Request* request = requests_.FindStream(event.id, event.epoch);
  if (request == nullptr || !MayMove(*request)) return;
  ++snapshot_.moves;
  request->losses.Move(now_);
  EndAttempt(*request, FinishReason::kError, absl::UnavailableError("its decode instance drains"),
             /*free=*/true);
}

// An answer that is whole but for its end is not computed again for that. Without a token, logprobs
// of the prompt may be still to come.
bool RouterCore::MayMove(const Request& request) const {
  const bool resumes = config_.head_of_attempt != nullptr && config_.resume_wait_us > 0;
  return resumes && request.state == State::kStreaming && cells_.Ready(request) &&
         request.delivered > 0 && request.delivered < request.asked->max_tokens;
}

void RouterCore::On(const ClientGone& event) {
  if (Request* request = requests_.FindAny(event.id); request != nullptr) {
    Finish(*request, FinishReason::kCancelled, absl::CancelledError("the client disconnected"), -1,
           {},
           /*client_gone=*/true);
  }
}

void RouterCore::On(const StopMatched& event) {
  Request* request = requests_.FindAny(event.id);
  if (request == nullptr || (!request->IsPlaced() && request->delivered == 0)) return;
  Finish(*request, FinishReason::kStop, absl::OkStatus());
}

void RouterCore::RunTimers() {
  while (const auto id = deadlines_.TakeDue(now_)) {
    Finish(requests_.at(*id), FinishReason::kError,
           absl::DeadlineExceededError("the request's deadline passed"));
  }
  while (const auto id = cells_.TakeOverdue()) {
    Request& request = requests_.at(*id);
    if (request.IsLost()) {
      LoseAttempt(request, request.lost_reason, request.lost);
    } else {
      Finish(request, FinishReason::kError,
             absl::UnavailableError(absl::StrCat("The orchestrator cannot be reached (",
                                                 cells_.WhyUnreachable(request).message(),
                                                 "). Retry.")));
    }
  }
  while (const auto id = attempts_.TakeDue(now_)) BeginAttempt(requests_.at(*id));
  BeginRetries();
}

void RouterCore::FailIndex(Request& request, const std::string& what) {
  ++snapshot_.index_errors;
  Finish(request, FinishReason::kError, absl::InternalError(what));
}

// From arrival to the first token, and the mean time between tokens, as its client sees them.
void RouterCore::CountGoals(const Request& request, bool complete) {
  const RequestHead& asked = *request.asked;
  const bool has_token = complete && request.first_us != kNever;
  const auto count = [](RouterSnapshot::Goal& goal, bool met) { ++(met ? goal.met : goal.missed); };
  if (asked.ttft_goal_us > 0) {
    count(snapshot_.ttft_goals,
          has_token && request.first_us - request.arrived_us <= asked.ttft_goal_us);
  }
  if (asked.tpot_goal_us > 0 && !(complete && request.delivered < 2)) {
    const int64_t gaps = request.delivered - 1;
    count(snapshot_.tpot_goals,
          has_token && request.last_us - request.first_us <= gaps * asked.tpot_goal_us);
  }
}

void RouterCore::Finish(Request& request, FinishReason reason, absl::Status status,
                        int32_t stop_token, std::string prompt_logprobs, bool client_gone) {
  const RequestId id = request.asked->id;
  cells_.CloseStream(request);
  const bool complete = reason == FinishReason::kStop || reason == FinishReason::kLength;
  const bool cancelled = reason == FinishReason::kCancelled;
  ++(complete ? snapshot_.finished : cancelled ? snapshot_.cancelled : snapshot_.failed);
  if (!cancelled) CountGoals(request, complete);
  End end{.id = id,
          .reason = reason,
          .status = std::move(status),
          .prompt_tokens = PromptTokens(*request.asked),
          .output_tokens = request.delivered + (stop_token >= 0 ? 1 : 0),
          .stop_token = stop_token,
          .prompt_logprobs = std::move(prompt_logprobs),
          .begun = request.progress == Progress::kBegun,
          .times = request.times};
  cells_.Forget(request, EndOf(request, end, client_gone));
  effects_.push_back(std::move(end));
  deadlines_.Remove(id);
  attempts_.Remove(id);
  retries_.Remove(id);
  requests_.Erase(request, now_);
}

TimeUs RouterCore::NextDeadline() const {
  return std::min({deadlines_.Next(), attempts_.Next(), NextRetry(), cells_.NextDeadline()});
}

absl::Status RouterCore::CheckInvariants() const {
  for (const absl::Status& status : {requests_.CheckInvariants(), cells_.CheckInvariants()}) {
    if (!status.ok()) return status;
  }
  for (const auto& [id, request] : requests_.all()) {
    const bool resuming = request.state == State::kResuming;
    const int times = (attempts_.Of(id) != kNever ? 1 : 0) + (retries_.Of(id) != kNever ? 1 : 0);
    if (deadlines_.Of(id) == request.deadline_us && times == (resuming ? 1 : 0)) continue;
    return absl::InternalError(
        absl::StrCat("RouterCore 5: the deadline or the next attempt of ", ToString(id)));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
