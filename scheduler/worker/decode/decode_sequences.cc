#include "scheduler/worker/decode/decode_sequences.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

DecodeSequence& DecodeSequences::Add(const SpecPtr& spec, Epoch epoch, TimeUs now,
                                     TimeUs attach_until_us) {
  const auto [it, added] = sequences_.try_emplace(spec->id);
  SKEIN_CHECK(added);
  DecodeSequence& sequence = it->second;
  sequence.spec = spec;
  sequence.epoch = epoch;
  sequence.arrived_us = now;
  ++counts_[static_cast<size_t>(Phase::kReceiving)];
  attach_ends_.Set(spec->id, attach_until_us);
  return sequence;
}

void DecodeSequences::Erase(RequestId id) {
  const DecodeSequence& sequence = sequences_.at(id);
  SKEIN_CHECK(sequence.phase == Phase::kEnded);
  attach_ends_.Remove(id);
  --counts_[static_cast<size_t>(Phase::kEnded)];
  unclaimed_ -= sequence.stream == Stream::kUnattached;
  if (sequence.stream == Stream::kAttached) calls_.erase(sequence.call);
  sequences_.erase(id);
}

DecodeSequence* DecodeSequences::Find(RequestId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

const DecodeSequence* DecodeSequences::Find(RequestId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

DecodeSequence* DecodeSequences::Find(RequestId id, Epoch epoch) {
  DecodeSequence* sequence = Find(id);
  return sequence != nullptr && sequence->epoch == epoch ? sequence : nullptr;
}

void DecodeSequences::Run(DecodeSequence& sequence, std::string prompt_logprobs,
                          const std::optional<PrefillTimes>& times) {
  SetPhase(sequence, Phase::kRunning);
  Note(sequence, SequenceNote::What::kReady);
  sequence.committed = true;
  sequence.prompt_logprobs = std::move(prompt_logprobs);
  sequence.times = times;
}

std::optional<FinishReason> DecodeSequences::AddToken(DecodeSequence& sequence, int32_t token,
                                                      const std::string& payload) {
  const RequestSpec& spec = *sequence.spec;
  const auto index = static_cast<int64_t>(sequence.output->size());
  sequence.output_tokens = index + 1;
  const bool stops = std::find(spec.stop_token_ids.begin(), spec.stop_token_ids.end(), token) !=
                     spec.stop_token_ids.end();
  if (stops && index >= spec.min_tokens) {
    sequence.stop_token = token;
    return FinishReason::kStop;
  }
  sequence.output->push_back(token);
  sequence.unsent.push_back({index, token, payload});
  Flush(sequence);
  if (index + 1 >= spec.max_tokens) return FinishReason::kLength;
  return std::nullopt;
}

void DecodeSequences::Preempt(DecodeSequence& sequence) {
  SetPhase(sequence, Phase::kPreempted);
  ++sequence.preemptions;
  Note(sequence, SequenceNote::What::kPreempted);
}

void DecodeSequences::Resume(DecodeSequence& sequence) {
  SKEIN_CHECK(sequence.phase == Phase::kPreempted);
  SetPhase(sequence, Phase::kRunning);
  Note(sequence, SequenceNote::What::kResumed);
}

void DecodeSequences::Bind(DecodeSequence& sequence) {
  SKEIN_CHECK(sequence.phase < Phase::kBound);
  sequence.committed = true;
  SetPhase(sequence, Phase::kBound);
  Note(sequence, SequenceNote::What::kEnteredGroup);
}

void DecodeSequences::Unbind(DecodeSequence& sequence) {
  SKEIN_CHECK(sequence.phase == Phase::kBound);
  SetPhase(sequence, Phase::kPreempted);
  Note(sequence, SequenceNote::What::kLeftGroup);
}

void DecodeSequences::End(DecodeSequence& sequence, FinishReason reason,
                          const absl::Status& status) {
  SetPhase(sequence, Phase::kEnded);
  unclaimed_ += sequence.stream == Stream::kUnattached;
  sequence.reason = reason;
  sequence.status = status;
  Flush(sequence);
}

void DecodeSequences::Attach(DecodeSequence& sequence, CallId call) {
  SKEIN_CHECK(sequence.stream == Stream::kUnattached);
  unclaimed_ -= sequence.phase == Phase::kEnded;
  sequence.stream = Stream::kAttached;
  sequence.call = call;
  attach_ends_.Remove(sequence.id());
  calls_.emplace(call, sequence.id());
  Flush(sequence);
}

DecodeSequence* DecodeSequences::Detach(CallId call) {
  const auto it = calls_.find(call);
  if (it == calls_.end()) return nullptr;
  DecodeSequence& sequence = sequences_.at(it->second);
  calls_.erase(it);
  sequence.stream = Stream::kClosed;
  return &sequence;
}

DecodeSequence* DecodeSequences::TakeUnclaimed(TimeUs listening) {
  const std::optional<RequestId> id = attach_ends_.TakeDue(listening);
  if (!id.has_value()) return nullptr;
  DecodeSequence& sequence = sequences_.at(*id);
  GiveUpUnclaimed(sequence);
  return &sequence;
}

void DecodeSequences::GiveUpUnclaimed(DecodeSequence& sequence) {
  SKEIN_CHECK(sequence.stream == Stream::kUnattached);
  attach_ends_.Remove(sequence.id());
  unclaimed_ -= sequence.phase == Phase::kEnded;
  sequence.stream = Stream::kClosed;
  sequence.unclaimed = true;
}

void DecodeSequences::Flush(DecodeSequence& sequence) {
  if (sequence.stream != Stream::kAttached) return;
  while (!sequence.unsent.empty()) {
    DecodeSequence::Token& token = sequence.unsent.front();
    emit_(EmitToken{.call = sequence.call,
                    .id = sequence.id(),
                    .epoch = sequence.epoch,
                    .index = token.index,
                    .token = token.token,
                    .payload = std::move(token.payload),
                    .prompt_logprobs = std::exchange(sequence.prompt_logprobs, {}),
                    .times = std::exchange(sequence.times, std::nullopt)});
    sequence.unsent.pop_front();
  }
  if (sequence.phase != Phase::kEnded) return;
  emit_(EndStream{.call = sequence.call,
                  .id = sequence.id(),
                  .epoch = sequence.epoch,
                  .reason = sequence.reason,
                  .status = sequence.status,
                  .prompt_tokens = PromptTokens(*sequence.spec),
                  .output_tokens = sequence.output_tokens,
                  .stop_token = sequence.stop_token,
                  .prompt_logprobs = std::exchange(sequence.prompt_logprobs, {}),
                  .times = std::exchange(sequence.times, std::nullopt),
                  .engine_failed = sequence.engine_failed});
  sequence.stream = Stream::kClosed;
  calls_.erase(sequence.call);
}

void DecodeSequences::Note(const DecodeSequence& sequence, SequenceNote::What what) {
  if (sequence.spec->traceparent.empty()) return;
  emit_(SequenceNote{sequence.id(), sequence.epoch, what, sequence.KnownTokens()});
}

void DecodeSequences::SetPhase(DecodeSequence& sequence, Phase phase) {
  const bool resumes = sequence.phase == Phase::kPreempted && phase == Phase::kRunning;
  const bool unbinds = sequence.phase == Phase::kBound && phase == Phase::kPreempted;
  SKEIN_CHECK(sequence.phase < phase || resumes || unbinds);
  --counts_[static_cast<size_t>(sequence.phase)];
  ++counts_[static_cast<size_t>(phase)];
  sequence.phase = phase;
}

absl::Status DecodeSequences::CheckInvariants() const {
  size_t attached = 0;
  int64_t unclaimed = 0;
  std::array<int64_t, 5> counts{};
  for (const auto& [id, sequence] : sequences_) {
    ++counts[static_cast<size_t>(sequence.phase)];
    attached += sequence.stream == Stream::kAttached;
    unclaimed += sequence.phase == Phase::kEnded && sequence.stream == Stream::kUnattached;
    if (sequence.stream == Stream::kAttached && !sequence.unsent.empty()) {
      return absl::InternalError(
          absl::StrCat("DecodeCore 4: ", ToString(id), " is attached, but has unsent tokens"));
    }
    if ((sequence.stream == Stream::kUnattached) != (attach_ends_.Of(id) != kNever)) {
      return absl::InternalError(
          absl::StrCat("DecodeCore 4: ", ToString(id),
                       " is attached but has an attach timer, or is not attached and has none"));
    }
  }
  if (counts != counts_ || unclaimed != unclaimed_) {
    return absl::InternalError("DecodeCore 5: the numbers of sequences by phase are wrong");
  }
  if (attached != calls_.size()) {
    return absl::InternalError(
        absl::StrCat("DecodeCore 4: ", attached, " streams attached, ", calls_.size(), " calls"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
