// OTLP: spans as the message that a collector takes (third_party/interfaces/opentelemetry), and its
// answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/tracing/span.h"

namespace skein::services {

// A serialised opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest: these spans, of a
// process with these attributes.
std::string EncodeSpans(const std::vector<SpanAttribute>& resource, const std::vector<Span>& spans);

// Of the body of a collector's 200: how many of the spans it refused, and its words. 0 if it is
// none that can be read.
struct PartialSuccess {
  int64_t rejected = 0;
  std::string message;
};
PartialSuccess DecodeAnswer(std::string_view body);

}  // namespace skein::services
