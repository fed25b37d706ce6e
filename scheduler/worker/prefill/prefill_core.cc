// Entry, admission, the end of requests. The way in between: prefill_flow.cc.
#include "scheduler/worker/prefill/prefill_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {

namespace {

MembershipConfig MembershipOf(const PrefillConfig& config) {
  MembershipConfig membership = config.membership;
  membership.identity.max_batch_tokens = config.batch.max_batch_tokens;
  membership.identity.max_requests = config.max_requests;
  return membership;
}

}  // namespace

PrefillCore::PrefillCore(const PrefillConfig& config) : impl_(std::make_unique<Impl>(config)) {}
PrefillCore::~PrefillCore() = default;
std::vector<PrefillEffect> PrefillCore::Handle(const PrefillEvent& event, TimeUs now) {
  return impl_->Handle(event, now);
}
TimeUs PrefillCore::NextDeadline() const { return impl_->NextDeadline(); }
absl::Status PrefillCore::CheckEpoch(Epoch epoch) const { return impl_->CheckEpoch(epoch); }
absl::Status PrefillCore::CheckInvariants() const { return impl_->CheckInvariants(); }
std::string_view PrefillCore::StateOf(RequestId id) const { return impl_->StateOf(id); }
PrefillSnapshot PrefillCore::Snapshot(TimeUs now) const { return impl_->Snapshot(now); }

PrefillCore::Impl::Impl(const PrefillConfig& config)
    : config_(config),
      shape_(config.membership.identity.shape),
      pool_(config.membership.identity.total_blocks),
      batch_(config.batch),
      membership_(MembershipOf(config)),
      steps_(config.engine),
      kv_out_({.incarnation = config.membership.identity.incarnation,
               .shape = config.membership.identity.shape,
               .rpc_timeout_us = config.rpc_timeout_us,
               .acquire_timeout_us = config.ask_timeout_us,
               .retry_us = config.retry_us,
               .attempts = config.attempts},
              [this](KvOutEffect effect) {
                std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
              }),
      queue_(config.begin_ahead, config.batch) {}

std::vector<PrefillEffect> PrefillCore::Impl::Handle(const PrefillEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  RunTimers();
  TakeOutcomes();
  TakeSuccessors();
  AskForPlaces();
  StartStep();
  Report();
  return std::move(effects_);
}

void PrefillCore::Impl::On(const AssignCalled& event) {
  effects_.push_back(AnswerAssign{event.call, {Assign(event.request)}});
}

absl::Status PrefillCore::Impl::Assign(const AssignRequest& assign) {
  const bool spans = !assign.members.empty();
  const RequestId id = assign.spec->id;
  if (Request* known = Find(id, assign.epoch); known != nullptr) {
    return spans ? ExtendPlan(*known, assign) : absl::OkStatus();  // the same once more
  }
  if (absl::Status status = Accept(assign); !status.ok()) return status;
  if (const auto older = requests_.find(id); older != requests_.end()) {
    End(older->second, absl::CancelledError("planned anew"));
    if (requests_.count(id) > 0) return AssignAfterOlder(assign);
  }
  Request request;
  request.spec = assign.spec;
  request.epoch = assign.epoch;
  request.sequence = assign.sequence;
  request.suspect = assign.suspect;
  request.arrived_us = now_;
  const TimeUs budget = assign.spec->deadline_us;
  request.deadline_us = now_ + (budget > 0 ? budget : config_.request_deadline_us);
  if (assign.placed.has_value()) request.placed = *assign.placed;
  if (spans) {
    if (absl::Status status = AddSpPlan(assign, &request); !status.ok()) return status;
  }
  membership_.Holds({.id = id, .epoch = assign.epoch});
  queue_.Wait(PlaceOf(request));
  Arm(requests_.emplace(id, std::move(request)).first->second);
  return absl::OkStatus();
}

// The older epoch's blocks are still in use: this one is taken up when they are not.
absl::Status PrefillCore::Impl::AssignAfterOlder(const AssignRequest& assign) {
  const RequestId id = assign.spec->id;
  if (const auto it = successors_.find(id); it != successors_.end()) {
    const Epoch waiting = it->second.front().epoch;
    if (waiting > assign.epoch) return absl::FailedPreconditionError("epoch: stale");
    if (waiting < assign.epoch) EndSuccessors(id, waiting, absl::CancelledError("planned anew"));
  }
  successors_[id].push_back(assign);
  membership_.Holds({.id = id, .epoch = assign.epoch});
  return absl::OkStatus();
}

