// The spans of one API request at the router: a tree of two levels.
// - "chat MODEL" (SERVER): from the request's arrival to the end of its answer. Under it:
// - the phases (INTERNAL), "tokenize", "admission", "plan", "first token" and "stream". One follows
//   the other without a gap, so their durations add up to that of the request.
// - "attempt" (CLIENT), one for each submission of a choice, beside the phases. The spans of
//   orchestrator and workers stand under it, and two of the router's (INTERNAL), for the messages
//   between processes, which are in no span of one process alone:
//   - "submit": until the orchestrator's first answer;
//   - "last token": from the last but one message with its tokens, or from when the router attached
//     if only one came, until its end.
// A phase ends when the first choice is further: `tokenize` when the request's choices are
// submitted to this router's core, `admission` when one is sent to an orchestrator, `plan` when the
// router knows a decode instance, `first token` with the first token. A request that ends early has
// fewer of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/base/ids.h"
#include "services/http/message.h"
#include "services/tracing/tracer.h"

namespace skein::services {

enum class RequestPhase { kTokenize, kAdmission, kPlan, kFirstToken, kStream };

// What a router needs to trace its requests. Outlives them.
struct RequestTracing {
  Tracer* tracer = nullptr;
  // The request was not sampled and turned out slow; the process's own tracer knows. Any thread.
  std::function<void(const TraceId&)> slow = [](const TraceId&) {};
};

// Any thread.
class RequestSpans {
 public:
  // Null if no span of this request would be exported or held. `arrived_us`: MonotonicUs().
  // `may_be_slow`: it is exported if it turns out slow. Not for lines of batches, which may wait
  // for hours by design: their spans would take the room of those that are held for others.
  static std::shared_ptr<RequestSpans> Begin(const RequestTracing* tracing,
                                             const http::Request& request, int64_t arrived_us,
                                             bool may_be_slow = true);

  // Of the server span; its trace's id is in the request's log line.
  const SpanContext& context() const { return context_; }

  // The trace's id in hexadecimal, for exemplars; empty: it is not exported, as far as it is known
  // now.
  std::string_view ExemplarId() const { return exported_.load() ? trace_id_ : std::string_view(); }

  // The server span's name, "unnamed" before: the operation and the model.
  void Name(std::string_view operation, std::string_view model);
  void Add(SpanAttribute attribute);
  // The phase begins, unless it or a later one has begun already.
  void Enter(RequestPhase phase, int64_t now_us);

  // A choice is sent to the orchestrator of `cell`, under this id. Returns the traceparent of the
  // attempt. An attempt of the same id that is open has ended.
  std::string BeginAttempt(scheduler::RequestId attempt, size_t cell, int64_t now_us);
  // Something that happened in an attempt, if it is open.
  void Event(scheduler::RequestId attempt, std::string name, std::vector<SpanAttribute> attributes,
             int64_t now_us);
  // Its orchestrator has answered. The first call counts.
  void Answered(scheduler::RequestId attempt, int64_t now_us);
  // The router has attached to its tokens, or a message with some of them came at `at_us`. Several
  // calls with one time are one.
  void Received(scheduler::RequestId attempt, int64_t at_us);
  // `failure`: why it was lost; empty: it did what it should.
  void EndAttempt(scheduler::RequestId attempt, std::string_view failure, int64_t now_us);

  // The answer has ended, with this status. `error`: the error's code, of a few; empty: there was
  // none. Records all spans. The first call counts.
  void End(int status, std::string_view error, int64_t now_us);

 private:
  struct Phase {
    RequestPhase phase = RequestPhase::kTokenize;
    int64_t begin_us = 0;
  };
  struct Attempt {
    Span span;
    int64_t begin_us = 0;
    bool answered = false;
    int64_t former_us = 0, latest_us = 0;  // of Received; 0: not yet
  };
  RequestSpans(const RequestTracing* tracing, Span server, int64_t arrived_us);
  // With mu_ held:
  void RecordPhases(int64_t now_us);
  void RecordPart(const SpanContext& parent, std::string name, int64_t begin_us, int64_t end_us);
  void Close(Attempt attempt, std::string_view failure, int64_t now_us);

  const RequestTracing* const tracing_;
  const SpanContext context_;
  const int64_t arrived_us_;
  const std::string trace_id_;
  std::atomic<bool> exported_;
  std::mutex mu_;
  Span server_;                                       // guarded by mu_
  std::vector<Phase> phases_;                         // likewise; in their order
  std::map<scheduler::RequestId, Attempt> attempts_;  // likewise; open ones
  bool ended_ = false;                                // likewise
};

}  // namespace skein::services
