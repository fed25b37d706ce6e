#include "services/tracing/tracer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/base/random_bits.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

int64_t UnixUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TraceId NewTraceId() {
  TraceId out{};
  while (std::all_of(out.begin(), out.end(), [](uint8_t byte) { return byte == 0; })) {
    uint64_t bits = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i % 8 == 0) bits = RandomBits();
      out[i] = static_cast<uint8_t>(bits >> (8 * (i % 8)));
    }
  }
  return out;
}

// By the trace's id alone, as OpenTelemetry's TraceIdRatioBased: whoever asks gets the same answer.
// Of its last 7 bytes, which W3C's level 2 says are random.
bool Chosen(const TraceId& trace, double ratio) {
  uint64_t low = 0;
  for (size_t i = 9; i < trace.size(); ++i) low = low << 8 | trace[i];
  return static_cast<double>(low) < ratio * static_cast<double>(uint64_t{1} << 56);
}

size_t BytesOf(const std::vector<SpanAttribute>& attributes) {
  size_t bytes = 0;
  for (const SpanAttribute& attribute : attributes) {
    bytes += sizeof attribute + attribute.name.size();
    if (const auto* text = std::get_if<std::string>(&attribute.value)) bytes += text->size();
    if (const auto* texts = std::get_if<std::vector<std::string>>(&attribute.value)) {
      for (const std::string& one : *texts) bytes += sizeof(std::string) + one.size();
    }
  }
  return bytes;
}

}  // namespace

size_t BytesOf(const Span& span) {
  size_t bytes = sizeof span + span.name.size() + span.trace_state.size() + span.failure.size() +
                 BytesOf(span.attributes);
  for (const SpanEvent& event : span.events) {
    bytes += sizeof event + event.name.size() + BytesOf(event.attributes);
  }
  for (const SpanLink& link : span.links) bytes += sizeof link + BytesOf(link.attributes);
  return bytes;
}

Tracer::Tracer(TracerOptions options)
    : options_(options),
      unix_offset_us_(UnixUs() - MonotonicUs()),
      recent_(options.recent_spans_max, options.recent_bytes_max) {}

SpanId Tracer::NewSpanId() {
  SpanId id = 0;
  while (id == 0) id = RandomBits();
  return id;
}

SpanContext Tracer::Begin(const std::optional<SpanContext>& parent) const {
  if (parent.has_value()) return ChildOf(*parent);
  const TraceId trace = NewTraceId();
  return {.trace = trace, .span = NewSpanId(), .sampled = Chosen(trace, options_.ratio)};
}

SpanContext Tracer::ChildOf(const SpanContext& parent) const {
  return {.trace = parent.trace, .span = NewSpanId(), .sampled = parent.sampled};
}

void Tracer::Record(Span span) {
  if (!Wants(span.context)) return;
  const size_t bytes = BytesOf(span);
  std::lock_guard lock(mu_);
  if (span.context.sampled || kept_.count(span.context.trace) > 0) {
    Enqueue(std::move(span), bytes);
  } else {
    Hold(std::move(span), bytes);
  }
}

void Tracer::Enqueue(Span span, size_t bytes) {
  span.context.sampled = true;
  recent_.Add(span, bytes);
  if (options_.queue_spans_max == 0) return;
  if (queue_.size() >= options_.queue_spans_max ||
      queue_bytes_ + bytes > options_.queue_bytes_max) {
    ++counts_.dropped;
    return;
  }
  queue_bytes_ += bytes;
  queue_.push_back({std::move(span), bytes});
  ++counts_.recorded;
}

void Tracer::Hold(Span span, size_t bytes) {
  const TraceId id = span.context.trace;
  const auto [it, added] = held_.try_emplace(id);
  HeldTrace& trace = it->second;
  if (added) held_order_.emplace(trace.number = next_held_++, id);
  trace.spans.push_back({std::move(span), bytes});
  trace.bytes += bytes;
  held_bytes_ += bytes;
  ++held_spans_;
  while (held_spans_ > options_.held_spans_max || held_bytes_ > options_.held_bytes_max) {
    Release(TraceId(held_order_.begin()->second));
  }
}

Tracer::HeldTrace Tracer::Release(const TraceId& trace) {
  HeldTrace out = std::move(held_.extract(trace).mapped());
  held_order_.erase(out.number);
  held_spans_ -= out.spans.size();
  held_bytes_ -= out.bytes;
  return out;
}

void Tracer::Keep(const TraceId& trace) {
  std::lock_guard lock(mu_);
  if (options_.kept_traces_max == 0 || !kept_.insert(trace).second) return;
  kept_order_.push_back(trace);
  if (kept_order_.size() > options_.kept_traces_max) {
    kept_.erase(kept_order_.front());
    kept_order_.pop_front();
  }
  ++counts_.kept;
  if (held_.count(trace) == 0) return;
  for (Waiting& waiting : Release(trace).spans) Enqueue(std::move(waiting.span), waiting.bytes);
}

std::vector<Span> Tracer::Take(size_t spans_max) {
  std::lock_guard lock(mu_);
  const size_t count = std::min(spans_max, queue_.size());
  std::vector<Span> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    queue_bytes_ -= queue_.front().bytes;
    out.push_back(std::move(queue_.front().span));
    queue_.pop_front();
  }
  return out;
}

size_t Tracer::Queued() const {
  std::lock_guard lock(mu_);
  return queue_.size();
}

Tracer::Counts Tracer::counts() const {
  std::lock_guard lock(mu_);
  Counts counts = counts_;
  counts.held = held_spans_;
  return counts;
}

}  // namespace skein::services
