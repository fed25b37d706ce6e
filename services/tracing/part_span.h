// Making spans of what a core did with a request, from the core's own times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/tracing/context.h"
#include "services/tracing/span.h"
#include "services/tracing/tracer.h"

namespace skein::services {

// The span under which a traced request's spans stand. None: it is not traced, tracing is off
// (`tracer` is null), or nobody wants its spans.
std::optional<SpanContext> ParentOf(const Tracer* tracer, std::string_view traceparent);

// A span under `parent` that begins at `start_us`, a time of MonotonicUs().
Span BeginSpan(const Tracer& tracer, const SpanContext& parent, std::string name, int64_t start_us);
void AddEvent(const Tracer& tracer, std::string name, int64_t at_us,
              std::vector<SpanAttribute> attributes, Span* span);
// It failed with `status`, unless that is OK.
void NoteStatus(const absl::Status& status, Span* span);
// Ends at `end_us`, or when it begins if that is later.
void CloseSpan(const Tracer& tracer, int64_t end_us, Span* span);
// The same, and it is recorded.
void EndSpan(int64_t end_us, Span span, Tracer* tracer);

}  // namespace skein::services
