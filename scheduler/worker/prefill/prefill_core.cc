// How plans come and requests end. A request's life in between: prefill_flow.cc.
#include "scheduler/worker/prefill/prefill_core.h"

#include <algorithm>
#include <utility>

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
      membership_(MembershipOf(config)),
      requests_(config.membership.identity.total_blocks, config.begin_ahead, config.batch),
      sp_plans_({.incarnation = config.membership.identity.incarnation,
                 .block_tokens = TokensPerBlock(config.membership.identity.shape),
                 .rank_tokens_max = config.batch.max_batch_tokens,
                 .total_blocks = config.membership.identity.total_blocks}),
      place_calls_({.retry_us = config.retry_us, .give_up_us = config.begin_give_up_us},
                   [this](PlaceDecodeRequest request) {
                     request.instance = membership_.instance();
                     request.incarnation = membership_.identity().incarnation;
                     effects_.push_back(CallPlaceDecode{std::move(request)});
                   }),
      steps_(config.batch, config.engine, config.ring_step),
      kv_out_({.incarnation = config.membership.identity.incarnation,
               .shape = config.membership.identity.shape,
               .rpc_timeout_us = config.rpc_timeout_us,
               .acquire_timeout_us = config.ask_timeout_us,
               .retry_us = config.retry_us,
               .attempts = config.attempts},
              [this](KvOutEffect effect) {
                std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
              }) {}

std::vector<PrefillEffect> PrefillCore::Impl::Handle(const PrefillEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  place_calls_.SetConnected(membership_.connected(), now_);
  RunTimers();
  TakeOutcomes();
  TakeSuccessors();
  AdmitQueued();
  StartStep();
  Report();
  return std::move(effects_);
}

void PrefillCore::Impl::On(const AssignCalled& event) {
  effects_.push_back(AnswerAssign{event.call, {Assign(event.request)}});
}

absl::Status PrefillCore::Impl::Assign(const AssignRequest& assign) {
  const bool plain = assign.members.empty();
  const RequestId id = assign.spec->id;
  Request* known = requests_.Find(id);
  if (known != nullptr && known->epoch == assign.epoch) {
    return plain ? absl::OkStatus() : ExtendPlan(*known, assign);  // plain: the same once more
  }
  if (absl::Status status = Accept(assign); !status.ok()) return status;
  if (known != nullptr) {
    End(*known, absl::CancelledError("planned anew"));
    if (requests_.Find(id) != nullptr) return AssignAfterOlder(assign);
  }
  const TimeUs budget = assign.spec->deadline_us;
  Request request{.spec = assign.spec,
                  .epoch = assign.epoch,
                  .sequence = assign.sequence,
                  .suspect = assign.suspect,
                  .arrived_us = now_,
                  .deadline_us = now_ + (budget > 0 ? budget : config_.request_deadline_us)};
  if (assign.placed.has_value()) request.placed = *assign.placed;
  request.blocks_wanted = BlocksOf(config_.membership.identity.shape, PromptTokens(*assign.spec));
  if (!plain) {
    if (absl::Status status = sp_plans_.Add(assign); !status.ok()) return status;
    const SpPlan& plan = *sp_plans_.Find(id);
    request.kind = plan.Leads() ? Request::Kind::kLead : Request::Kind::kMember;
    request.blocks_wanted = plan.BlocksWanted(requests_.blocks().total);
    if (assign.from_chunk > 0) request.join_until_us = now_ + config_.join_wait_us;
  }
  membership_.Holds({.id = id, .epoch = assign.epoch});
  requests_.Add(std::move(request));
  return absl::OkStatus();
}

// The older epoch's blocks are still in use: this one is taken up when they are not.
absl::Status PrefillCore::Impl::AssignAfterOlder(const AssignRequest& assign) {
  const RequestId id = assign.spec->id;
  const Epoch waiting = successors_.EpochOf(id).value_or(assign.epoch);
  if (waiting > assign.epoch) return absl::FailedPreconditionError("epoch: stale");
  if (waiting < assign.epoch) EndSuccessor(id, absl::CancelledError("planned anew"));
  successors_.Add(assign);
  membership_.Holds({.id = id, .epoch = assign.epoch});
  return absl::OkStatus();
}

