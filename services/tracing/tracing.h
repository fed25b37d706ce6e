// Tracing of one process: its tracer, and the exporter that sends what is recorded. What main
// functions make.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/metrics/metrics.h"
#include "services/tracing/options.h"
#include "services/tracing/span.h"
#include "services/tracing/tracer.h"

namespace skein::services {

class OtlpExporter;
class RecentSpans;

// Whose spans they are: OpenTelemetry's resource.
struct TraceResource {
  std::string service;   // "router", "decode-worker" ...: service.name is "skein-" and this
  std::string instance;  // service.instance.id: unique among processes of this service
  std::vector<SpanAttribute> more;
};

// This process: a random instance id, its host and its process id.
TraceResource ThisProcess(std::string service);

class Tracing {
 public:
  // Null if --trace-endpoint is not given. `metrics` outlives it. The endpoint is valid
  // (TracingOptions::Register checks).
  static std::unique_ptr<Tracing> Start(const TracingOptions& options,
                                        const TraceResource& resource, Metrics* metrics);
  // Exports what waits, for at most 2 s, and stops. Nothing records any more.
  ~Tracing();

  Tracer* tracer() { return &tracer_; }
  const RecentSpans* recent() const { return &tracer_.recent(); }
  // Brings the metrics up to date. Any thread.
  void RefreshMetrics();

 private:
  Tracing(const TracingOptions& options, const TraceResource& resource, Metrics* metrics);

  Metrics* const metrics_;
  Tracer tracer_;
  std::unique_ptr<OtlpExporter> exporter_;  // null: --trace-endpoint=local
};

}  // namespace skein::services
