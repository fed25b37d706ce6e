// The order of an event's steps; KV that is whole, steps, routers and drain.
#include "scheduler/worker/decode/decode_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

namespace {

MembershipConfig MembershipOf(const DecodeConfig& config) {
  MembershipConfig membership = config.membership;
  membership.identity.max_requests = config.max_requests;
  membership.identity.shares_weights = config.group.can_share.ok();
  return membership;
}

KvInConfig KvInOf(const DecodeConfig& config) {
  return {.shape = config.membership.identity.shape,
          .total_blocks = config.membership.identity.total_blocks,
          .memory = config.memory,
          .lease_us = config.lease_us,
          .staging = config.staging};
}

BoundGroupConfig GroupOf(const DecodeConfig& config) {
  const HandoffShape& shape = config.membership.identity.shape;
  return {.limits = config.group.limits,
          .batch = config.batch,
          .kv_heads = shape.kv_heads,
          .block_tokens = shape.block_tokens,
          .shift_tokens = config.group.shift_tokens,
          .own_share = config.group.own_share,
          .own_pause_us = config.group.own_pause_us,
          .memory = config.memory};
}

OpeningConfig OpeningOf(const DecodeConfig& config) {
  return {.open_wait_us = config.open_wait_us,
          .attach_lease_us = config.attach_lease_us,
          .max_requests = config.max_requests,
          .max_sequence_tokens = config.max_sequence_tokens};
}

}  // namespace

DecodeCore::DecodeCore(const DecodeConfig& config) : impl_(std::make_unique<Impl>(config)) {}
DecodeCore::~DecodeCore() = default;
std::vector<DecodeEffect> DecodeCore::Handle(const DecodeEvent& event, TimeUs now) {
  return impl_->Handle(event, now);
}
TimeUs DecodeCore::NextDeadline() const { return impl_->NextDeadline(); }
absl::Status DecodeCore::CheckEpoch(Epoch epoch) const { return impl_->CheckEpoch(epoch); }
absl::Status DecodeCore::CheckInvariants() const { return impl_->CheckInvariants(); }
std::string_view DecodeCore::StateOf(RequestId id) const { return impl_->StateOf(id); }
DecodeSnapshot DecodeCore::Snapshot(TimeUs now) const { return impl_->Snapshot(now); }

DecodeCore::Impl::Impl(const DecodeConfig& config)
    : config_(config),
      clock_{.listening = ListeningClock(config.lease_us)},
      moves_(TokensPerBlock(config.membership.identity.shape)),
      kv_in_(
          KvInOf(config), [this](RequestId id, Epoch epoch) { return orders_.WhyGone(id, epoch); },
          [this](KvInEffect effect) {
            std::visit([this](auto& e) { effects_.push_back(std::move(e)); }, effect);
          }),
      sequences_([this](TokenEffect effect) {
        std::visit([this](auto& e) { Carry(std::move(e)); }, effect);
      }),
      membership_(MembershipOf(config)),
      steps_(config.engine),
      running_(config.batch, config.launch_ahead,
               {.clock = &clock_,
                .kv_in = &kv_in_,
                .sequences = &sequences_,
                .membership = &membership_}),
      group_(
          GroupOf(config), kv_in_.pool(), kv_in_.coming(),
          [this](int64_t blocks) { return running_.MayEnter(blocks); },
          [this](BoundEffect effect) {
            std::visit([this](auto& one) { Carry(std::move(one)); }, effect);
          }),
      shared_(config.group.can_share,
              [this](SharedEffect effect) {
                std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
              }),
      ends_({.clock = &clock_,
             .kv_in = &kv_in_,
             .sequences = &sequences_,
             .expected_streams = &expected_streams_,
             .running = &running_,
             .group = &group_,
             .membership = &membership_,
             .steps = &steps_,
             .effects = &effects_},
            [this](RequestId id) {
              orders_.EndSharers(id);
              group_.Dismiss(id, clock_.now);
            }),
      extra_(config.group.extra_wait_us, {.clock = &clock_,
                                          .kv_in = &kv_in_,
                                          .sequences = &sequences_,
                                          .running = &running_,
                                          .ends = &ends_}),
      orders_(config.request_deadline_us, {.clock = &clock_,
                                           .kv_in = &kv_in_,
                                           .sequences = &sequences_,
                                           .ends = &ends_,
                                           .group = &group_,
                                           .membership = &membership_}),
      opening_(OpeningOf(config), {.clock = &clock_,
                                   .kv_in = &kv_in_,
                                   .sequences = &sequences_,
                                   .expected_streams = &expected_streams_,
                                   .orders = &orders_,
                                   .running = &running_,
                                   .group = &group_,
                                   .membership = &membership_,
                                   .steps = &steps_,
                                   .effects = &effects_}),
      sharing_(TokensPerBlock(config.membership.identity.shape), {.kv_in = &kv_in_,
                                                                  .sequences = &sequences_,
                                                                  .orders = &orders_,
                                                                  .opening = &opening_,
                                                                  .running = &running_,
                                                                  .ends = &ends_}),
      group_requests_({.clock = &clock_,
                       .kv_in = &kv_in_,
                       .sequences = &sequences_,
                       .orders = &orders_,
                       .opening = &opening_,
                       .group = &group_}) {}