absl::Status PrefillCore::Impl::ExtendPlan(Request& request, const AssignRequest& assign) {
  if (request.IsEnding()) return absl::FailedPreconditionError("epoch: has ended");
  if (request.IsPlain()) return absl::InvalidArgumentError("members: the plan was plain");
  if (absl::Status status = sp_plans_.Extend(assign); !status.ok()) return status;
  request.all_have_plan = false;
  const SpPlan& plan = *sp_plans_.Find(request.id());
  request.blocks_wanted = plan.BlocksWanted(requests_.blocks().total);
  if (request.phase != Phase::kQueued && !requests_.Extend(request, plan.slots())) {
    absl::Status status = absl::UnavailableError("no blocks for a later chunk");
    End(request, status);
    return status;
  }
  if (request.phase == Phase::kComputing) OpenHandoffOf(request);
  if (assign.placed.has_value()) Place(request, *assign.placed);
  return absl::OkStatus();
}

void PrefillCore::Impl::TakeSuccessors() {
  for (const RequestId id : std::exchange(left_, {})) {
    if (requests_.Find(id) != nullptr) continue;
    const Successors::Plan plan = successors_.Take(id);
    for (const AssignRequest& assign : plan.assigns) {
      const absl::Status status = Assign(assign);
      if (status.ok()) continue;
      tombstones_.Put(id, assign.epoch, false);
      ++failed_;
      membership_.Ended({id, assign.epoch, FinishReason::kError, status});
      break;
    }
    if (Request* request = requests_.Find(id)) request->all_have_plan = plan.all_have_it;
  }
}

void PrefillCore::Impl::EndSuccessor(RequestId id, const absl::Status& status) {
  const std::vector<AssignRequest> assigns = successors_.Take(id).assigns;
  if (assigns.empty()) return;
  ++failed_;
  const bool cancelled = status.code() == absl::StatusCode::kCancelled;
  membership_.Ended({id, assigns.front().epoch,
                     cancelled ? FinishReason::kCancelled : FinishReason::kError, status});
}

absl::Status PrefillCore::Impl::Accept(const AssignRequest& request) const {
  const RequestSpec& spec = *request.spec;
  const Request* known = requests_.Find(spec.id);
  if (known != nullptr && known->epoch > request.epoch) {
    return absl::FailedPreconditionError("epoch: stale");
  }
  if (tombstones_.Covers(spec.id, request.epoch)) {
    return absl::FailedPreconditionError("epoch: ended already");
  }
  if (!steps_.engine().ok()) return absl::UnavailableError("the engine has failed");
  if (membership_.draining()) return absl::UnavailableError("draining");
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  const int64_t prompt_tokens = PromptTokens(spec);
  const KvShape& shape = config_.membership.identity.shape;
  const int64_t total_blocks = requests_.blocks().total;
  if (request.members.empty() && BlocksOf(shape, prompt_tokens) > total_blocks) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", prompt_tokens,
                                                   " tokens exceed this instance's limit of ",
                                                   total_blocks * TokensPerBlock(shape)));
  }
  if (config_.max_sequence_tokens > 0 &&
      prompt_tokens + spec.max_tokens > config_.max_sequence_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt + max_tokens: ", prompt_tokens + spec.max_tokens,
                     " tokens exceed this model's limit of ", config_.max_sequence_tokens));
  }
  if (static_cast<int64_t>(requests_.all().size()) >= config_.max_requests) {
    return absl::ResourceExhaustedError("the prefill queue is full");
  }
  return absl::OkStatus();
}

void PrefillCore::Impl::On(const CancelCalled& event) {
  if (!CheckEpoch(event.request.epoch).ok()) return;
  CancelUpTo(event.request.id, event.request.epoch, event.request.why);
}

void PrefillCore::Impl::CancelUpTo(RequestId id, Epoch epoch, const std::string& why) {
  Request* request = requests_.Find(id);
  if (request != nullptr && request->epoch <= epoch) End(*request, absl::CancelledError(why));
  if (const std::optional<Epoch> waits = successors_.EpochOf(id); waits && *waits <= epoch) {
    EndSuccessor(id, absl::CancelledError(why));
  }
  tombstones_.Put(id, epoch, false);
}

void PrefillCore::Impl::On(const RegisterReplied& event) {
  membership_.On(event, now_);
  if (!membership_.connected()) return;  // refused: a former orchestrator orders nothing
  for (const HeldRequest& cancel : event.reply.cancel) {
    CancelUpTo(cancel.id, cancel.epoch, "unknown to the orchestrator");
  }
  EndOrphans();
}

