// Reservation, streams, steps and the end of sequences. How KV comes in: kv_in.h.
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
  return membership;
}

KvInConfig KvInOf(const DecodeConfig& config) {
  return {.shape = config.membership.identity.shape,
          .total_blocks = config.membership.identity.total_blocks,
          .memory = config.memory,
          .lease_us = config.lease_us,
          .grace_us = config.grace_us,
          .staging = config.staging};
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
      listening_(config.lease_us),
      kv_in_(
          KvInOf(config), [this](RequestId id, Epoch epoch) { return WhyGone(id, epoch); },
          [this](KvInEffect effect) {
            std::visit([this](auto& e) { effects_.push_back(std::move(e)); }, effect);
          }),
      batch_(config.batch),
      membership_(MembershipOf(config)),
      steps_(config.engine) {}

std::vector<DecodeEffect> DecodeCore::Impl::Handle(const DecodeEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  TakeOutcomes();
  RunTimers();
  FollowUp();
  StartStep();
  Report();
  return std::move(effects_);
}

DecodeCore::Impl::Sequence* DecodeCore::Impl::Find(RequestId id, Epoch epoch) {
  const auto it = sequences_.find(id);
  return it != sequences_.end() && it->second.epoch == epoch ? &it->second : nullptr;
}

void DecodeCore::Impl::TakeOutcomes() {
  for (KvIn::Outcome& outcome : kv_in_.TakeOutcomes()) {
    Sequence& sequence = sequences_.at(outcome.id);
    if (sequence.phase != Phase::kReceiving) continue;
    if (outcome.status.ok()) {
      Run(sequence, std::move(outcome.result));
    } else {
      End(sequence, FinishReason::kError, outcome.status);
    }
  }
}

void DecodeCore::Impl::Run(Sequence& sequence, KvIn::Result result) {
  SetPhase(sequence, Phase::kRunning);
  sequence.committed = true;
  sequence.prompt_logprobs = std::move(result.prompt_logprobs);
  sequence.times = result.times;
  membership_.ReportSoon();
  if (!result.has_token) return End(sequence, FinishReason::kLength, absl::OkStatus());
  TakeToken(sequence, result.token, result.payload);
  if (sequence.phase != Phase::kRunning) return;
  const int64_t prompt_tokens = PromptTokens(*sequence.spec);
  batch_.Add(sequence.spec->id, PlanSequence{sequence.epoch.value}, prompt_tokens + 1,
             prompt_tokens);
}

void DecodeCore::Impl::On(const AbortCalled& event) {
  const AbortRequest& abort = event.request;
  if (!CheckEpoch(abort.epoch).ok()) return;
  kv_in_.WriterStopped(abort.id, abort.epoch, abort.prefill, Listening());
  touched_.push_back(abort.id);
  if (Sequence* sequence = Find(abort.id, abort.epoch); sequence != nullptr) {
    End(*sequence, FinishReason::kError,
        abort.reason.ok() ? absl::InternalError("aborted") : abort.reason);
  } else if (announcements_.Has(abort.id, abort.epoch)) {
    EndAnnounced(abort.id, FinishReason::kError, abort.reason);
  } else {
    tombstones_.Put(abort.id, abort.epoch, false);
  }
}

void DecodeCore::Impl::On(const CancelCalled& event) {
  if (!CheckEpoch(event.request.epoch).ok()) return;
  CancelUpTo(event.request.id, event.request.epoch, event.request.why);
}

void DecodeCore::Impl::CancelUpTo(RequestId id, Epoch epoch, const std::string& why) {
  const auto it = sequences_.find(id);
  if (it != sequences_.end() && it->second.epoch <= epoch) {
    End(it->second, FinishReason::kCancelled, absl::CancelledError(why));
  }
  const Announcements::Announced* announced = announcements_.Find(id);
  if (announced != nullptr && announced->epoch <= epoch) {
    EndAnnounced(id, FinishReason::kCancelled, absl::CancelledError(why));
  }
  tombstones_.Put(id, epoch, false);
  touched_.push_back(id);
}

void DecodeCore::Impl::On(const RegisterReplied& event) {
  membership_.OnRegistered(event.reply, now_);
  for (const HeldRequest& cancel : event.reply.cancel) {
    CancelUpTo(cancel.id, cancel.epoch, "unknown to the orchestrator");
  }
}

void DecodeCore::Impl::On(const ReportReplied& event) {
  membership_.OnReported(event.serial, event.reply, now_);
}

void DecodeCore::Impl::On(const OrderDrain& event) { membership_.OrderDrain(event.drain); }

void DecodeCore::Impl::On(const Drain& event) {
  if (membership_.leaving()) return;
  membership_.StartDrain();
  drain_end_us_ = now_ + event.grace_us;
}

void DecodeCore::Impl::On(const AttachCalled& event) {
  Sequence* sequence = Find(event.id, event.epoch);
  absl::Status status;
  if (sequence == nullptr) {
    status = WhyGone(event.id, event.epoch).status;
  } else if (sequence->stream != Stream::kUnattached) {
    status = absl::AlreadyExistsError("the request's token stream was taken already");
  }
  if (!status.ok()) {
    effects_.push_back(EndStream{.call = event.call,
                                 .id = event.id,
                                 .epoch = event.epoch,
                                 .reason = FinishReason::kError,
                                 .status = std::move(status),
                                 .prompt_logprobs = ""});
    return;
  }
  unclaimed_ -= sequence->phase == Phase::kEnded;
  sequence->stream = Stream::kAttached;
  sequence->call = event.call;
  attach_ends_.Remove(event.id);
  touched_.push_back(event.id);
  calls_.emplace(event.call, event.id);
  Flush(*sequence);
}

void DecodeCore::Impl::On(const DetachCalled& event) {
  const auto it = calls_.find(event.call);
  if (it == calls_.end()) return;
  Sequence& sequence = sequences_.at(it->second);
  calls_.erase(it);
  sequence.stream = Stream::kClosed;
  touched_.push_back(sequence.spec->id);
  End(sequence, FinishReason::kCancelled, absl::CancelledError("the router closed the stream"));
}

void DecodeCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(now_)) FailOverdueStep();
  if (now_ >= drain_end_us_ && LiveCount() > 0) {
    EndAll(absl::UnavailableError("the decode instance is going away"));
  }
  while (const auto id = attach_ends_.TakeDue(listening_.elapsed())) {
    Sequence& sequence = sequences_.at(*id);
    unclaimed_ -= sequence.phase == Phase::kEnded;
    sequence.stream = Stream::kClosed;
    touched_.push_back(*id);
    End(sequence, FinishReason::kError, absl::DeadlineExceededError("no router came for it"));
  }
  RunOpeningTimers();
  kv_in_.RunTimers(listening_.elapsed());
  TakeOutcomes();
  if (kv_in_.TakeFreed()) membership_.ReportSoon();
}

