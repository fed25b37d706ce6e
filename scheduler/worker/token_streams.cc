#include "scheduler/worker/token_streams.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kCreditMax = int64_t{1} << 40;  // more than any request has tokens

}  // namespace

absl::Status TokenStreams::Take(TokenStreamId stream, const TokenStreamRequest& request,
                                std::vector<DecodeEvent>* events) {
  const auto [it, is_new] = streams_.try_emplace(stream);
  Stream& to = it->second;
  if (to.attached.size() + request.attach.size() > kSequencesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("token stream request limit reached (", kSequencesMax, ")"));
  }
  for (const AttachTokens& attach : request.attach) Attach(stream, attach, events);
  for (const CreditTokens& credit : request.credit) AddCredit(to, credit);
  for (const DetachTokens& detach : request.detach) Detach(to, detach, events);
  const bool awaits_answer =
      is_new && std::any_of(request.attach.begin(), request.attach.end(),
                            [](const AttachTokens& one) { return one.from_index.has_value(); });
  if (awaits_answer) {
    to.beat = true;
    ready_.insert(stream);
  }
  return absl::OkStatus();
}

void TokenStreams::Attach(TokenStreamId stream, const AttachTokens& attach,
                          std::vector<DecodeEvent>* events) {
  const Key key(attach.id, attach.epoch);
  const bool again = attach.from_index.has_value();
  const auto& attached = streams_.at(stream).attached;
  if (const auto it = attached.find(key); it != attached.end()) {
    if (!ForgetRefused(it->second, events)) return;
  }
  const bool other =
      self_ != Incarnation{} && attach.decode != Incarnation{} && attach.decode != self_;
  if (again && other) {
    return Refuse(stream, attach,
                  absl::NotFoundError("the decode-worker's process is another one"));
  }
  if (const auto it = kept_.find(key); again && it != kept_.end()) {
    const CallId call = it->second;
    if (attach.stream < sequences_.at(call).router_stream) return;  // it comes late
    if (!ForgetRefused(call, events)) return TakeOver(stream, call, attach, events);
  }
  if (again && *attach.from_index > 0) {
    return Refuse(stream, attach,
                  absl::NotFoundError("the decode-worker does not keep the request any more"));
  }
  const bool kept = again && hold_us_ > 0 && kept_.count(key) == 0;
  Add(stream, attach, kept);
  const CallId call{last_call_};
  if (kept) kept_.emplace(key, call);
  events->push_back(AttachCalled{call, attach.id, attach.epoch, attach.ahead});
}

// A router that attached ahead, and was refused, attaches again when it hears of the placement.
bool TokenStreams::ForgetRefused(CallId call, std::vector<DecodeEvent>* events) {
  Sequence& sequence = sequences_.at(call);
  const bool refused = sequence.finished.has_value() && sequence.end_index() == 0 &&
                       sequence.finished->reason == FinishReason::kError;
  if (!refused) return false;
  Leave(call, sequence);
  Erase(call, events);
  return true;
}

// Its call is `last_call_`.
TokenStreams::Sequence& TokenStreams::Add(TokenStreamId stream, const AttachTokens& attach,
                                          bool kept) {
  const CallId call{++last_call_};
  streams_.at(stream).attached.emplace(Key(attach.id, attach.epoch), call);
  Sequence& sequence = sequences_[call];
  sequence.stream = stream;
  sequence.id = attach.id;
  sequence.epoch = attach.epoch;
  sequence.kept = kept;
  sequence.router_stream = attach.stream;
  sequence.credit = std::min(attach.credit, kCreditMax);
  return sequence;
}

