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
      steps_(config.engine),
      sequences_([this](TokenEffect effect) {
        std::visit([this](auto& e) { effects_.push_back(std::move(e)); }, effect);
      }) {}

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
  ShareWithAll(sequence, result);
  sequences_.Run(sequence, std::move(result.prompt_logprobs), result.times);
  membership_.ReportSoon();
  if (!result.has_token) return End(sequence, FinishReason::kLength, absl::OkStatus());
  const auto reason = sequences_.AddToken(sequence, result.token, result.payload);
  if (reason.has_value()) return End(sequence, *reason, absl::OkStatus());
  block_order_.Add(sequence.id(), sequence.spec->priority, sequence.arrived_us);
  const int64_t prompt_tokens = PromptTokens(*sequence.spec);
  batch_.Add(sequence.id(), PlanSequence{sequence.epoch.value}, prompt_tokens + 1, prompt_tokens);
}

// From a process that the request's plan does not name as a writer.
bool DecodeCore::Impl::IsStray(const AbortRequest& abort) const {
  const Sequence* sequence = sequences_.Find(abort.id);
  if (sequence != nullptr && sequence->epoch == abort.epoch) {
    return sequence->phase == Phase::kReceiving && !kv_in_.IsNamed(abort.id, abort.incarnation);
  }
  const Announcements::Announced* announced = announcements_.Find(abort.id);
  return announced != nullptr && announced->epoch == abort.epoch &&
         announced->writers.count(abort.incarnation) == 0;
}

void DecodeCore::Impl::On(const AbortCalled& event) {
  const AbortRequest& abort = event.request;
  if (!CheckEpoch(abort.epoch).ok() || IsStray(abort)) return;
  kv_in_.WriterStopped(abort.id, abort.epoch, abort.prefill, Listening());
  touched_.push_back(abort.id);
  if (Sequence* sequence = sequences_.Find(abort.id, abort.epoch); sequence != nullptr) {
    if (sequence->phase != Phase::kReceiving) return;  // its writers have done their part
    End(*sequence, FinishReason::kError,
        abort.reason.ok() ? absl::InternalError("aborted") : abort.reason);
  } else if (announcements_.Has(abort.id, abort.epoch)) {
    EndAnnounced(abort.id, FinishReason::kError, abort.reason);
  } else {
    Bury(abort.id, abort.epoch, false, abort.reason);
  }
}

void DecodeCore::Impl::Bury(RequestId id, Epoch epoch, bool committed, const absl::Status& status) {
  tombstones_.Put(id, epoch, committed);
  for (const ExpectedStreams::Expected& one : expected_streams_.TakeUpTo(id, epoch)) {
    Refuse(AttachCalled{.call = one.call, .id = id, .epoch = one.epoch},
           status.ok() ? absl::CancelledError("the request has ended") : status);
  }
}

void DecodeCore::Impl::On(const CancelCalled& event) {
  if (!CheckEpoch(event.request.epoch).ok()) return;
  CancelUpTo(event.request.id, event.request.epoch, event.request.why);
}

void DecodeCore::Impl::CancelUpTo(RequestId id, Epoch epoch, const std::string& why) {
  Sequence* sequence = sequences_.Find(id);
  if (sequence != nullptr && sequence->epoch <= epoch) {
    End(*sequence, FinishReason::kCancelled, absl::CancelledError(why));
  }
  const Announcements::Announced* announced = announcements_.Find(id);
  if (announced != nullptr && announced->epoch <= epoch) {
    EndAnnounced(id, FinishReason::kCancelled, absl::CancelledError(why));
  }
  Bury(id, epoch, false, absl::CancelledError(why));
  touched_.push_back(id);
}

void DecodeCore::Impl::On(const RegisterReplied& event) {
  membership_.On(event, now_);
  if (!membership_.connected()) return;  // refused: a former orchestrator orders nothing
  for (const HeldRequest& cancel : event.reply.cancel) {
    CancelUpTo(cancel.id, cancel.epoch, "unknown to the orchestrator");
  }
}

void DecodeCore::Impl::On(const Drain& event) {
  if (membership_.leaving()) return;
  membership_.StartDrain();
  drain_end_us_ = now_ + event.grace_us;
}