std::vector<DecodeEffect> DecodeCore::Impl::Handle(const DecodeEvent& event, TimeUs now) {
  clock_.now = std::max(clock_.now, now);
  effects_.clear();
  running_.LeaveToGroup(group_.wanted_blocks());
  std::visit([this](const auto& e) { On(e); }, event);
  TakeOutcomes();
  RunTimers();
  FollowUp();
  StartSteps();
  FollowUp();
  AskRouters();
  Report();
  return std::move(effects_);
}

void DecodeCore::Impl::TakeOutcomes() {
  for (KvIn::Outcome& outcome : kv_in_.TakeOutcomes()) {
    Sequence& sequence = sequences_.at(outcome.id);
    if (sequence.phase != Phase::kReceiving) continue;
    if (outcome.status.ok()) {
      Run(sequence, std::move(outcome.result));
    } else {
      ends_.End(sequence, FinishReason::kError, outcome.status);
    }
  }
}

void DecodeCore::Impl::Run(Sequence& sequence, KvIn::Result result) {
  const bool for_group = kv_in_.IsForGroup(sequence.id());
  if (for_group && !group_.Reserved(sequence.id(), sequence.epoch)) {
    return EndComing(sequence, absl::CancelledError("the formation is over"));
  }
  // A group's blocks are not shared.
  for_group ? orders_.EndSharers(sequence.id()) : sharing_.ShareWithAll(sequence, result);
  sequences_.Run(sequence, std::move(result.prompt_logprobs), result.times);
  membership_.ReportSoon();
  if (!result.has_token) return ends_.End(sequence, FinishReason::kLength, absl::OkStatus());
  const auto reason = sequences_.AddToken(sequence, result.token, result.payload);
  if (reason.has_value()) return ends_.End(sequence, *reason, absl::OkStatus());
  sequence.ready_us = clock_.now;
  for_group ? RunInGroup(sequence) : running_.Add(sequence, sequence.KnownTokens() - 1);
}

void DecodeCore::Impl::On(const RegisterReplied& event) {
  membership_.On(event, clock_.now);
  if (!membership_.connected()) return;  // refused: a former orchestrator orders nothing
  group_.Registered(hello_epoch_);
  shared_.Registered(hello_epoch_);
  moves_.TakeRoom({});  // this orchestrator has told of none yet
  for (const HeldRequest& held : event.reply.cancel) orders_.CancelUnknown(held);
}

void DecodeCore::Impl::On(const ReportReplied& event) {
  membership_.On(event, clock_.now);
  moves_.TakeRoom(event.reply.elsewhere);
}

void DecodeCore::Impl::On(const OrderDrain& event) {
  membership_.OrderDrain(event.drain);
  if (membership_.leaving()) return;
  membership_.draining() ? moves_.Start(clock_.now, kNever) : moves_.Stop();
}

void DecodeCore::Impl::On(const Drain& event) {
  if (membership_.leaving()) return;
  membership_.StartDrain();
  const auto why = absl::UnavailableError("an instance of the group is shutting down");
  group_.Abandon(why, clock_.now);
  shared_.Abandon(why, clock_.now);
  drain_end_us_ = clock_.now + event.grace_us;
  moves_.Start(clock_.now, drain_end_us_);
}

