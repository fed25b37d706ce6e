// Entry, streams, steps and the end of sequences. How KV comes in: decode_handoff.cc.
#include "scheduler/worker/decode_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/base/plant.h"
#include "scheduler/worker/decode_impl.h"

namespace skein::scheduler {

namespace {

MembershipConfig MembershipOf(const DecodeConfig& config) {
  MembershipConfig membership = config.membership;
  membership.identity.max_requests = config.max_requests;
  return membership;
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
      shape_(config.membership.identity.shape),
      listening_(config.lease_us),
      pool_(config.membership.identity.total_blocks),
      batch_(config.batch),
      membership_(MembershipOf(config)),
      steps_(config.engine) {
  const StagingConfig& staging = config.staging;
  if (staging.memory.empty()) return;
  SKEIN_INVARIANT(staging.slots > 0);
  // A wish lives as long as its writer.
  backends_.emplace(static_cast<int>(staging.memory.size()),
                    BackendTimes{.lease_us = config.lease_us,
                                 .grace_us = config.grace_us,
                                 .ask_lease_us = config.lease_us,
                                 .hold_us = staging.hold_us});
}

std::vector<DecodeEffect> DecodeCore::Impl::Handle(const DecodeEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  RunTimers();
  AnswerOpenings();
  AnswerAsks();
  StartStep();
  Report();
  return std::move(effects_);
}

DecodeCore::Impl::Sequence* DecodeCore::Impl::Find(RequestId id, Epoch epoch) {
  const auto it = sequences_.find(id);
  return it != sequences_.end() && it->second.epoch == epoch ? &it->second : nullptr;
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
  const auto announced = announced_.find(id);
  if (announced != announced_.end() && announced->second.epoch <= epoch) {
    EndAnnounced(id, FinishReason::kCancelled, absl::CancelledError(why));
  }
  tombstones_.Put(id, epoch, false);
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

void DecodeCore::Impl::On(const GenerateCalled& event) {
  Sequence* sequence = Find(event.id, event.epoch);
  absl::Status status;
  if (sequence == nullptr) {
    status = WhyGone(event.id, event.epoch);
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
  sequence->stream = Stream::kAttached;
  sequence->call = event.call;
  sequence->attach_end_us = kNever;
  calls_.emplace(event.call, event.id);
  Flush(*sequence);
}

void DecodeCore::Impl::On(const GenerateClosed& event) {
  const auto it = calls_.find(event.call);
  if (it == calls_.end()) return;
  Sequence& sequence = sequences_.at(it->second);
  calls_.erase(it);
  sequence.stream = Stream::kClosed;
  End(sequence, FinishReason::kCancelled, absl::CancelledError("the router closed the stream"));
}

void DecodeCore::Impl::RunTimers() {
  if (steps_.engine().Overdue(now_)) FailOverdueStep();
  if (now_ >= drain_end_us_) EndAll(absl::UnavailableError("the decode instance is going away"));
  std::vector<RequestId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  for (RequestId id : ids) RunTimers(sequences_.at(id));
  while (const std::optional<RequestId> id = announced_ends_.TakeDue(now_)) {
    EndAnnounced(*id, FinishReason::kError,
                 absl::DeadlineExceededError("the request's deadline passed before its prefill"));
  }
  EndQuarantines();
  if (backends_.has_value()) backends_->Tick(listening_.elapsed());
}

bool DecodeCore::Impl::IsWritten(const Sequence& sequence) const {
  if (backends_.has_value()) return Copying(sequence.spec->id, sequence.epoch);
  return std::any_of(sequence.writers.begin(), sequence.writers.end(),
                     [](const auto& entry) { return entry.second.writing; });
}

// One writer that went silent is enough: its part will never come.
bool DecodeCore::Impl::LeaseOver(const Sequence& sequence) const {
  if (sequence.phase != Phase::kGranted) return false;
  return listening_.elapsed() >= sequence.lease_end_us ||
         std::any_of(sequence.writers.begin(), sequence.writers.end(), [this](const auto& entry) {
           return entry.second.writing && listening_.elapsed() >= entry.second.lease_end_us;
         });
}

void DecodeCore::Impl::EndQuarantines() {
  for (auto it = quarantines_.begin(); it != quarantines_.end();) {
    Quarantine& quarantine = it->second;
    std::erase_if(quarantine.writers, [this](const auto& entry) {
      return listening_.elapsed() >= entry.second.lease_end_us + config_.grace_us;
    });
    const auto& [id, epoch] = it->first;
    if (!quarantine.writers.empty() || Copying(id, epoch)) {
      ++it;
      continue;
    }
    pool_.Free(*quarantine.blocks);
    it = quarantines_.erase(it);
    membership_.ReportSoon();
  }
}

void DecodeCore::Impl::RunTimers(Sequence& sequence) {
  const RequestId id = sequence.spec->id;
  if (listening_.elapsed() >= sequence.attach_end_us) {
    sequence.attach_end_us = kNever;
    sequence.stream = Stream::kClosed;
    End(sequence, FinishReason::kError, absl::DeadlineExceededError("no router came for it"));
  } else if (LeaseOver(sequence)) {
    End(sequence, FinishReason::kError,
        absl::UnavailableError("a prefill instance let its lease end"));
  }
  MaybeErase(id);
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
                         .blocks = sequence.blocks,
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
    MaybeErase(ended->ran[i].id);
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

// The record stays until its blocks are safe and its router has heard the end; callers that keep
// the reference call MaybeErase themselves (RunTimers does for all, after every event).
void DecodeCore::Impl::End(Sequence& sequence, FinishReason reason, const absl::Status& status) {
  if (sequence.phase == Phase::kEnded) return;
  sequence.phase = Phase::kEnded;
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
  if (backends_.has_value()) backends_->End({id, sequence.epoch}, Listening());
  Release(sequence);
  Flush(sequence);
}

void DecodeCore::Impl::EndAll(const absl::Status& status) {
  for (auto& [id, sequence] : sequences_) End(sequence, FinishReason::kError, status);
}

void DecodeCore::Impl::Release(Sequence& sequence) {
  const RequestId id = sequence.spec->id;
  if (sequence.blocks == nullptr || batch_.InFlight(id)) return;
  batch_.Remove(id);
  if (IsWritten(sequence) && !SKEIN_PLANT(quarantine_freed_early)) {
    std::erase_if(sequence.writers, [this](const auto& entry) {
      return !entry.second.writing || backends_.has_value();
    });
    pool_.Quarantine(*sequence.blocks);
    quarantines_[{id, sequence.epoch}] = {std::move(sequence.blocks), std::move(sequence.writers)};
  } else {
    pool_.Free(*sequence.blocks);
  }
  sequence.writers.clear();
  sequence.blocks = nullptr;
  membership_.ReportSoon();
}

void DecodeCore::Impl::MaybeErase(RequestId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  const Sequence& sequence = it->second;
  if (sequence.phase != Phase::kEnded || sequence.blocks != nullptr) return;
  if (sequence.stream == Stream::kClosed) sequences_.erase(it);
}

void DecodeCore::Impl::Report() {
  std::optional<MembershipEffect> due = membership_.Due(
      now_, Empty(), [this] { return Load(); }, [this] { return Held(); });
  if (!due.has_value()) return;
  std::visit([this](auto& effect) { effects_.push_back(std::move(effect)); }, *due);
}

}  // namespace skein::scheduler