void PrefillCore::Impl::TakeSuccessors() {
  for (const RequestId id : std::exchange(left_, {})) {
    const auto it = successors_.find(id);
    if (it == successors_.end() || requests_.count(id) > 0) continue;
    const std::vector<AssignRequest> assigns = std::move(it->second);
    successors_.erase(it);
    for (const AssignRequest& assign : assigns) {
      const absl::Status status = Assign(assign);
      if (status.ok()) continue;
      tombstones_.Put(assign.spec->id, assign.epoch, false);
      ++failed_;
      membership_.Ended({assign.spec->id, assign.epoch, FinishReason::kError, status});
      break;
    }
  }
}

void PrefillCore::Impl::EndSuccessors(RequestId id, Epoch epoch, const absl::Status& status) {
  const auto it = successors_.find(id);
  if (it == successors_.end() || it->second.front().epoch > epoch) return;
  const Epoch ended = it->second.front().epoch;
  successors_.erase(it);
  ++failed_;
  const bool cancelled = status.code() == absl::StatusCode::kCancelled;
  membership_.Ended(
      {id, ended, cancelled ? FinishReason::kCancelled : FinishReason::kError, status});
}

absl::Status PrefillCore::Impl::Accept(const AssignRequest& request) const {
  const RequestSpec& spec = *request.spec;
  const auto known = requests_.find(spec.id);
  if (known != requests_.end() && known->second.epoch > request.epoch) {
    return absl::FailedPreconditionError("epoch: stale");
  }
  if (tombstones_.Covers(spec.id, request.epoch)) {
    return absl::FailedPreconditionError("epoch: ended already");
  }
  if (!steps_.engine().ok()) return absl::UnavailableError("the engine has failed");
  if (membership_.draining()) return absl::UnavailableError("draining");
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  const int64_t prompt_tokens = PromptTokens(spec);
  if (request.members.empty() && BlocksOf(shape_, prompt_tokens) > pool_.Counts().total) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", prompt_tokens, " tokens, room for ",
                                                   pool_.Counts().total * shape_.block_tokens));
  }
  if (config_.max_sequence_tokens > 0 &&
      prompt_tokens + spec.max_tokens > config_.max_sequence_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt + max_tokens: ", prompt_tokens + spec.max_tokens, " of at most ",
                     config_.max_sequence_tokens));
  }
  if (static_cast<int64_t>(requests_.size()) >= config_.max_requests) {
    return absl::ResourceExhaustedError("the prefill queue is full");
  }
  return absl::OkStatus();
}

PrefillCore::Impl::Request* PrefillCore::Impl::Find(RequestId id, Epoch epoch) {
  const auto it = requests_.find(id);
  return it != requests_.end() && it->second.epoch == epoch ? &it->second : nullptr;
}

PrefillCore::Impl::Request* PrefillCore::Impl::FindLive(RequestId id, Epoch epoch) {
  Request* request = Find(id, epoch);
  return request != nullptr && request->state != State::kEnding ? request : nullptr;
}

void PrefillCore::Impl::On(const CancelCalled& event) {
  if (!CheckEpoch(event.request.epoch).ok()) return;
  CancelUpTo(event.request.id, event.request.epoch, event.request.why);
}

void PrefillCore::Impl::CancelUpTo(RequestId id, Epoch epoch, const std::string& why) {
  const auto it = requests_.find(id);
  if (it != requests_.end() && it->second.epoch <= epoch) {
    End(it->second, absl::CancelledError(why));
  }
  EndSuccessors(id, epoch, absl::CancelledError(why));
  tombstones_.Put(id, epoch, false);
}

void PrefillCore::Impl::On(const RegisterReplied& event) {
  membership_.OnRegistered(event.reply, now_);
  if (!event.reply.status.ok()) return;
  for (const HeldRequest& cancel : event.reply.cancel) {
    CancelUpTo(cancel.id, cancel.epoch, "unknown to the orchestrator");
  }
  EndOrphans();
  AskWhenConnected();
}

void PrefillCore::Impl::On(const Disconnected& event) {
  membership_.OnDisconnected(event.status, now_);
  AwaitConnection();
}

void PrefillCore::Impl::On(const ReportReplied& event) {
  membership_.OnReported(event.serial, event.reply, now_);
}

void PrefillCore::Impl::On(const OrderDrain& event) {
  if (membership_.OrderDrain(event.drain)) HandBack();
}

