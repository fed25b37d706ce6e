// A span: one piece of a request's way through the cluster, with its beginning and end. The fields
// mean what OpenTelemetry's trace/v1/trace.proto says (third_party/interfaces/opentelemetry).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "services/tracing/context.h"

namespace skein::services {

// Values are those of trace.proto's Span.SpanKind.
enum class SpanKind { kInternal = 1, kServer = 2, kClient = 3 };

using AttributeValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;

struct SpanAttribute {
  std::string name;
  AttributeValue value;

  SpanAttribute(std::string n, std::string v) : name(std::move(n)), value(std::move(v)) {}
  SpanAttribute(std::string n, std::string_view v) : name(std::move(n)), value(std::string(v)) {}
  SpanAttribute(std::string n, const char* v) : name(std::move(n)), value(std::string(v)) {}
  SpanAttribute(std::string n, bool v) : name(std::move(n)), value(v) {}
  SpanAttribute(std::string n, double v) : name(std::move(n)), value(v) {}
  SpanAttribute(std::string n, int v) : name(std::move(n)), value(int64_t{v}) {}
  SpanAttribute(std::string n, int64_t v) : name(std::move(n)), value(v) {}
  SpanAttribute(std::string n, std::vector<std::string> v)
      : name(std::move(n)), value(std::move(v)) {}
};

// Something that happened at one time within a span.
struct SpanEvent {
  int64_t unix_ns = 0;
  std::string name;
  std::vector<SpanAttribute> attributes;
};

// A span to which this one belongs, besides its parent; it may be of another trace.
struct SpanLink {
  TraceId trace{};
  SpanId span = 0;
  std::vector<SpanAttribute> attributes;
};

// An ended span. Times are nanoseconds since 1970, from Tracer::UnixNs, so that the spans of one
// process fit together.
struct Span {
  SpanContext context;      // its own: trace, id, and whether the trace is sampled
  SpanId parent = 0;        // 0: the trace begins with it
  std::string trace_state;  // only of a span whose parent is a client's
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  std::vector<SpanAttribute> attributes;
  std::vector<SpanEvent> events;
  std::vector<SpanLink> links;
  bool failed = false;  // status ERROR; else the status is not set
  std::string failure;  // why, for people
};

}  // namespace skein::services
