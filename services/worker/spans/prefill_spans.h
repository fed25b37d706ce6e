// PrefillSpans: what a prefill-worker did with each traced request, as spans, made of the events
// that its core handled and of the effects that came of them. Each plan (an epoch) of a request is
// one span with children:
//
//   prefill                  from its Assign until its KV was taken, or it ended otherwise
//     prefill.queue          until the first step with it: blocks, its turn, a decode instance
//     chunk                  one for each chunk that it computed here: from the first step of it
//                            to the end of the last; a plain prompt is one chunk
//     handoff                from the first OpenTransfer, or put, until its KV was taken
//       handoff.open         the OpenTransfer calls, until the answer
//       handoff.put          from the grant until the last put had ended; KV moves layer by layer
//                            while chunks are computed
//       handoff.commit       the Commit calls, until the answer
//
// All spans of a plan are recorded together, at its end: those of a process that dies are lost with
// the one that they stand under.
//
// A request that is not traced costs a look at its traceparent in its Assign and in each step.
// Pure, but for the random ids of spans. At most kOpenMax plans are watched; others have no spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/worker/prefill/prefill_events.h"
#include "services/tracing/part_span.h"

namespace skein::services {

class PrefillSpans {
 public:
  static constexpr size_t kOpenMax = 4096;

  explicit PrefillSpans(Tracer* tracer) : tracer_(tracer) {}

  // After each event that the core handled at `now`.
  void Saw(const scheduler::PrefillEvent& event,
           const std::vector<scheduler::PrefillEffect>& effects, scheduler::TimeUs now);
  size_t open() const { return parts_.size(); }

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Chunk {
    Span span;
    int index = 0;
    int64_t tokens = 0;      // computed here
    int64_t all_tokens = 0;  // by all its members
    int64_t steps = 0;
  };
  struct Part {
    Span whole;
    Span queue;
    bool queued = true;
    std::optional<Chunk> chunk;  // that is computed now
    std::optional<Span> handoff, opening, put, commit;
    std::vector<Span> ended;  // children
    int64_t open_calls = 0, commit_calls = 0;
    int64_t put_began_us = 0;
    int64_t tokens = 0;
    int64_t last_us = 0;  // its last step or answer ended
  };

  template <class Event>
  void On(const Event&) {}
  void On(const scheduler::AssignCalled& event);
  void On(const scheduler::OpenTransferReplied& event);
  void On(const scheduler::HandoffDone& event);
  void On(const scheduler::HandoffFailed& event) { EndPut(event.id, event.epoch, event.status); }
  void On(const scheduler::HandoffStopped& event);
  void On(const scheduler::CommitReplied& event);
  void On(const scheduler::StepDone& event);
  void On(const scheduler::RegisterReplied& event);
  void On(const scheduler::AnswerAssign& effect);
  void On(const scheduler::CallPlaceDecode& effect);
  void On(const scheduler::CallOpenTransfer& effect);
  void On(const scheduler::StartHandoff& effect);
  void On(const scheduler::CallCommit& effect);
  void On(const scheduler::RunStep& effect);
  void On(const scheduler::CallReport& effect) { EndAll(effect.request.ended); }
  void On(const scheduler::CallRegister& effect) { EndAll(effect.request.ended); }

  Part* Find(RequestId id, Epoch epoch);
  // A child of `parent`, with the request's id.
  Span Begin(const Span& parent, RequestId id, std::string name) const;
  void Begin(const scheduler::AssignRequest& request, const SpanContext& parent);
  void EndChild(int64_t at_us, Span span, Part* part) const;
  Span* Handoff(Part* part, RequestId id);  // begun, if it was not
  void BeginChunk(const scheduler::StepSequence& sequence, Part* part);
  void EndChunk(Part* part);
  void EndPut(RequestId id, Epoch epoch, const absl::Status& status);
  void EndHandoff(const absl::Status& status, Part* part);
  void EndAll(const std::vector<scheduler::EndedRequest>& ended);
  void End(const scheduler::EndedRequest& ended, Part part);

  Tracer* const tracer_;
  int64_t now_ = 0;
  uint64_t instance_ = 0;  // 0: not registered
  std::map<Key, Part> parts_;
  std::map<uint64_t, Key> assigns_;  // of calls that are not answered
  std::map<uint64_t, std::vector<scheduler::StepSequence>> steps_;  // in flight: the traced ones
};

}  // namespace skein::services
