// The spans of one process: those to be exported, and those that may still have to be.
//
// Sampling is decided where a trace begins, at the router: by the parent that a client names, else
// by ratio of the trace ids. The decision travels in the traceparent's flag, and every process
// follows it. Slowness is known only at a request's end: while --trace-slow-ms is set, spans of
// unsampled traces are held, of which the oldest traces are dropped; when a request turns out to be
// slow, Keep exports what is held of its trace and what still comes of it. The router calls Keep
// for its own spans and tells the trace's id to the orchestrators in its reports
// (RouterLoad.keep_traces), which pass it on to all their workers in the answers to theirs
// (ReportResponse.keep_traces).
//
// Memory is bounded: spans and bytes that wait and that are held. What finds no room is dropped and
// counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "services/tracing/context.h"
#include "services/tracing/recent_spans.h"
#include "services/tracing/span.h"

namespace skein::services {

struct TracerOptions {
  double ratio = 0;     // of the traces that begin here without a parent, in [0, 1]
  int64_t slow_us = 0;  // a request that takes at least this long is exported in any case; 0: none
  size_t queue_spans_max = 8192;  // ended spans that wait for the exporter; 0: there is none
  size_t queue_bytes_max = 16 << 20;
  size_t held_spans_max = 16384;  // of unsampled traces
  size_t held_bytes_max = 16 << 20;
  size_t kept_traces_max = 4096;  // traces of which Keep was called latest
  // Of the latest exported spans, which stay for /debug/trace (recent_spans.h).
  size_t recent_spans_max = 4096;
  size_t recent_bytes_max = 8 << 20;
};

// Any thread, on which no call waits for I/O, memory of others or the exporter: a mutex is held for
// moves of a few pointers. Where tracing is off there is no Tracer: users hold a pointer that may
// be null.
class Tracer {
 public:
  explicit Tracer(TracerOptions options);

  // The context of a trace's first span here. With a parent: its trace and its decision; else a new
  // trace, by ratio.
  SpanContext Begin(const std::optional<SpanContext>& parent) const;
  // A span within the same process: the same trace and decision, a new id.
  SpanContext ChildOf(const SpanContext& parent) const;
  // Random, never 0.
  static SpanId NewSpanId();

  // Whether a span of this trace would be exported or held. Ask before making one: it is false for
  // most.
  bool Wants(const SpanContext& context) const { return context.sampled || options_.slow_us > 0; }
  // A request that took so long is slow.
  bool IsSlow(int64_t us) const { return options_.slow_us > 0 && us >= options_.slow_us; }

  // The wall clock's time of a moment of MonotonicUs(). The two are compared once, at construction,
  // so that spans of this process neither overlap nor gape when the wall clock is set.
  int64_t UnixNs(int64_t monotonic_us) const { return (monotonic_us + unix_offset_us_) * 1000; }

  // Sampled, or of a trace that is kept: for the exporter. Else held if slowness counts, or
  // dropped.
  void Record(Span span);
  // The trace is exported from here on, and with it what is held of it. Idempotent.
  void Keep(const TraceId& trace);

  // For the exporter and tests: the oldest spans of the queue, at most `spans_max`.
  std::vector<Span> Take(size_t spans_max);
  // Spans in the queue; the exporter looks at it.
  size_t Queued() const;

  struct Counts {
    uint64_t recorded = 0;  // spans that entered the queue
    uint64_t dropped = 0;   // spans to be exported that found no room in the queue
    uint64_t held = 0;      // spans held now
    uint64_t kept = 0;      // traces that Keep promoted
  };
  Counts counts() const;

  // The latest spans that were exported, or would have been where nothing exports them.
  const RecentSpans& recent() const { return recent_; }

  const TracerOptions& options() const { return options_; }

 private:
  struct Waiting {
    Span span;
    size_t bytes = 0;
  };
  struct HeldTrace {
    uint64_t number = 0;  // in the order of their first spans
    std::vector<Waiting> spans;
    size_t bytes = 0;
  };

  // All with mu_ held.
  void Enqueue(Span span, size_t bytes);
  void Hold(Span span, size_t bytes);
  HeldTrace Release(const TraceId& trace);  // it is held

  const TracerOptions options_;
  const int64_t unix_offset_us_;
  mutable std::mutex mu_;
  // Below: guarded by mu_.
  std::deque<Waiting> queue_;
  size_t queue_bytes_ = 0;
  std::map<TraceId, HeldTrace> held_;
  std::map<uint64_t, TraceId> held_order_;  // by number
  uint64_t next_held_ = 0;
  size_t held_spans_ = 0;
  size_t held_bytes_ = 0;
  std::set<TraceId> kept_;
  std::deque<TraceId> kept_order_;
  Counts counts_;
  RecentSpans recent_;  // has a lock of its own
};

// What a span takes in memory, about.
size_t BytesOf(const Span& span);

}  // namespace skein::services
