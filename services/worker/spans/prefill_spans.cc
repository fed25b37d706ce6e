#include "services/worker/spans/prefill_spans.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <variant>

#include "services/worker/spans/span_attributes.h"

namespace skein::services {
namespace {

using scheduler::StepSequence;

int64_t TokensOf(const scheduler::Piece& piece) {  // of all its members
  int64_t tokens = 0;
  for (const auto& spans : piece.spans) {
    for (const TokenSpan& span : spans) tokens += span.count;
  }
  return tokens;
}

bool EndsItsChunk(const StepSequence& ran) {
  return ran.ring != nullptr ? ran.ring->piece.ends_chunk
                             : ran.position + ran.count >= scheduler::PromptTokens(*ran.spec);
}

}  // namespace

void PrefillSpans::Saw(const scheduler::PrefillEvent& event,
                       const std::vector<scheduler::PrefillEffect>& effects,
                       scheduler::TimeUs now) {
  now_ = now;
  std::visit([this](const auto& one) { On(one); }, event);
  if (parts_.empty() && assigns_.empty()) return;
  for (const scheduler::PrefillEffect& effect : effects) {
    std::visit([this](const auto& one) { On(one); }, effect);
  }
}

PrefillSpans::Part* PrefillSpans::Find(RequestId id, Epoch epoch) {
  const auto it = parts_.find({id, epoch});
  return it == parts_.end() ? nullptr : &it->second;
}

Span PrefillSpans::Begin(const Span& parent, RequestId id, std::string name) const {
  Span span = BeginSpan(*tracer_, parent.context, std::move(name), now_);
  span.attributes = AttributesOf(id, "prefill-worker", instance_);
  return span;
}

void PrefillSpans::EndChild(int64_t at_us, Span span, Part* part) const {
  CloseSpan(*tracer_, at_us, &span);
  part->ended.push_back(std::move(span));
}

void PrefillSpans::On(const scheduler::RegisterReplied& event) {
  if (event.reply.status.ok()) instance_ = event.reply.instance.value;
}

// Later Assigns of a plan add chunks to it.
void PrefillSpans::On(const scheduler::AssignCalled& event) {
  const scheduler::AssignRequest& request = event.request;
  const auto parent = ParentOf(tracer_, request.spec->traceparent);
  if (!parent.has_value()) return;
  if (Find(request.spec->id, request.epoch) == nullptr && parts_.size() < kOpenMax) {
    Begin(request, *parent);
    assigns_[event.call.value] = {request.spec->id, request.epoch};
  }
}

void PrefillSpans::Begin(const scheduler::AssignRequest& request, const SpanContext& parent) {
  const RequestId id = request.spec->id;
  Part& part = parts_[{id, request.epoch}];
  part.last_us = now_;
  part.whole = BeginSpan(*tracer_, parent, "prefill", now_);
  part.whole.attributes = AttributesOf(id, "prefill-worker", instance_);
  part.whole.attributes.emplace_back("skein.epoch", static_cast<int64_t>(request.epoch.value));
  part.whole.attributes.emplace_back("skein.prompt_tokens", scheduler::PromptTokens(*request.spec));
  part.whole.attributes.emplace_back(
      "skein.members", static_cast<int64_t>(std::max<size_t>(1, request.members.size())));
  part.queue = Begin(part.whole, id, "prefill.queue");
}

void PrefillSpans::On(const scheduler::AnswerAssign& effect) {
  const auto answered = assigns_.extract(effect.call.value);
  if (answered.empty() || effect.reply.status.ok()) return;
  const auto part = parts_.extract(answered.mapped());
  if (part.empty()) return;
  scheduler::EndedRequest refused{.id = part.key().first, .epoch = part.key().second};
  refused.status = effect.reply.status;
  End(refused, std::move(part.mapped()));
}

// ---- its prompt ----

void PrefillSpans::On(const scheduler::RunStep& effect) {
  for (const StepSequence& sequence : effect.sequences) {
    if (sequence.spec->traceparent.empty()) continue;
    Part* const part = Find(sequence.id, sequence.epoch);
    if (part == nullptr) continue;
    if (std::exchange(part->queued, false)) EndChild(now_, std::move(part->queue), part);
    BeginChunk(sequence, part);
    part->chunk->tokens += sequence.count;
    part->chunk->all_tokens +=
        sequence.ring == nullptr ? sequence.count : TokensOf(sequence.ring->piece);
    ++part->chunk->steps;
    steps_[effect.step].push_back(sequence);
  }
}

void PrefillSpans::BeginChunk(const StepSequence& sequence, Part* part) {
  const int index = sequence.ring == nullptr ? 0 : sequence.ring->piece.chunk;
  if (part->chunk.has_value() && part->chunk->index == index) return;
  EndChunk(part);
  Chunk& chunk = part->chunk.emplace(Chunk{});
  chunk.index = index;
  chunk.span = Begin(part->whole, sequence.id, "chunk");
  auto& attributes = chunk.span.attributes;
  attributes.emplace_back("skein.chunk", index);
  if (sequence.ring == nullptr) {
    attributes.emplace_back("skein.sp", 1);
    return;
  }
  const scheduler::RingPart& ring = *sequence.ring;
  const auto ranks = static_cast<int64_t>(ring.piece.members.size());
  attributes.emplace_back("skein.sp", ranks / std::max(1, ring.tp));
  attributes.emplace_back("skein.tp", ring.tp);
  attributes.emplace_back("skein.rank", ring.rank);
  if (ring.estimated_us > 0) attributes.emplace_back("skein.estimated_us", ring.estimated_us);
}

void PrefillSpans::EndChunk(Part* part) {
  if (!part->chunk.has_value()) return;
  Chunk chunk = *std::exchange(part->chunk, std::nullopt);
  chunk.span.attributes.emplace_back("skein.tokens", chunk.tokens);
  chunk.span.attributes.emplace_back("skein.all_tokens", chunk.all_tokens);
  chunk.span.attributes.emplace_back("skein.steps", chunk.steps);
  part->tokens += chunk.tokens;
  EndChild(part->last_us, std::move(chunk.span), part);
}

void PrefillSpans::On(const scheduler::StepDone& event) {
  if (steps_.empty()) return;
  const auto step = steps_.extract(event.step);
  if (step.empty()) return;
  for (const StepSequence& ran : step.mapped()) {
    Part* const part = Find(ran.id, ran.epoch);
    if (part == nullptr) continue;
    part->last_us = now_;
    if (!part->chunk.has_value()) continue;
    NoteStatus(event.status, &part->chunk->span);
    if (!event.status.ok() || EndsItsChunk(ran)) EndChunk(part);
  }
}

// ---- its KV ----

void PrefillSpans::On(const scheduler::CallPlaceDecode& effect) {
  Part* const part = Find(effect.request.id, effect.request.epoch);
  if (part != nullptr) AddEvent(*tracer_, "asks for a decode instance", now_, {}, &part->whole);
}

Span* PrefillSpans::Handoff(Part* part, RequestId id) {
  if (!part->handoff.has_value()) part->handoff = Begin(part->whole, id, "handoff");
  return &*part->handoff;
}

void PrefillSpans::On(const scheduler::CallOpenTransfer& effect) {
  Part* const part = Find(effect.request.id, effect.request.epoch);
  if (part == nullptr) return;
  Span* const handoff = Handoff(part, effect.request.id);
  ++part->open_calls;
  if (part->opening.has_value()) return;
  part->opening = Begin(*handoff, effect.request.id, "handoff.open");
  part->opening->attributes.emplace_back("skein.endpoint", effect.endpoint);
}

// An answer that says to call again keeps it open, until StartHandoff or the end.
void PrefillSpans::On(const scheduler::OpenTransferReplied& event) {
  Part* const part = Find(event.id, event.epoch);
  if (part == nullptr || !part->opening.has_value()) return;
  if (!event.reply.status.ok()) {
    AddEvent(*tracer_, "refused", now_,
             {{"skein.reason", std::string(event.reply.status.message())}}, &*part->opening);
  }
}

void PrefillSpans::On(const scheduler::StartHandoff& effect) {
  Part* const part = Find(effect.id, effect.epoch);
  if (part == nullptr) return;
  Span* const handoff = Handoff(part, effect.id);
  if (part->opening.has_value()) {
    Span opening = *std::exchange(part->opening, std::nullopt);
    opening.attributes.emplace_back("skein.calls", part->open_calls);
    EndChild(now_, std::move(opening), part);
  }
  part->put_began_us = now_;
  part->put = Begin(*handoff, effect.id, "handoff.put");
  part->put->attributes.emplace_back("skein.endpoint", effect.endpoint);
  part->put->attributes.emplace_back("skein.staging_buffer", effect.staging_slots > 0);
}

void PrefillSpans::On(const scheduler::HandoffDone& event) {
  Part* const part = Find(event.id, event.epoch);
  if (part == nullptr || !part->put.has_value()) return;
  const int64_t bytes =
      std::accumulate(event.bytes_per_layer.begin(), event.bytes_per_layer.end(), int64_t{0});
  const double us = static_cast<double>(std::max<int64_t>(1, now_ - part->put_began_us));
  auto& attributes = part->put->attributes;
  attributes.emplace_back("skein.bytes", bytes);
  attributes.emplace_back("skein.gb_per_s", static_cast<double>(bytes) / us * 1e-3);
  if (!event.path.path.empty()) attributes.emplace_back("skein.path", event.path.path);
  if (!event.path.transport.empty()) {
    attributes.emplace_back("skein.transport", event.path.transport);
  }
  EndPut(event.id, event.epoch, absl::OkStatus());
}

void PrefillSpans::On(const scheduler::HandoffStopped& event) {
  EndPut(event.id, event.epoch, absl::CancelledError("the handoff was stopped"));
}

void PrefillSpans::EndPut(RequestId id, Epoch epoch, const absl::Status& status) {
  Part* const part = Find(id, epoch);
  if (part == nullptr || !part->put.has_value()) return;
  Span put = *std::exchange(part->put, std::nullopt);
  NoteStatus(status, &put);
  EndChild(now_, std::move(put), part);
  part->last_us = now_;
}

void PrefillSpans::On(const scheduler::CallCommit& effect) {
  Part* const part = Find(effect.request.id, effect.request.epoch);
  if (part == nullptr) return;
  ++part->commit_calls;
  if (part->commit.has_value()) return;
  part->commit = Begin(*Handoff(part, effect.request.id), effect.request.id, "handoff.commit");
}

void PrefillSpans::On(const scheduler::CommitReplied& event) {
  Part* const part = Find(event.id, event.epoch);
  if (part == nullptr || !part->commit.has_value()) return;
  part->last_us = now_;
  if (event.reply.status.ok()) EndHandoff(absl::OkStatus(), part);
}

void PrefillSpans::EndHandoff(const absl::Status& status, Part* part) {
  const auto end = [&](std::optional<Span>* span) {
    if (!span->has_value()) return;
    Span one = *std::exchange(*span, std::nullopt);
    NoteStatus(status, &one);
    EndChild(status.ok() ? part->last_us : now_, std::move(one), part);
  };
  if (part->commit.has_value()) {
    part->commit->attributes.emplace_back("skein.calls", part->commit_calls);
  }
  for (std::optional<Span>* span : {&part->opening, &part->put, &part->commit, &part->handoff}) {
    end(span);
  }
}

// ---- its end ----

void PrefillSpans::EndAll(const std::vector<scheduler::EndedRequest>& ended) {
  for (const scheduler::EndedRequest& one : ended) {
    auto part = parts_.extract(Key{one.id, one.epoch});
    if (!part.empty()) End(one, std::move(part.mapped()));
  }
}

void PrefillSpans::End(const scheduler::EndedRequest& ended, Part part) {
  if (!ended.status.ok()) part.last_us = now_;
  if (part.queued) EndChild(part.last_us, std::move(part.queue), &part);
  EndChunk(&part);
  EndHandoff(ended.status, &part);
  auto& attributes = part.whole.attributes;
  attributes.emplace_back("skein.tokens", part.tokens);
  if (ended.ring.has_value()) {
    attributes.emplace_back("skein.ring_through_host", ended.ring->through_host);
  }
  if (ended.handoff.retries > 0) {
    attributes.emplace_back("skein.retries", static_cast<int64_t>(ended.handoff.retries));
  }
  NoteStatus(ended.status, &part.whole);
  EndSpan(part.last_us, std::move(part.whole), tracer_);
  for (Span& child : part.ended) tracer_->Record(std::move(child));
}

}  // namespace skein::services
