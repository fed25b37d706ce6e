// DecodeSpans: what a decode-worker did with each traced request, as spans, made of the events that
// its core handled and of the effects that came of them. Each plan (an epoch) of a request is one
// span with children that follow each other:
//
//   decode                   from its announcement until it had ended here
//     decode.kv_wait         until its KV was whole
//     decode.queue           from then until the first step with it
//     decode.steps           its steps, all of them, until it was preempted or changed between this
//                            instance and the bound group (then another one follows)
//     decode.preempted       from there until it has blocks again
//
// Events of `decode`: its blocks were granted, its first token left, and each formation that this
// instance prepared, entered or left meanwhile.
//
// All spans of a plan are recorded together, at its end: those of a process that dies are lost with
// the one that they stand under.
//
// A request that is not traced costs a look at its traceparent in each step. Pure, but for the
// random ids of spans. At most kOpenMax plans are watched; others have no spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/worker/decode/decode_events.h"
#include "services/tracing/part_span.h"

namespace skein::services {

class DecodeSpans {
 public:
  static constexpr size_t kOpenMax = 4096;
  // Spans of steps and of preemptions of one plan, at most; the last one then lasts until the end.
  static constexpr int kPhasesMax = 64;

  explicit DecodeSpans(Tracer* tracer) : tracer_(tracer) {}

  // After each event that the core handled at `now`.
  void Saw(const scheduler::DecodeEvent& event, const std::vector<scheduler::DecodeEffect>& effects,
           scheduler::TimeUs now);
  size_t open() const { return parts_.size(); }

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Part {
    Span whole;
    Span phase;  // the child that is open
    std::vector<Span> ended_phases;
    int phases = 0;
    bool waits_for_step = false;  // its KV is whole, and no step has run it
    int64_t phase_steps = 0, phase_tokens = 0;
    bool in_group = false;
    int64_t steps = 0, group_steps = 0, tokens = 0, preemptions = 0, recomputed = 0;
    int64_t last_us = 0;  // its latest step or token
    // As its router was told.
    std::optional<std::pair<scheduler::FinishReason, absl::Status>> ended;
  };

  template <class Event>
  void On(const Event&) {}
  void On(const scheduler::AnnounceCalled& event);
  void On(const scheduler::WithdrawCalled& event);
  void On(const scheduler::CancelCalled& event);
  void On(const scheduler::RegisterReplied& event);
  void On(const scheduler::TellOpened& effect);
  void On(const scheduler::RunStep& effect);
  void On(const scheduler::SequenceNote& effect);
  void On(const scheduler::EmitToken& effect);
  void On(const scheduler::EndStream& effect);
  void On(const scheduler::TellFormation& effect);
  void On(const scheduler::CallReport& effect) { EndAll(effect.request.ended); }
  void On(const scheduler::CallRegister& effect) { EndAll(effect.request.ended); }

  Part* Find(RequestId id, Epoch epoch);
  Span Child(const Part& part, RequestId id, std::string name) const;
  // The open child ends, and another one follows it.
  void Enter(RequestId id, std::string name, Part* part);
  void EndPhase(int64_t at_us, Part* part);
  void EndAll(const std::vector<scheduler::EndedRequest>& ended);
  void End(std::string_view reason, const absl::Status& status, Part part);

  Tracer* const tracer_;
  int64_t now_ = 0;
  uint64_t instance_ = 0;   // 0: not registered
  uint64_t formation_ = 0;  // the epoch of the one that it is bound in, or 0
  std::map<Key, Part> parts_;
};

}  // namespace skein::services
