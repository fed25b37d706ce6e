#include "scheduler/worker/token_streams.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kCreditMax = int64_t{1} << 40;  // more than any request has tokens

}  // namespace

absl::Status TokenStreams::Take(TokenStreamId stream, const TokenStreamRequest& request,
                                std::vector<DecodeEvent>* events) {
  Stream& to = streams_[stream];
  if (to.attached.size() + request.attach.size() > kSequencesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("token stream request limit reached (", kSequencesMax, ")"));
  }
  for (const AttachTokens& attach : request.attach) Attach(stream, attach, events);
  for (const CreditTokens& credit : request.credit) AddCredit(to, credit);
  for (const DetachTokens& detach : request.detach) Detach(to, detach, events);
  return absl::OkStatus();
}

void TokenStreams::Attach(TokenStreamId stream, const AttachTokens& attach,
                          std::vector<DecodeEvent>* events) {
  const CallId call{++last_call_};
  const bool fresh =
      streams_.at(stream).attached.emplace(std::pair(attach.id, attach.epoch), call).second;
  if (!fresh) return;
  Sequence& sequence = sequences_[call];
  sequence.stream = stream;
  sequence.id = attach.id;
  sequence.epoch = attach.epoch;
  sequence.credit = std::min(attach.credit, kCreditMax);
  events->push_back(AttachCalled{call, attach.id, attach.epoch, attach.ahead});
}

void TokenStreams::AddCredit(Stream& stream, const CreditTokens& credit) {
  const auto it = stream.attached.find({credit.id, credit.epoch});
  if (it == stream.attached.end()) return;
  Sequence& sequence = sequences_.at(it->second);
  sequence.credit += std::min(credit.more, kCreditMax - sequence.credit);
  QueueIfSendable(it->second, sequence);
}

void TokenStreams::Detach(Stream& stream, const DetachTokens& detach,
                          std::vector<DecodeEvent>* events) {
  const auto it = stream.attached.find({detach.id, detach.epoch});
  if (it == stream.attached.end()) return;
  events->push_back(DetachCalled{it->second});
  if (sequences_.at(it->second).queued) std::erase(stream.queue, it->second);
  sequences_.erase(it->second);
  stream.attached.erase(it);
}

std::vector<DecodeEvent> TokenStreams::Close(TokenStreamId stream) {
  std::vector<DecodeEvent> events;
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return events;
  for (const auto& [request, call] : it->second.attached) {
    sequences_.erase(call);
    events.push_back(DetachCalled{call});
  }
  streams_.erase(it);
  ready_.erase(stream);
  return events;
}

void TokenStreams::Emit(EmitToken effect) {
  const auto it = sequences_.find(effect.call);
  if (it == sequences_.end()) return;
  Sequence& sequence = it->second;
  SKEIN_CHECK(effect.index == sequence.next_index + static_cast<int64_t>(sequence.unsent.size()));
  sequence.unsent.push_back({effect.token, std::move(effect.payload)});
  if (effect.index == 0) {
    sequence.prompt_logprobs = std::move(effect.prompt_logprobs);
    sequence.times = effect.times;
  }
  QueueIfSendable(it->first, sequence);
}

void TokenStreams::End(EndStream effect) {
  const auto it = sequences_.find(effect.call);
  if (it == sequences_.end()) return;
  Sequence& sequence = it->second;
  sequence.finished = {.reason = effect.reason,
                       .status = std::move(effect.status),
                       .output_tokens = effect.output_tokens,
                       .stop_token = effect.stop_token,
                       .engine_failed = effect.engine_failed};
  if (!effect.prompt_logprobs.empty()) sequence.prompt_logprobs = std::move(effect.prompt_logprobs);
  if (effect.times.has_value()) sequence.times = effect.times;
  QueueIfSendable(it->first, sequence);
}

void TokenStreams::Ask(const AskToMove& effect) {
  const auto it = sequences_.find(effect.call);
  if (it == sequences_.end() || it->second.finished.has_value()) return;
  it->second.leaving = true;
  QueueIfSendable(it->first, it->second);
}