void DecodeCore::Impl::On(const AttachCalled& event) {
  Sequence* sequence = sequences_.Find(event.id, event.epoch);
  const auto taken = absl::AlreadyExistsError("the request's token stream was taken already");
  if (sequence == nullptr) {
    absl::Status gone = orders_.WhyGone(event.id, event.epoch).status;
    if (!event.ahead || !absl::IsNotFound(gone)) return ends_.Refuse(event, std::move(gone));
    if (!expected_streams_.Add(event.id, event.epoch, event.call)) ends_.Refuse(event, taken);
    return;
  }
  if (sequence->stream != Stream::kUnattached) {
    // A router that attached ahead takes an error for a refusal until it hears of the placement. It
    // asks again then, and gets the same.
    const bool failed = sequence->phase == Phase::kEnded && !sequence->status.ok();
    return ends_.Refuse(event, failed ? sequence->status : taken);
  }
  ends_.Touch(event.id);
  if (sequence->phase == Phase::kEnded) ends_.Tell(*sequence);
  sequences_.Attach(*sequence, event.call);
}

void DecodeCore::Impl::On(const DetachCalled& event) {
  gaps_.Ended(event.call);
  expected_streams_.Remove(event.call);
  Sequence* sequence = sequences_.Detach(event.call);
  if (sequence == nullptr) return;
  ends_.Touch(sequence->id());
  ends_.End(*sequence, FinishReason::kCancelled,
            absl::CancelledError("the router closed the stream"));
}

void DecodeCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(clock_.now)) {
    // The hung step may still write to its blocks. That is safe: a failed engine gets no more work,
    // so no other sequence is given them.
    LeaveWithFailedEngine(steps_.FailOverdue());
  }
  if (clock_.now >= drain_end_us_ && sequences_.CountLive() > 0) {
    ends_.EndAll(absl::UnavailableError("the decode instance is shutting down"));
  }
  while (Sequence* sequence = sequences_.TakeUnclaimed(clock_.listening.elapsed())) {
    ends_.Touch(sequence->id());
    ends_.End(
        *sequence, FinishReason::kError,
        absl::DeadlineExceededError(absl::StrCat("no router attached to the token stream within ",
                                                 config_.attach_lease_us / kMillisecondUs, " ms")));
  }
  orders_.RunTimers();
  opening_.RunTimers();
  kv_in_.RunTimers(clock_.listening.elapsed());
  group_.Tick(clock_.now);
  shared_.Tick(clock_.now);
  extra_.RunTimers();
  TakeOutcomes();
  if (kv_in_.TakeFreed()) membership_.ReportSoon();
}

// And one behind the step that runs, so that the engine never waits for this core. Who joins the
// batch meanwhile waits for that one, too.
void DecodeCore::Impl::StartSteps() {
  TakeBack();
  MoveToGroup();
  JoinGroup();
  group_requests_.Join();
  // Own sequences that wait for blocks may have them now, though no own step is due.
  if (group_.runs_steps() && !running_.InFlight()) running_.GrowTables();
  TellOwn();
  if (group_.runs_steps()) StartStepsOfGroup();
  if (group_.runs_steps()) return;
  TakeBack();
  if (PausesForSharing()) return;
  if (steps_.MayLaunch()) StartIdle();
  if (!config_.launch_ahead || group_.about_to_step()) return;
  if (!steps_.MayLaunchAhead() || !running_.GrowTables()) return;
  std::vector<StepSequence> sequences = running_.NextStep();
  if (!sequences.empty()) effects_.push_back(steps_.Launch(std::move(sequences), clock_.now));
}

void DecodeCore::Impl::StartIdle() {
  const bool must_probe = steps_.doubtful() && !membership_.leaving();
  if (!must_probe) running_.GrowTables();
  std::vector<StepSequence> sequences =
      must_probe ? std::vector<StepSequence>() : running_.NextStep();
  if (!sequences.empty()) {
    effects_.push_back(steps_.Launch(std::move(sequences), clock_.now));
  } else if (!membership_.leaving()) {
    std::optional<RunStep> probe = steps_.Probe(clock_.now);
    if (probe.has_value()) effects_.push_back(*std::move(probe));
  }
}