void TokenStreams::TakeOver(TokenStreamId stream, CallId call, const AttachTokens& attach,
                            std::vector<DecodeEvent>* events) {
  Sequence& sequence = sequences_.at(call);
  const int64_t from = std::max<int64_t>(*attach.from_index - 1, 0);
  Leave(call, sequence);
  if (from < sequence.first_index || *attach.from_index > sequence.end_index()) {
    absl::Status wrong = absl::InternalError(absl::StrCat(
        "from_index: ", *attach.from_index, ", but the decode-worker keeps the tokens from ",
        sequence.first_index, " to ", sequence.end_index()));
    Erase(call, events);
    return Refuse(stream, attach, std::move(wrong));
  }
  sequence.stream = stream;
  sequence.router_stream = attach.stream;
  sequence.credit = std::min(attach.credit, kCreditMax);
  sequence.next_index = from;
  if (SKEIN_PLANT(reattach_at_wrong_index) && sequence.HasUnsent()) ++sequence.next_index;
  ends_sent_ -= std::exchange(sequence.end_sent, false) ? 1 : 0;
  Acknowledge(sequence, *attach.from_index);
  streams_.at(stream).attached.emplace(Key(attach.id, attach.epoch), call);
  QueueIfSendable(call, sequence);
}

// The core knows nothing of this call.
void TokenStreams::Refuse(TokenStreamId stream, const AttachTokens& attach, absl::Status status) {
  Sequence& sequence = Add(stream, attach, /*kept=*/false);
  sequence.first_index = std::max<int64_t>(*attach.from_index - 1, 0);
  sequence.next_index = sequence.first_index;
  sequence.finished = {.reason = FinishReason::kError,
                       .status = std::move(status),
                       .output_tokens = *attach.from_index};
  QueueIfSendable({last_call_}, sequence);
}

void TokenStreams::AddCredit(Stream& stream, const CreditTokens& credit) {
  const auto it = stream.attached.find({credit.id, credit.epoch});
  if (it == stream.attached.end()) return;
  Sequence& sequence = sequences_.at(it->second);
  sequence.credit += std::min(credit.more, kCreditMax - sequence.credit);
  Acknowledge(sequence, credit.received);
  QueueIfSendable(it->second, sequence);
}

// The last token that the router has may be asked for again.
void TokenStreams::Acknowledge(Sequence& sequence, int64_t received) {
  if (!sequence.kept) return;
  const int64_t before = std::min(received - 1, sequence.next_index);
  for (; sequence.first_index < before; ++sequence.first_index) sequence.tokens.pop_front();
  if (sequence.first_index == 0) return;
  sequence.prompt_logprobs = {};
  sequence.times.reset();
}

// What is held has no stream: its router says on another one that it does not want it.
void TokenStreams::Detach(Stream& stream, const DetachTokens& detach,
                          std::vector<DecodeEvent>* events) {
  const Key key(detach.id, detach.epoch);
  auto it = stream.attached.find(key);
  if (it == stream.attached.end()) {
    it = kept_.find(key);
    if (it == kept_.end() || sequences_.at(it->second).stream != TokenStreamId{}) return;
  }
  const CallId call = it->second;
  Leave(call, sequences_.at(call));
  Erase(call, events);
}

void TokenStreams::Leave(CallId call, Sequence& sequence) {
  held_.Remove(call);
  if (sequence.stream == TokenStreamId{}) return;
  Stream& stream = streams_.at(sequence.stream);
  if (std::exchange(sequence.queued, false)) std::erase(stream.queue, call);
  stream.attached.erase({sequence.id, sequence.epoch});
  sequence.stream = {};
}

void TokenStreams::Erase(CallId call, std::vector<DecodeEvent>* events) {
  const auto it = sequences_.find(call);
  const Sequence& sequence = it->second;
  if (sequence.end_sent) {
    --ends_sent_;
  } else {
    events->push_back(DetachCalled{call});
  }
  if (sequence.kept) kept_.erase({sequence.id, sequence.epoch});
  sequences_.erase(it);
}

std::vector<DecodeEvent> TokenStreams::Close(TokenStreamId stream, TimeUs now) {
  std::vector<DecodeEvent> events;
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return events;
  for (const auto& [request, call] : it->second.attached) {
    Sequence& sequence = sequences_.at(call);
    sequence.stream = {};
    sequence.queued = false;
    if (sequence.kept) {
      held_.Set(call, now + hold_us_);
    } else {
      Erase(call, &events);
    }
  }
  streams_.erase(it);
  ready_.erase(stream);
  return events;
}

