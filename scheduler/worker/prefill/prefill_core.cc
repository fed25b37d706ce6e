// The order of an event's steps; steps, timers and drain.
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
      requests_(config.membership.identity.total_blocks, config.open_ahead, config.batch),
      sp_plans_({.incarnation = config.membership.identity.incarnation,
                 .block_tokens = TokensPerBlock(config.membership.identity.shape),
                 .rank_tokens_max = config.batch.max_batch_tokens,
                 .total_blocks = config.membership.identity.total_blocks}),
      place_calls_({.retry_us = config.retry_us, .give_up_us = config.place_decode_give_up_us},
                   [this](PlaceDecodeRequest request) {
                     request.instance = membership_.instance();
                     request.incarnation = membership_.identity().incarnation;
                     effects_.push_back(CallPlaceDecode{std::move(request)});
                   }),
      steps_(config.batch, config.engine, config.ring_step),
      kv_out_({.incarnation = config.membership.identity.incarnation,
               .shape = config.membership.identity.shape,
               .rpc_timeout_us = config.rpc_timeout_us,
               .acquire_timeout_us = config.acquire_timeout_us,
               .retry_us = config.retry_us,
               .attempts = config.attempts},
              [this](KvOutEffect effect) {
                std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
              }),
      ends_(config.rpc_timeout_us, config.keep_us,
            {.now = &now_,
             .requests = &requests_,
             .sp_plans = &sp_plans_,
             .place_calls = &place_calls_,
             .steps = &steps_,
             .kv_out = &kv_out_,
             .membership = &membership_,
             .effects = &effects_}),
      transfers_({.now = &now_,
                  .requests = &requests_,
                  .sp_plans = &sp_plans_,
                  .place_calls = &place_calls_,
                  .steps = &steps_,
                  .kv_out = &kv_out_,
                  .membership = &membership_,
                  .ends = &ends_,
                  .effects = &effects_}),
      orders_({.max_requests = config.max_requests,
               .max_sequence_tokens = config.max_sequence_tokens,
               .request_deadline_us = config.request_deadline_us,
               .join_wait_us = config.join_wait_us},
              {.now = &now_,
               .requests = &requests_,
               .sp_plans = &sp_plans_,
               .steps = &steps_,
               .membership = &membership_,
               .transfers = &transfers_,
               .ends = &ends_,
               .effects = &effects_}) {}

std::vector<PrefillEffect> PrefillCore::Impl::Handle(const PrefillEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  place_calls_.SetConnected(membership_.connected(), now_);
  RunTimers();
  transfers_.TakeOutcomes();
  orders_.TakeSuccessors();
  transfers_.AdmitQueued();
  StartStep();
  Report();
  return std::move(effects_);
}

void PrefillCore::Impl::On(const RegisterReplied& event) {
  membership_.On(event, now_);
  if (!membership_.connected()) return;  // refused: a former orchestrator orders nothing
  for (const HeldRequest& cancel : event.reply.cancel) {
    orders_.CancelUpTo(cancel.id, cancel.epoch, "the orchestrator does not know the request");
  }
  orders_.EndOrphans();
}

void PrefillCore::Impl::On(const OrderDrain& event) {
  if (membership_.OrderDrain(event.drain)) orders_.HandBack();
}

void PrefillCore::Impl::On(const Drain& event) {
  if (membership_.leaving()) return;
  membership_.StartDrain();
  drain_end_us_ = now_ + event.grace_us;
  orders_.HandBack();
}

void PrefillCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(now_)) {
    // The hung step may still write to its blocks. That is safe: a failed engine gets no more work,
    // so no other sequence is given them.
    const std::vector<StepSequence> ran = steps_.FailOverdue();
    LeaveWithFailedEngine();  // before the step is forgotten: the others in it must hear
    steps_.ForgetStep();
    for (const StepSequence& sequence : ran) {
      if (Request* request = requests_.Find(sequence.id)) ends_.MaybeLeave(*request);
    }
  }
  if (now_ >= drain_end_us_ && !drain_ended_) {
    drain_ended_ = true;  // nothing new is accepted any more
    const auto status = absl::UnavailableError("the prefill instance is shutting down");
    ends_.EndThose([](const Request&) { return true; }, status);
    orders_.EndSuccessors(status);
  }
  kv_out_.RunTimers(now_);
  requests_.GiveUpKept(now_);
  while (const std::optional<RequestId> id = requests_.TakeOverdue(now_)) {
    Request& request = requests_.at(*id);
    ends_.End(request,
              now_ >= request.deadline_us
                  ? absl::DeadlineExceededError("the request's deadline passed in prefill")
                  : absl::UnavailableError("no KV blocks became free in time to join the plan"));
  }
  for (const RequestId id : place_calls_.RunTimers(now_)) {
    ends_.End(requests_.at(id), absl::UnavailableError("the orchestrator cannot be reached"));
  }
}