void DecodeCore::Impl::On(const AttachCalled& event) {
  Sequence* sequence = sequences_.Find(event.id, event.epoch);
  const auto taken = absl::AlreadyExistsError("the request's token stream was taken already");
  if (sequence == nullptr) {
    absl::Status gone = WhyGone(event.id, event.epoch).status;
    if (!event.ahead || !absl::IsNotFound(gone)) return Refuse(event, std::move(gone));
    if (!expected_streams_.Add(event.id, event.epoch, event.call)) Refuse(event, taken);
    return;
  }
  if (sequence->stream != Stream::kUnattached) return Refuse(event, taken);
  touched_.push_back(event.id);
  if (sequence->phase == Phase::kEnded) TellEnd(*sequence, sequence->reason, sequence->status);
  sequences_.Attach(*sequence, event.call);
}

void DecodeCore::Impl::Refuse(const AttachCalled& attach, absl::Status status) {
  effects_.push_back(EndStream{.call = attach.call,
                               .id = attach.id,
                               .epoch = attach.epoch,
                               .reason = FinishReason::kError,
                               .status = std::move(status),
                               .prompt_logprobs = ""});
}

void DecodeCore::Impl::On(const DetachCalled& event) {
  expected_streams_.Remove(event.call);
  Sequence* sequence = sequences_.Detach(event.call);
  if (sequence == nullptr) return;
  touched_.push_back(sequence->id());
  End(*sequence, FinishReason::kCancelled, absl::CancelledError("the router closed the stream"));
}

void DecodeCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(now_)) {
    // The hung step may still write to its blocks. That is safe: a failed engine gets no more work,
    // so no other sequence is given them.
    const std::vector<StepSequence> ran = steps_.FailOverdue();
    LeaveWithFailedEngine();
    if (batch_.InFlight()) batch_.Complete();
    for (const StepSequence& one : ran) Release(sequences_.at(one.id));
  }
  if (now_ >= drain_end_us_ && sequences_.CountLive() > 0) {
    EndAll(absl::UnavailableError("the decode instance is going away"));
  }
  while (Sequence* sequence = sequences_.TakeUnclaimed(listening_.elapsed())) {
    touched_.push_back(sequence->id());
    End(*sequence, FinishReason::kError,
        absl::DeadlineExceededError(absl::StrCat("no router attached to the token stream within ",
                                                 config_.attach_lease_us / kMillisecondUs, " ms")));
  }
  while (const std::optional<RequestId> id = announcements_.TakeOver(now_)) {
    EndAnnounced(*id, FinishReason::kError,
                 absl::DeadlineExceededError("the request's deadline passed before its prefill"));
  }
  while (const std::optional<OpenTransferCalled> grant = announcements_.TakeOverdue(now_)) {
    Open(*grant, now_);
  }
  kv_in_.RunTimers(listening_.elapsed());
  TakeOutcomes();
  if (kv_in_.TakeFreed()) membership_.ReportSoon();
}