void DecodeCore::Impl::On(const StepDone& event) {
  const std::optional<StepLoop::Ended> ended = steps_.End(event, clock_.now);
  if (!ended.has_value()) return;
  if (ended->of_group) return EndStepOfGroup(*ended, event);
  if (!ended->ran.empty()) running_.EndStep();
  const TimeUs began_us = clock_.now - ended->took_us;
  int64_t tokens = 0;
  for (size_t i = 0; i < ended->ran.size(); ++i) {
    Sequence& sequence = sequences_.at(ended->ran[i].id);
    tokens += ended->ran[i].sample ? 1 : 0;
    const auto failed = std::find_if(event.results.begin(), event.results.end(),
                                     [](const StepResult& r) { return !r.status.ok(); });
    if (sequence.phase == Phase::kEnded) {
      ends_.Release(sequence);
    } else if (SKEIN_PLANT(one_sequence_fails_its_batch) && failed != event.results.end()) {
      ends_.End(sequence, FinishReason::kError, failed->status);
    } else if (ended->status.ok()) {
      TakeResult(sequence, ended->ran[i].sample, event.results[i], began_us);
    } else {
      ends_.End(sequence, FinishReason::kError, ended->status);
    }
  }
  if (ended->status.ok() && !ended->ran.empty()) {
    steps_.AddTokens(tokens, ended->took_us);
  }
  if (group_.in_step() && !ended->ran.empty()) {
    TellOwn();
    group_.StepEnded(absl::OkStatus(), {}, clock_.now);
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine(ended->ahead);
}

// Without `sampled` the step computed a part of a resumed sequence.
void DecodeCore::Impl::TakeResult(Sequence& sequence, bool sampled, const StepResult& result,
                                  TimeUs began_us) {
  if (!result.status.ok()) return ends_.End(sequence, FinishReason::kError, result.status);
  if (!sampled) return;
  if (sequence.ready_us != kNever) {
    effects_.push_back(DecodeBegan{sequence.spec, began_us - sequence.ready_us});
    sequence.ready_us = kNever;
  }
  ++output_tokens_;
  const auto reason = sequences_.AddToken(sequence, result.token, result.payload);
  if (reason.has_value()) return ends_.End(sequence, *reason, absl::OkStatus());
  if (sequence.phase == Phase::kRunning) running_.NoteToken(sequence);
}

void DecodeCore::Impl::LeaveWithFailedEngine(const std::vector<StepSequence>& in_flight) {
  ends_.EndAll(steps_.engine().EndOfRequests());
  group_.Abandon(steps_.engine().EndOfRequests(), clock_.now);
  shared_.Fail(steps_.engine().EndOfRequests());
  while (running_.InFlight()) running_.EndStep();
  for (const StepSequence& one : in_flight) {
    if (Sequence* sequence = sequences_.Find(one.id)) ends_.Release(*sequence);
  }
  const TimeUs end_us = clock_.now + config_.engine.last_words_us;
  membership_.StartLastWords(end_us, clock_.now + config_.engine.evidence_us);
  drain_end_us_ = std::min(drain_end_us_, end_us);
  effects_.push_back(EngineFailed{steps_.engine().status(), std::max(config_.engine.last_words_us,
                                                                     config_.engine.evidence_us)});
}

void DecodeCore::Impl::FollowUp() {
  for (std::vector<RequestId> ids = ends_.TakeTouched(); !ids.empty(); ids = ends_.TakeTouched()) {
    for (const RequestId id : ids) {
      ends_.ForgetIfOver(id);
      opening_.Retry(id);
    }
  }
}

// Only the orchestrator knows whether others have room. While it is away, streams stay.
void DecodeCore::Impl::AskRouters() {
  if (!membership_.connected() || !steps_.engine().ok()) return;
  for (const AskToMove& ask : moves_.Take(&sequences_, clock_.now)) {
    effects_.push_back(ask);
  }
}

void DecodeCore::Impl::Report() {
  membership_.HoldBack(!steps_.engine().proven());
  std::optional<MembershipEffect> due = membership_.Due(
      clock_.now, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  if (auto* hello = std::get_if<CallRegister>(&*due); hello != nullptr && LatestTold().epoch > 0) {
    hello->request.formation = LatestTold();
    hello_epoch_ = LatestTold().epoch;
  }
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
}

}  // namespace skein::scheduler