void PrefillCore::Impl::On(const Drain& event) {
  if (membership_.leaving()) return;
  membership_.StartDrain();
  drain_end_us_ = now_ + event.grace_us;
  HandBack();
}

// The orchestrator plans anew what has not begun here.
void PrefillCore::Impl::HandBack() {
  while (const std::optional<RequestId> first = queue_.First()) {
    End(requests_.at(*first), absl::UnavailableError("handed back: draining"));
  }
  while (!successors_.empty()) {
    EndSuccessors(successors_.begin()->first, {UINT64_MAX},
                  absl::UnavailableError("handed back: draining"));
  }
}

void PrefillCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(now_)) FailOverdueStep();
  if (now_ >= drain_end_us_ && !drain_ended_) {
    drain_ended_ = true;  // nothing new is accepted any more
    EndAll(absl::UnavailableError("the prefill instance is going away"));
  }
  kv_out_.RunTimers(now_);
  while (const std::optional<RequestId> id = timers_.TakeDue(now_)) {
    RunTimers(requests_.at(*id));
    if (const auto it = requests_.find(*id); it != requests_.end()) Arm(it->second);
  }
}

void PrefillCore::Impl::SetState(Request& request, State state) {
  const PlanQueue::Place place = PlaceOf(request);
  if (request.state == State::kQueued) queue_.StopWaiting(place);
  if (request.state == State::kAsking) queue_.RemoveUnplaced(place);
  request.state = state;
  if (state == State::kQueued) queue_.Wait(place);
  if (state == State::kAsking && request.placed.endpoint.empty()) queue_.AddUnplaced(place);
}

void PrefillCore::Impl::Finish(Request& request, const HandoffPath& path) {
  ++committed_;
  Erase(request, absl::OkStatus(), path);
}

void PrefillCore::Impl::End(Request& request, const absl::Status& status) {
  if (request.state == State::kEnding) return;
  if (request.sp_plan.has_value()) {
    for (PlanSequence sequence : request.sp_plan->assigns) spans_.erase(sequence);
  }
  LeaveOthers(request);
  LeaveFront(request);
  SetState(request, State::kEnding);
  request.end_status = status;
  ++failed_;
  MaybeLeave(request);
}

void PrefillCore::Impl::EndAll(const absl::Status& status) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  for (RequestId id : ids) End(requests_.at(id), status);
  while (!successors_.empty()) EndSuccessors(successors_.begin()->first, {UINT64_MAX}, status);
}

// Blocks are given back only when neither the engine nor the handoff sender touches them any more;
// until then the request stays, ending.
void PrefillCore::Impl::MaybeLeave(Request& request) {
  const RequestId id = request.spec->id;
  if (request.state != State::kEnding) return;
  if (!InFlight(id)) batch_.Remove(id);  // no further chunk while the handoff stops
  kv_out_.Stop(id);
  if (kv_out_.Writing(id) || InFlight(id)) return;
  if (kv_out_.Has(id) || request.working) {
    const InstanceId writer =
        request.writer == InstanceId{} ? membership_.instance() : request.writer;
    effects_.push_back(CallAbort{request.placed.endpoint,
                                 {id, request.epoch, request.end_status, writer},
                                 config_.rpc_timeout_us});
  }
  Erase(request, absl::Status(request.end_status));
}

void PrefillCore::Impl::Erase(Request& request, const absl::Status& status,
                              const HandoffPath& path) {
  const RequestId id = request.spec->id;
  batch_.Remove(id);
  kv_out_.Forget(id);
  if (request.blocks != nullptr) pool_.Free(*request.blocks);
  LeaveFront(request);
  if (request.sp_plan.has_value()) {
    for (PlanSequence sequence : request.sp_plan->assigns) spans_.erase(sequence);
  }
  tombstones_.Put(id, request.epoch, status.ok());
  const bool cancelled = status.code() == absl::StatusCode::kCancelled;
  const FinishReason reason = status.ok() ? FinishReason::kStop
                              : cancelled ? FinishReason::kCancelled
                                          : FinishReason::kError;
  membership_.Ended({.id = id,
                     .epoch = request.epoch,
                     .reason = reason,
                     .status = status,
                     .engine_failed = steps_.engine().FailedUnder(id),
                     .handoff = path});
  timers_.Remove(id);
  left_.push_back(id);
  requests_.erase(id);
}

void PrefillCore::Impl::Report() {
  std::optional<MembershipEffect> due = membership_.Due(
      now_, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  if (std::holds_alternative<CloseStream>(*due)) AwaitConnection();
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
}

}  // namespace skein::scheduler