void PrefillCore::Impl::StartStep() {
  std::optional<RunStep> step =
      steps_.Next(requests_, sp_plans_, /*may_probe=*/!membership_.leaving(), now_);
  if (!step.has_value()) return;
  for (const StepSequence& sequence : step->sequences) {
    if (step->probe) break;
    Request& request = requests_.at(sequence.id);
    if (request.started_us == kNever) {
      request.started_us = now_;
      request.result.times.queue_us = now_ - request.arrived_us;
    }
    const bool starts_chunk = sequence.ring != nullptr && sequence.ring->piece.index == 0;
    if (starts_chunk) transfers_.TellProgress(*sp_plans_.Find(sequence.id), request);
  }
  effects_.push_back(*std::move(step));
}

void PrefillCore::Impl::On(const StepDone& event) {
  const std::optional<StepLoop::Ended> ended = steps_.End(event, now_);
  if (!ended.has_value()) return;
  for (size_t i = 0; i < ended->ran.size(); ++i) {
    Request& request = requests_.at(ended->ran[i].id);
    if (request.IsEnding()) {
      ends_.MaybeLeave(request);
    } else if (ended->status.ok()) {
      const bool first = !request.ring.has_value() || !request.ring->through_host;
      if (event.ring.has_value() && first) request.ring = event.ring;
      TakeResult(request, ended->ran[i], event.results[i]);
    } else {
      ends_.End(request, ended->status);
    }
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine();
}

void PrefillCore::Impl::TakeResult(Request& request, const StepSequence& ran,
                                   const StepResult& result) {
  SpPlan* plan = sp_plans_.Find(ran.id);
  // The other members may still be at the end of this step: its failure here is none of theirs.
  if (plan != nullptr) sp_plans_.Leave(ran.id, ran, result.status.ok());
  if (!result.status.ok()) {
    const bool cut = absl::IsUnavailable(result.status) || absl::IsDeadlineExceeded(result.status);
    request.ring_broken = plan != nullptr && cut;
    return ends_.End(request, result.status);
  }
  if (plan != nullptr) requests_.ChargePiece(request, ran.count);
  if (request.phase == Phase::kYielding) return transfers_.Yield(request);
  absl::StrAppend(&request.result.prompt_logprobs, result.prompt_logprobs);
  if (ran.sample) {
    request.result.has_token = true;
    request.result.token = result.token;
    request.result.payload = result.payload;
  }
  if (plan != nullptr && ran.ring->piece.ends_chunk) {
    transfers_.TellProgress(*plan, request);
    membership_.ReportSoon();
    if (plan->FirstChunksDone()) requests_.LeaveFront(ran.id);
  }
  const bool last = plan != nullptr ? ran.ring->piece.last
                                    : ran.position + ran.count >= PromptTokens(*request.spec);
  if (!last) return;
  transfers_.Computed(request);
  if (plan != nullptr && plan->ComputesNothing()) ends_.Erase(request, absl::OkStatus());
}

// What is computed needs the engine no more: it may still be handed over.
void PrefillCore::Impl::LeaveWithFailedEngine() {
  const absl::Status status = steps_.engine().EndOfRequests();
  ends_.EndThose([](const Request& request) { return request.phase < Phase::kComputed; }, status);
  orders_.EndSuccessors(status);
  membership_.StartLastWords(now_ + config_.engine.last_words_us,
                             now_ + config_.engine.evidence_us);
  drain_end_us_ = std::min(drain_end_us_, now_ + config_.engine.last_words_us);
  effects_.push_back(EngineFailed{steps_.engine().status(), std::max(config_.engine.last_words_us,
                                                                     config_.engine.evidence_us)});
}

void PrefillCore::Impl::Report() {
  membership_.HoldBack(!steps_.engine().proven());
  std::optional<MembershipEffect> due = membership_.Due(
      now_, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
  place_calls_.SetConnected(membership_.connected(), now_);  // it may have closed the stream
}

}  // namespace skein::scheduler