void DecodeCore::Impl::StartStep() {
  if (!steps_.MayLaunch()) return;
  const bool must_probe = steps_.doubtful() && !membership_.leaving();
  if (!must_probe) GrowTables();
  const std::vector<StepItem> items = must_probe ? std::vector<StepItem>() : batch_.Plan();
  if (items.empty()) {
    if (membership_.leaving()) return;
    std::optional<RunStep> probe = steps_.Probe(now_);
    if (probe.has_value()) effects_.push_back(*std::move(probe));
    return;
  }
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

void DecodeCore::Impl::On(const StepDone& event) {
  const std::optional<StepLoop::Ended> ended = steps_.End(event, now_);
  if (!ended.has_value()) return;
  if (batch_.InFlight()) batch_.Complete();
  int64_t tokens = 0;
  for (size_t i = 0; i < ended->ran.size(); ++i) {
    Sequence& sequence = sequences_.at(ended->ran[i].id);
    tokens += ended->ran[i].sample ? 1 : 0;
    const auto failed = std::find_if(event.results.begin(), event.results.end(),
                                     [](const StepResult& r) { return !r.status.ok(); });
    if (sequence.phase == Phase::kEnded) {
      Release(sequence);
    } else if (SKEIN_PLANT(one_sequence_fails_its_batch) && failed != event.results.end()) {
      End(sequence, FinishReason::kError, failed->status);
    } else if (ended->status.ok()) {
      TakeResult(sequence, ended->ran[i].sample, event.results[i]);
    } else {
      End(sequence, FinishReason::kError, ended->status);
    }
  }
  if (ended->status.ok() && !ended->ran.empty()) {
    steps_.AddTokens(tokens, ended->took_us);
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine();
}

// Without `sampled` the step computed a part of a resumed sequence.
void DecodeCore::Impl::TakeResult(Sequence& sequence, bool sampled, const StepResult& result) {
  if (!result.status.ok()) return End(sequence, FinishReason::kError, result.status);
  if (!sampled) return;
  ++output_tokens_;
  const auto reason = sequences_.AddToken(sequence, result.token, result.payload);
  if (reason.has_value()) return End(sequence, *reason, absl::OkStatus());
  WantBlock(sequence);
}

void DecodeCore::Impl::LeaveWithFailedEngine() {
  EndAll(steps_.engine().EndOfRequests());
  membership_.StartDrain();
  drain_end_us_ = std::min(drain_end_us_, now_ + config_.engine.last_words_us);
  effects_.push_back(EngineFailed{steps_.engine().status()});
}

// The record stays until its blocks are safe and its router has heard the end (FollowUp). An answer
// that is whole is no end for the orchestrator before a router attaches: else nobody would plan it
// anew if none does.
void DecodeCore::Impl::End(Sequence& sequence, FinishReason reason, const absl::Status& status) {
  if (sequence.phase == Phase::kEnded) return TellEnd(sequence, reason, status);
  const bool unattached = sequence.stream == Stream::kUnattached;
  (status.ok() ? finished_ : failed_) += 1;
  Bury(sequence.id(), sequence.epoch, sequence.committed, status);
  sequences_.End(sequence, reason, status);
  if (!status.ok() || !unattached) TellEnd(sequence, reason, status);
  Release(sequence);
  EndSharers(sequence.id());
}

void DecodeCore::Impl::TellEnd(Sequence& sequence, FinishReason reason,
                               const absl::Status& status) {
  if (std::exchange(sequence.told, true)) return;
  membership_.Ended({.id = sequence.id(),
                     .epoch = sequence.epoch,
                     .reason = reason,
                     .status = status,
                     .engine_failed = steps_.engine().FailedUnder(sequence.id()),
                     .unclaimed = sequence.unclaimed});
}

// An answer that is whole may still be taken until the process ends.
void DecodeCore::Impl::EndAll(const absl::Status& status) {
  for (const auto& [id, known] : sequences_.all()) {
    Sequence& sequence = sequences_.at(id);
    if (sequence.phase == Phase::kEnded) {
      TellEnd(sequence, sequence.reason, sequence.status);
    } else {
      End(sequence, FinishReason::kError, status);
    }
  }
}

void DecodeCore::Impl::Release(const Sequence& sequence) {
  const RequestId id = sequence.id();
  if (batch_.InFlight(id)) return;
  if (sequence.committed) effects_.push_back(ReleaseSequence{id, sequence.epoch});
  batch_.Remove(id);
  block_order_.Remove(id);
  kv_in_.Release(id, Listening());
  touched_.push_back(id);
}

void DecodeCore::Impl::FollowUp() {
  while (!touched_.empty()) {
    for (const RequestId id : std::exchange(touched_, {})) {
      const Sequence* sequence = sequences_.Find(id);
      if (sequence != nullptr && sequence->phase == Phase::kEnded &&
          sequence->stream == Stream::kClosed && !kv_in_.Has(id)) {
        sequences_.Erase(id);
      }
      for (const auto& [grant, until_us] : announcements_.TakeHeld(id)) Open(grant, until_us);
    }
  }
}

void DecodeCore::Impl::Report() {
  std::optional<MembershipEffect> due = membership_.Due(
      now_, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
}

}  // namespace skein::scheduler
