// W3C Trace Context (https://www.w3.org/TR/trace-context/): where a span stands in the trace of a
// request that passes through several processes, and how that is written in the headers
// `traceparent` and `tracestate`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::services {

// 16 bytes in the order in which they are written; not all zero in a trace.
using TraceId = std::array<uint8_t, 16>;
// Written as 16 hexadecimal digits, the highest first; 0 is none.
using SpanId = uint64_t;

// A span as its children see it, also those in other processes.
struct SpanContext {
  TraceId trace{};
  SpanId span = 0;
  // The trace is exported: decided where it began, and followed by all processes.
  bool sampled = false;

  bool operator==(const SpanContext&) const = default;
};

// 32 hexadecimal digits, and 16.
std::string Hex(const TraceId& trace);
std::string HexOfSpan(SpanId span);

// A traceparent: version 00, or a later one, of which only what version 00 has is read. Anything
// else is none.
std::optional<SpanContext> ParseTraceparent(std::string_view text);
// Version 00.
std::string FormatTraceparent(const SpanContext& context);

// The header as it may be passed on: at most 512 bytes and 32 members, each KEY=VALUE by the
// grammar. Else "".
std::string UsableTracestate(std::string_view text);

}  // namespace skein::services
