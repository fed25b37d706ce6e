#include "services/tracing/part_span.h"

#include <algorithm>
#include <utility>

namespace skein::services {

std::optional<SpanContext> ParentOf(const Tracer* tracer, std::string_view traceparent) {
  if (tracer == nullptr || traceparent.empty()) return std::nullopt;
  std::optional<SpanContext> parent = ParseTraceparent(traceparent);
  if (parent.has_value() && !tracer->Wants(*parent)) parent.reset();
  return parent;
}

Span BeginSpan(const Tracer& tracer, const SpanContext& parent, std::string name,
               int64_t start_us) {
  Span span;
  span.context = tracer.ChildOf(parent);
  span.parent = parent.span;
  span.name = std::move(name);
  span.start_unix_ns = tracer.UnixNs(start_us);
  return span;
}

void AddEvent(const Tracer& tracer, std::string name, int64_t at_us,
              std::vector<SpanAttribute> attributes, Span* span) {
  constexpr size_t kMostEvents = 64;  // of one span
  if (span->events.size() >= kMostEvents) return;
  span->events.push_back({tracer.UnixNs(at_us), std::move(name), std::move(attributes)});
}

void NoteStatus(const absl::Status& status, Span* span) {
  if (status.ok()) return;
  span->failed = true;
  span->failure = std::string(status.message());
}

void CloseSpan(const Tracer& tracer, int64_t end_us, Span* span) {
  span->end_unix_ns = std::max(span->start_unix_ns, tracer.UnixNs(end_us));
}

void EndSpan(int64_t end_us, Span span, Tracer* tracer) {
  CloseSpan(*tracer, end_us, &span);
  tracer->Record(std::move(span));
}

}  // namespace skein::services