void TokenStreams::Emit(EmitToken effect) {
  const auto it = sequences_.find(effect.call);
  if (it == sequences_.end()) return;
  Sequence& sequence = it->second;
  SKEIN_CHECK(effect.index == sequence.end_index());
  sequence.tokens.push_back({effect.token, std::move(effect.payload)});
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
std::vector<DecodeEvent> TokenStreams::Tick(TimeUs now) {
  std::vector<DecodeEvent> events;
  while (const auto call = held_.TakeDue(now)) Erase(*call, &events);
  if (sequences_.empty() || now < next_beat_us_) return events;
  next_beat_us_ = now + beat_us_;
  for (auto& [id, stream] : streams_) {
    if (std::exchange(stream.sent, false) || stream.attached.empty()) continue;
    stream.beat = true;
    ready_.insert(id);
  }
  return events;
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
    const size_t ahead = sequence.next_index == 0 ? sequence.prompt_logprobs.size() : 0;
    if (bytes > 0 && bytes + ahead > kBatchBytesMax) break;
    from.queue.pop_front();
    sequence.queued = false;
    batch.sequences.push_back(TakeFrom(sequence, &bytes));
    NoteSent(call, sequence);
  }
  return batch;
}

void TokenStreams::NoteSent(CallId call, Sequence& sequence) {
  if (!sequence.end_sent) return QueueIfSendable(call, sequence);  // at the back: the others first
  if (sequence.kept) {
    ++ends_sent_;
    return;
  }
  streams_.at(sequence.stream).attached.erase({sequence.id, sequence.epoch});
  sequences_.erase(call);
}

SequenceTokens TokenStreams::TakeFrom(Sequence& sequence, size_t* bytes) {
  SequenceTokens out{
      .id = sequence.id, .epoch = sequence.epoch, .first_index = sequence.next_index};
  if (sequence.next_index == 0) {
    out.prompt_logprobs = sequence.prompt_logprobs;
    out.times = sequence.times;
    if (!sequence.kept) sequence.prompt_logprobs = {};
  }
  out.leaving = std::exchange(sequence.leaving, false);
  *bytes += sizeof(out) + out.prompt_logprobs.size();
  bool payloads = false;
  while (sequence.HasUnsent() && sequence.credit > 0 &&
         (out.tokens.empty() || *bytes < kBatchBytesMax)) {
    const Token& token = sequence.tokens[static_cast<size_t>(sequence.next_index) -
                                         static_cast<size_t>(sequence.first_index)];
    *bytes += sizeof(token.token) + token.payload.size();
    payloads = payloads || !token.payload.empty();
    out.tokens.push_back(token.token);
    out.payloads.push_back(token.payload);
    --sequence.credit;
    ++sequence.next_index;
    if (sequence.kept) continue;
    sequence.tokens.pop_front();
    ++sequence.first_index;
  }
  if (!payloads) out.payloads.clear();
  if (!sequence.HasUnsent() && sequence.finished.has_value()) {
    out.finished = sequence.finished;
    sequence.end_sent = true;
  }
  return out;
}

absl::Status TokenStreams::CheckHeld() const {
  size_t kept = 0, ends_sent = 0;
  for (const auto& [call, sequence] : sequences_) {
    kept += sequence.kept;
    ends_sent += sequence.end_sent;
    const bool held = sequence.stream == TokenStreamId{};
    if (held == (held_.Of(call) != kNever) && (!held || sequence.kept)) continue;
    return absl::InternalError(
        absl::StrCat("TokenStreams: ", ToString(sequence.id),
                     held ? " is held without a time" : " has a stream and is held"));
  }
  if (kept == kept_.size() && ends_sent == ends_sent_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("TokenStreams: ", kept, " kept and ", ends_sent,
                                          " ends sent, counted ", kept_.size(), " and ",
                                          ends_sent_));
}

absl::Status TokenStreams::CheckInvariants() const {
  if (absl::Status status = CheckHeld(); !status.ok()) return status;
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
          Key(it->second.id, it->second.epoch) == request) {
        continue;
      }
      return absl::InternalError(
          absl::StrCat("TokenStreams: ", ToString(request.first), " is not known"));
    }
  }
  if (attached + held_.size() == sequences_.size() && in_queues == queued) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("TokenStreams: ", sequences_.size(), " sequences, ",
                                          attached, " attached, ", held_.size(), " held; ", queued,
                                          " queued, ", in_queues, " in queues"));
}

}  // namespace skein::scheduler