// After a new registration, the orchestrator is a new one or had given this instance up. Plans that
// name the old registration and still need a message from the orchestrator would wait forever; so
// would the members of a plan that did not reach all of them.
void PrefillCore::Impl::EndOrphans() {
  const auto status =
      absl::UnavailableError("the orchestrator that issued this plan is gone, or gave it up");
  EndThose(
      [this](const Request& request) {
        const SpPlan* plan = sp_plans_.Find(request.id());
        if (plan == nullptr || plan->self() == membership_.instance()) return false;
        const bool computed = request.phase == Phase::kCommitting;
        return !plan->Whole() || !(request.all_have_plan || computed);
      },
      status);
  std::vector<RequestId> orphans;
  for (const auto& [id, plan] : successors_.all()) {
    const absl::StatusOr<InstanceId> self = sp_plans_.SelfIn(plan.assigns.front());
    if (self.ok() && *self != membership_.instance()) orphans.push_back(id);
  }
  for (const RequestId id : orphans) EndSuccessor(id, status);
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
  const auto status = absl::UnavailableError("handed back: draining");
  EndThose([](const Request& request) { return request.phase == Phase::kQueued; }, status);
  EndSuccessors(status);
}

void PrefillCore::Impl::EndThose(const std::function<bool(const Request&)>& which,
                                 const absl::Status& status) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_.all()) {
    if (which(request)) ids.push_back(id);
  }
  for (const RequestId id : ids) End(requests_.at(id), status);
}

void PrefillCore::Impl::EndSuccessors(const absl::Status& status) {
  while (!successors_.empty()) EndSuccessor(successors_.all().begin()->first, status);
}

void PrefillCore::Impl::End(Request& request, const absl::Status& status) {
  if (request.IsEnding()) return;
  const RequestId id = request.id();
  if (const SpPlan* plan = sp_plans_.Find(id)) {
    // The other members may be in its next piece already, or will come; who joins later may wait in
    // the group of a later chunk.
    const std::optional<AbortStep> abort = steps_.Abort(id, now_);
    if (abort.has_value()) effects_.push_back(*abort);
    for (BreakGroup& group : plan->GroupsAhead(/*skip_next=*/abort.has_value())) {
      effects_.push_back(std::move(group));
    }
    sp_plans_.Stop(id);
  }
  request.end_status = status;
  request.must_tell_abort = kv_out_.Has(id) || request.phase > Phase::kAsking;
  requests_.SetPhase(request, Phase::kEnding);
  place_calls_.Forget(id);
  ++failed_;
  MaybeLeave(request);
}

// Blocks are given back only when neither the engine nor the handoff sender touches them any more;
// until then the request stays, ending.
void PrefillCore::Impl::MaybeLeave(Request& request) {
  const RequestId id = request.id();
  if (!request.IsEnding()) return;
  if (!steps_.InFlight(id)) steps_.Remove(id);  // no further slice while the handoff stops
  kv_out_.Stop(id);
  if (kv_out_.Writing(id) || steps_.InFlight(id)) return;
  if (request.must_tell_abort) {
    const InstanceId writer =
        request.writer == InstanceId{} ? membership_.instance() : request.writer;
    effects_.push_back(CallAbort{
        request.placed.endpoint,
        {id, request.epoch, request.end_status, writer, membership_.identity().incarnation},
        config_.rpc_timeout_us});
  }
  Erase(request, absl::Status(request.end_status));
}

void PrefillCore::Impl::Erase(Request& request, const absl::Status& status,
                              const HandoffPath& path) {
  const RequestId id = request.id();
  const bool cancelled = status.code() == absl::StatusCode::kCancelled;
  const FinishReason reason = status.ok() ? FinishReason::kStop
                              : cancelled ? FinishReason::kCancelled
                                          : FinishReason::kError;
  membership_.Ended({.id = id,
                     .epoch = request.epoch,
                     .reason = reason,
                     .status = status,
                     .engine_failed = steps_.engine().FailedUnder(id),
                     .handoff = path,
                     .ring = request.ring});
  tombstones_.Put(id, request.epoch, status.ok());
  committed_ += status.ok();
  if (request.started_us != kNever) effects_.push_back(ReleaseSequence{id, request.epoch});
  steps_.Remove(id);
  kv_out_.Forget(id);
  sp_plans_.Forget(id);
  place_calls_.Forget(id);
  requests_.Erase(id);
  left_.push_back(id);
}

void PrefillCore::Impl::Report() {
  std::optional<MembershipEffect> due = membership_.Due(
      now_, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
  place_calls_.SetConnected(membership_.connected(), now_);  // it may have closed the stream
}

}  // namespace skein::scheduler