void DecodeCore::Impl::StartStep() {
  if (!steps_.MayLaunch()) return;
  if (steps_.doubtful() && !membership_.leaving()) return Probe();
  std::vector<StepItem> items = batch_.Plan();
  if (items.empty()) return Probe();
  std::vector<StepSequence> sequences;
  for (const StepItem& item : items) {
    const Sequence& sequence = sequences_.at(item.id);
    sequences.push_back({.id = item.id,
                         .epoch = sequence.epoch,
                         .spec = sequence.spec,
                         .position = item.position,
                         .count = item.count,
                         .blocks = kv_in_.TableOf(item.id),
                         .sample = item.sample,
                         .token_index = static_cast<int64_t>(sequence.output->size()) -
                                        (SKEIN_PLANT(sampler_index_off_by_one) ? 1 : 0),
                         .output = sequence.output});
  }
  effects_.push_back(steps_.Launch(std::move(sequences), now_));
}

void DecodeCore::Impl::Probe() {
  if (membership_.leaving()) return;
  std::optional<RunStep> probe = steps_.Probe(now_);
  if (probe.has_value()) effects_.push_back(*std::move(probe));
}

void DecodeCore::Impl::On(const StepDone& event) {
  const std::optional<StepLoop::Ended> ended = steps_.End(event, now_);
  if (!ended.has_value()) return;
  if (batch_.InFlight()) batch_.Complete();
  for (size_t i = 0; i < ended->ran.size(); ++i) {
    Sequence& sequence = sequences_.at(ended->ran[i].id);
    const auto failed = std::find_if(event.results.begin(), event.results.end(),
                                     [](const StepResult& r) { return !r.status.ok(); });
    if (sequence.phase == Phase::kEnded) {
      Release(sequence);
    } else if (SKEIN_PLANT(one_sequence_fails_its_batch) && failed != event.results.end()) {
      End(sequence, FinishReason::kError, failed->status);
    } else if (ended->status.ok()) {
      TakeResult(sequence, event.results[i]);
    } else {
      End(sequence, FinishReason::kError, ended->status);
    }
  }
  if (ended->status.ok() && !ended->ran.empty()) {
    rate_.Add(static_cast<int64_t>(ended->ran.size()), ended->took_us);
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine();
}

void DecodeCore::Impl::TakeResult(Sequence& sequence, const StepResult& result) {
  if (!result.status.ok()) return End(sequence, FinishReason::kError, result.status);
  ++output_tokens_;
  TakeToken(sequence, result.token, result.payload);
}

void DecodeCore::Impl::TakeToken(Sequence& sequence, int32_t token, const std::string& payload) {
  const RequestSpec& spec = *sequence.spec;
  const auto index = static_cast<int64_t>(sequence.output->size());
  sequence.output_tokens = index + 1;
  const bool stops = std::find(spec.stop_token_ids.begin(), spec.stop_token_ids.end(), token) !=
                     spec.stop_token_ids.end();
  if (stops && index >= spec.min_tokens) {
    sequence.stop_token = token;
    return End(sequence, FinishReason::kStop, absl::OkStatus());
  }
  sequence.output->push_back(token);
  sequence.unsent.push_back({index, token, payload});
  Flush(sequence);
  if (index + 1 >= spec.max_tokens) End(sequence, FinishReason::kLength, absl::OkStatus());
}

// The hung step may still write to its blocks. That is safe: a failed engine gets no more work, so
// no other sequence is given them.
void DecodeCore::Impl::FailOverdueStep() {
  const std::vector<StepSequence> ran = steps_.FailOverdue();
  LeaveWithFailedEngine();
  if (batch_.InFlight()) batch_.Complete();
  for (const StepSequence& sequence : ran) Release(sequences_.at(sequence.id));
}

void DecodeCore::Impl::LeaveWithFailedEngine() {
  EndAll(steps_.engine().EndOfRequests());
  membership_.StartDrain();
  drain_end_us_ = std::min(drain_end_us_, now_ + config_.engine.last_words_us);
  effects_.push_back(EngineFailed{steps_.engine().status()});
}

void DecodeCore::Impl::Flush(Sequence& sequence) {
  if (sequence.stream != Stream::kAttached) return;
  while (!sequence.unsent.empty()) {
    Token& token = sequence.unsent.front();
    effects_.push_back(EmitToken{.call = sequence.call,
                                 .id = sequence.spec->id,
                                 .epoch = sequence.epoch,
                                 .index = token.index,
                                 .token = token.token,
                                 .payload = std::move(token.payload),
                                 .prompt_logprobs = std::exchange(sequence.prompt_logprobs, {}),
                                 .times = std::exchange(sequence.times, std::nullopt)});
    sequence.unsent.pop_front();
  }
  if (sequence.phase != Phase::kEnded) return;
  effects_.push_back(EndStream{.call = sequence.call,
                               .id = sequence.spec->id,
                               .epoch = sequence.epoch,
                               .reason = sequence.reason,
                               .status = sequence.status,
                               .prompt_tokens = PromptTokens(*sequence.spec),
                               .output_tokens = sequence.output_tokens,
                               .stop_token = sequence.stop_token,
                               .prompt_logprobs = std::exchange(sequence.prompt_logprobs, {}),
                               .times = std::exchange(sequence.times, std::nullopt)});
  sequence.stream = Stream::kClosed;
  calls_.erase(sequence.call);
}

// The record stays until its blocks are safe and its router has heard the end (EraseEnded).
void DecodeCore::Impl::End(Sequence& sequence, FinishReason reason, const absl::Status& status) {
  if (sequence.phase == Phase::kEnded) return;
  SetPhase(sequence, Phase::kEnded);
  unclaimed_ += sequence.stream == Stream::kUnattached;
  sequence.reason = reason;
  sequence.status = status;
  const RequestId id = sequence.spec->id;
  (status.ok() ? finished_ : failed_) += 1;
  tombstones_.Put(id, sequence.epoch, sequence.committed);
  membership_.Ended({.id = id,
                     .epoch = sequence.epoch,
                     .reason = reason,
                     .status = status,
                     .engine_failed = steps_.engine().FailedUnder(id)});
  Release(sequence);
  Flush(sequence);
}

void DecodeCore::Impl::EndAll(const absl::Status& status) {
  for (auto& [id, sequence] : sequences_) End(sequence, FinishReason::kError, status);
}

void DecodeCore::Impl::SetPhase(Sequence& sequence, Phase phase) {
  const std::pair<TimeUs, RequestId> arrival{sequence.arrived_us, sequence.spec->id};
  --counts_[static_cast<size_t>(sequence.phase)];
  ++counts_[static_cast<size_t>(phase)];
  if (sequence.phase == Phase::kReceiving) receiving_.erase(arrival);
  sequence.phase = phase;
}

void DecodeCore::Impl::Release(const Sequence& sequence) {
  const RequestId id = sequence.spec->id;
  if (batch_.InFlight(id)) return;
  batch_.Remove(id);
  kv_in_.Release(id, Listening());
  touched_.push_back(id);
}

void DecodeCore::Impl::FollowUp() {
  while (!touched_.empty()) {
    for (const RequestId id : std::exchange(touched_, {})) {
      const auto it = sequences_.find(id);
      if (it != sequences_.end() && it->second.phase == Phase::kEnded &&
          it->second.stream == Stream::kClosed && !kv_in_.Has(id)) {
        Erase(it);
      }
      for (const auto& [grant, until_us] : announcements_.TakeHeld(id)) Open(grant, until_us);
    }
  }
}

void DecodeCore::Impl::Erase(Sequences::iterator it) {
  attach_ends_.Remove(it->first);
  --counts_[static_cast<size_t>(Phase::kEnded)];
  unclaimed_ -= it->second.stream == Stream::kUnattached;
  sequences_.erase(it);
}

void DecodeCore::Impl::Report() {
  std::optional<MembershipEffect> due = membership_.Due(
      now_, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
}

}  // namespace skein::scheduler
