#include "services/worker/spans/decode_spans.h"

#include <algorithm>
#include <variant>

#include "services/worker/spans/span_attributes.h"

namespace skein::services {

using scheduler::FinishReason;
using scheduler::SequenceNote;

namespace {

constexpr char kBlocksGranted[] = "blocks granted";

bool HasBlocks(const Span& whole) {
  return std::any_of(whole.events.begin(), whole.events.end(),
                     [](const SpanEvent& event) { return event.name == kBlocksGranted; });
}

}  // namespace

void DecodeSpans::Saw(const scheduler::DecodeEvent& event,
                      const std::vector<scheduler::DecodeEffect>& effects, scheduler::TimeUs now) {
  now_ = now;
  std::visit([this](const auto& one) { On(one); }, event);
  for (const scheduler::DecodeEffect& effect : effects) {
    if (parts_.empty() && !std::holds_alternative<scheduler::TellFormation>(effect)) continue;
    std::visit([this](const auto& one) { On(one); }, effect);
  }
}

DecodeSpans::Part* DecodeSpans::Find(RequestId id, Epoch epoch) {
  const auto it = parts_.find({id, epoch});
  return it == parts_.end() ? nullptr : &it->second;
}

Span DecodeSpans::Child(const Part& part, RequestId id, std::string name) const {
  Span span = BeginSpan(*tracer_, part.whole.context, std::move(name), now_);
  span.attributes = AttributesOf(id, "decode-worker", instance_);
  return span;
}

// What the orchestrator does not know is withdrawn if it has no blocks, which no report tells
// (DecodeOrders::CancelUnknown).
void DecodeSpans::On(const scheduler::RegisterReplied& event) {
  if (!event.reply.status.ok()) return;
  instance_ = event.reply.instance.value;
  for (const scheduler::HeldRequest& held : event.reply.cancel) {
    const auto it = parts_.find({held.id, held.epoch});
    if (held.opened || it == parts_.end() || HasBlocks(it->second.whole)) continue;
    Part part = std::move(parts_.extract(it).mapped());
    part.last_us = now_;
    End("withdrawn", absl::CancelledError("the orchestrator does not know it"), std::move(part));
  }
}

// A repeated announcement names more writers.
void DecodeSpans::On(const scheduler::AnnounceCalled& event) {
  const scheduler::AnnounceRequest& request = event.request;
  const auto parent = ParentOf(tracer_, request.spec->traceparent);
  if (!parent.has_value() || parts_.size() >= kOpenMax) return;
  const RequestId id = request.spec->id;
  const auto [it, added] = parts_.try_emplace({id, request.epoch});
  if (!added) return;
  Part& part = it->second;
  part.last_us = now_;
  part.whole = BeginSpan(*tracer_, *parent, "decode", now_);
  auto& attributes = part.whole.attributes;
  attributes = AttributesOf(id, "decode-worker", instance_);
  attributes.emplace_back("skein.epoch", static_cast<int64_t>(request.epoch.value));
  attributes.emplace_back("skein.prompt_tokens", scheduler::PromptTokens(*request.spec));
  attributes.emplace_back("skein.writers", static_cast<int64_t>(request.writers.size()));
  if (request.formation != 0) {
    attributes.emplace_back("skein.formation_epoch", static_cast<int64_t>(request.formation));
  }
  if (request.prompt_of.has_value()) {
    attributes.emplace_back("skein.prompt_of", ToString(*request.prompt_of));
  }
  part.phase = Child(part, id, "decode.kv_wait");
}

void DecodeSpans::On(const scheduler::TellOpened& effect) {
  Part* const part = Find(effect.opened.id, effect.opened.epoch);
  if (part != nullptr) AddEvent(*tracer_, kBlocksGranted, now_, {}, &part->whole);
}

// ---- its phases ----

void DecodeSpans::Enter(RequestId id, std::string name, Part* part) {
  if (part->phases >= kPhasesMax) return;
  ++part->phases;
  EndPhase(now_, part);
  part->phase = Child(*part, id, std::move(name));
  if (part->in_group) {
    part->phase.attributes.emplace_back("skein.formation_epoch", static_cast<int64_t>(formation_));
  }
}

void DecodeSpans::EndPhase(int64_t at_us, Part* part) {
  if (part->phase_steps > 0) part->phase.attributes.emplace_back("skein.steps", part->phase_steps);
  if (part->phase_tokens > 0) {
    part->phase.attributes.emplace_back("skein.tokens", part->phase_tokens);
  }
  part->phase_steps = part->phase_tokens = 0;
  CloseSpan(*tracer_, at_us, &part->phase);
  part->ended_phases.push_back(std::move(part->phase));
}

void DecodeSpans::On(const scheduler::RunStep& effect) {
  for (const scheduler::StepSequence& sequence : effect.sequences) {
    if (sequence.spec->traceparent.empty()) continue;
    Part* const part = Find(sequence.id, sequence.epoch);
    if (part == nullptr) continue;
    if (std::exchange(part->waits_for_step, false)) Enter(sequence.id, "decode.steps", part);
    ++part->steps;
    ++part->phase_steps;
    part->group_steps += effect.group.has_value() ? 1 : 0;
    part->last_us = now_;
  }
}

void DecodeSpans::On(const SequenceNote& effect) {
  Part* const part = Find(effect.id, effect.epoch);
  if (part == nullptr) return;
  switch (effect.what) {
    case SequenceNote::What::kReady:
      Enter(effect.id, "decode.queue", part);
      part->waits_for_step = true;
      return;
    case SequenceNote::What::kPreempted:
      ++part->preemptions;
      part->waits_for_step = false;
      return Enter(effect.id, "decode.preempted", part);
    case SequenceNote::What::kResumed:
      part->recomputed += effect.tokens;
      Enter(effect.id, "decode.steps", part);
      part->phase.attributes.emplace_back("skein.recomputed_tokens", effect.tokens);
      return;
    case SequenceNote::What::kEnteredGroup:
      part->in_group = true;
      part->waits_for_step = false;
      return Enter(effect.id, "decode.steps", part);
    case SequenceNote::What::kLeftGroup:
      part->in_group = false;
      return Enter(effect.id, "decode.preempted", part);
  }
}

void DecodeSpans::On(const scheduler::EmitToken& effect) {
  Part* const part = Find(effect.id, effect.epoch);
  if (part == nullptr) return;
  ++part->tokens;
  ++part->phase_tokens;
  part->last_us = now_;
  if (part->tokens == 1) AddEvent(*tracer_, "first token", now_, {}, &part->whole);
}

void DecodeSpans::On(const scheduler::TellFormation& effect) {
  const scheduler::FormationTold& told = effect.told;
  using Phase = scheduler::FormationTold::Phase;
  if (told.phase == Phase::kBound) formation_ = told.epoch;
  if (told.phase == Phase::kEnded && told.epoch == formation_) formation_ = 0;
  const char* const what = told.phase == Phase::kPrepared ? "formation prepared"
                           : told.phase == Phase::kBound  ? "formation entered"
                                                          : "formation left";
  for (auto& [key, part] : parts_) {
    AddEvent(*tracer_, what, now_,
             {{"skein.formation_epoch", static_cast<int64_t>(told.epoch)},
              {"skein.cut_over_us", told.cut_over_us}},
             &part.whole);
  }
}

// ---- its end ----

// As its router was told; the report that tells the orchestrator follows.
void DecodeSpans::On(const scheduler::EndStream& effect) {
  Part* const part = Find(effect.id, effect.epoch);
  if (part == nullptr) return;
  part->last_us = now_;
  part->ended = {effect.reason, effect.status};
}

void DecodeSpans::On(const scheduler::WithdrawCalled& event) {
  auto part = parts_.extract(Key{event.request.id, event.request.epoch});
  if (part.empty()) return;
  part.mapped().last_us = now_;
  End("withdrawn", absl::CancelledError("it was placed elsewhere"), std::move(part.mapped()));
}

// What the core ends because of it is told in a report; what it only expected is not.
void DecodeSpans::On(const scheduler::CancelCalled& event) {
  if (event.request.unless_claimed) return;
  const RequestId id = event.request.id;
  while (true) {
    const auto it = parts_.lower_bound({id, Epoch{}});
    if (it == parts_.end() || it->first.first != id || event.request.epoch < it->first.second) {
      return;
    }
    Part part = std::move(parts_.extract(it).mapped());
    if (!part.ended.has_value()) {
      part.last_us = now_;
      part.ended = {FinishReason::kCancelled, absl::CancelledError(event.request.why)};
    }
    const auto [reason, status] = *part.ended;
    End(ToString(reason), status, std::move(part));
  }
}

void DecodeSpans::EndAll(const std::vector<scheduler::EndedRequest>& ended) {
  for (const scheduler::EndedRequest& one : ended) {
    auto part = parts_.extract(Key{one.id, one.epoch});
    if (part.empty()) continue;
    if (!part.mapped().ended.has_value()) part.mapped().last_us = now_;
    End(ToString(one.reason), one.status, std::move(part.mapped()));
  }
}

void DecodeSpans::End(std::string_view reason, const absl::Status& status, Part part) {
  EndPhase(part.last_us, &part);
  auto& attributes = part.whole.attributes;
  attributes.emplace_back("skein.finish_reason", reason);
  attributes.emplace_back("skein.tokens", part.tokens);
  attributes.emplace_back("skein.steps", part.steps);
  attributes.emplace_back("skein.group_steps", part.group_steps);
  attributes.emplace_back("skein.preemptions", part.preemptions);
  if (part.recomputed > 0) attributes.emplace_back("skein.recomputed_tokens", part.recomputed);
  NoteStatus(status, &part.whole);
  EndSpan(part.last_us, std::move(part.whole), tracer_);
  for (Span& phase : part.ended_phases) tracer_->Record(std::move(phase));
}

}  // namespace skein::services
