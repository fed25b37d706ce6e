#include "services/tracing/options.h"

#include "absl/strings/str_cat.h"
#include "services/tracing/endpoint.h"

namespace skein::services {

void TracingOptions::Register(FlagSet* flags) {
  flags->Group("Tracing");
  flags
      ->String(&endpoint, "trace-endpoint",
               "Collector to which spans are sent by OTLP/HTTP in protobuf, to its path "
               "/v1/traces; or local, which sends none. The latest ones are kept here in both "
               "cases, for skeinctl trace. Without it nothing is traced.")
      .Value("http://HOST:PORT");
  flags->Double(&ratio, "trace-ratio",
                "Share of the requests that are traced, of those without a traceparent; one with a "
                "traceparent is traced if its sampled flag is set.",
                0, 1);
  flags
      ->Int(
          &slow_ms, "trace-slow-ms",
          "A request that takes at least this long is traced in any case, but no line of a batch. "
          "Spans of all requests are then held until it is known; 0 does not do that.",
          0, 86'400'000)
      .Value("MILLISECONDS");
  flags->Check([this] {
    if (endpoint.empty() || IsLocal()) return absl::OkStatus();
    const auto parsed = ParseTraceEndpoint(endpoint);
    if (parsed.ok()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--trace-endpoint: ", std::string(parsed.status().message())));
  });
}

TracerOptions TracingOptions::tracer() const {
  TracerOptions out;
  out.ratio = ratio;
  if (IsLocal()) out.queue_spans_max = 0;
  out.slow_us = slow_ms * 1000;
  return out;
}

}  // namespace skein::services