void TokenStreams::QueueIfSendable(CallId call, Sequence& sequence) {
  if (sequence.queued || !sequence.Sendable()) return;
  sequence.queued = true;
  streams_.at(sequence.stream).queue.push_back(call);
  ready_.insert(sequence.stream);
}

// As many streams as there are routers.
void TokenStreams::Tick(TimeUs now) {
  if (sequences_.empty() || now < next_beat_us_) return;
  next_beat_us_ = now + beat_us_;
  for (auto& [id, stream] : streams_) {
    if (std::exchange(stream.sent, false) || stream.attached.empty()) continue;
    stream.beat = true;
    ready_.insert(id);
  }
}

std::vector<TokenStreamId> TokenStreams::TakeReady() {
  std::vector<TokenStreamId> ready(ready_.begin(), ready_.end());
  ready_.clear();
  return ready;
}

bool TokenStreams::HasNext(TokenStreamId stream) const {
  const auto it = streams_.find(stream);
  return it != streams_.end() && (it->second.beat || !it->second.queue.empty());
}

TokenBatch TokenStreams::Next(TokenStreamId stream) {
  Stream& from = streams_.at(stream);
  from.beat = false;
  from.sent = true;
  TokenBatch batch;
  size_t bytes = 0;
  while (!from.queue.empty() && bytes < kBatchBytesMax) {
    const CallId call = from.queue.front();
    Sequence& sequence = sequences_.at(call);
    // A prompt's logprobs may be as large as a message may be: then they travel alone.
    if (bytes > 0 && bytes + sequence.prompt_logprobs.size() > kBatchBytesMax) break;
    from.queue.pop_front();
    sequence.queued = false;
    batch.sequences.push_back(TakeFrom(sequence, &bytes));
    if (batch.sequences.back().finished.has_value()) {
      from.attached.erase({sequence.id, sequence.epoch});
      sequences_.erase(call);
    } else {
      QueueIfSendable(call, sequence);  // at the back: the others first
    }
  }
  return batch;
}

SequenceTokens TokenStreams::TakeFrom(Sequence& sequence, size_t* bytes) {
  SequenceTokens out{
      .id = sequence.id, .epoch = sequence.epoch, .first_index = sequence.next_index};
  out.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  out.times = std::exchange(sequence.times, std::nullopt);
  out.leaving = std::exchange(sequence.leaving, false);
  *bytes += sizeof(out) + out.prompt_logprobs.size();
  bool payloads = false;
  while (!sequence.unsent.empty() && sequence.credit > 0 &&
         (out.tokens.empty() || *bytes < kBatchBytesMax)) {
    Token& token = sequence.unsent.front();
    *bytes += sizeof(token.token) + token.payload.size();
    payloads = payloads || !token.payload.empty();
    out.tokens.push_back(token.token);
    out.payloads.push_back(std::move(token.payload));
    sequence.unsent.pop_front();
    --sequence.credit;
    ++sequence.next_index;
  }
  if (!payloads) out.payloads.clear();
  if (sequence.unsent.empty()) out.finished = std::move(sequence.finished);
  return out;
}

absl::Status TokenStreams::CheckInvariants() const {
  size_t attached = 0, queued = 0, in_queues = 0;
  for (const auto& [call, sequence] : sequences_) {
    queued += sequence.queued;
    if (sequence.queued == sequence.Sendable()) continue;
    return absl::InternalError(absl::StrCat("TokenStreams: ", ToString(sequence.id),
                                            sequence.queued
                                                ? " is queued with nothing to send"
                                                : " has something to send but is not queued"));
  }
  for (const auto& [id, stream] : streams_) {
    attached += stream.attached.size();
    in_queues += stream.queue.size();
    for (const auto& [request, call] : stream.attached) {
      const auto it = sequences_.find(call);
      if (it != sequences_.end() && it->second.stream == id &&
          std::pair(it->second.id, it->second.epoch) == request) {
        continue;
      }
      return absl::InternalError(
          absl::StrCat("TokenStreams: ", ToString(request.first), " is not known"));
    }
  }
  if (attached == sequences_.size() && in_queues == queued) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("TokenStreams: ", sequences_.size(), " sequences, ",
                                          attached, " attached; ", queued, " queued, ", in_queues,
                                          " in queues"));
}

}  // namespace skein::scheduler
