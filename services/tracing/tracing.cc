#include "services/tracing/tracing.h"

#include <unistd.h>

#include <utility>

#include "services/base/random_bits.h"
#include "services/base/version.h"
#include "services/tracing/endpoint.h"
#include "services/tracing/otlp_exporter.h"

namespace skein::services {
namespace {

OtlpExporterOptions ExporterOptions(const TracingOptions& options, const TraceResource& resource) {
  OtlpExporterOptions out;
  out.endpoint = *ParseTraceEndpoint(options.endpoint);
  out.resource = {{"service.name", "skein-" + resource.service},
                  {"service.namespace", "skein"},
                  {"service.version", kVersion},
                  {"service.instance.id", resource.instance},
                  {"telemetry.sdk.name", "skein"},
                  {"telemetry.sdk.language", "cpp"},
                  {"telemetry.sdk.version", kVersion}};
  out.resource.insert(out.resource.end(), resource.more.begin(), resource.more.end());
  return out;
}

}  // namespace

TraceResource ThisProcess(std::string service) {
  char host[256] = {};
  const bool named = gethostname(host, sizeof host - 1) == 0;
  return {.service = std::move(service),
          .instance = RandomHex(),
          .more = {{"host.name", named ? host : ""}, {"process.pid", int{getpid()}}}};
}

std::unique_ptr<Tracing> Tracing::Start(const TracingOptions& options,
                                        const TraceResource& resource, Metrics* metrics) {
  if (options.endpoint.empty()) return nullptr;
  return std::unique_ptr<Tracing>(new Tracing(options, resource, metrics));
}

Tracing::Tracing(const TracingOptions& options, const TraceResource& resource, Metrics* metrics)
    : metrics_(metrics), tracer_(options.tracer()) {
  if (!options.IsLocal()) {
    exporter_ = std::make_unique<OtlpExporter>(ExporterOptions(options, resource), &tracer_);
  }
  RefreshMetrics();
}

Tracing::~Tracing() = default;

void Tracing::RefreshMetrics() {
  const Tracer::Counts spans = tracer_.counts();
  const OtlpExporter::Counts sent =
      exporter_ != nullptr ? exporter_->counts() : OtlpExporter::Counts();
  for (const auto& [result, value] :
       {std::pair("exported", sent.exported), std::pair("failed", sent.failed),
        std::pair("dropped", spans.dropped)}) {
    metrics_->Total("skein_trace_spans_total", "Spans to be exported, by result.",
                    {{"result", result}}, value);
  }
  metrics_->Total("skein_trace_retries_total",
                  "Calls to the collector that repeat one that failed.", {}, sent.retries);
  metrics_->Total("skein_trace_slow_traces_total",
                  "Unsampled traces that were exported because their requests were slow.", {},
                  spans.kept);
  metrics_->Gauge("skein_trace_queued_spans", "Spans that wait for the collector.")
      .Set(static_cast<double>(tracer_.Queued()));
  metrics_
      ->Gauge("skein_trace_held_spans", "Spans of unsampled requests, held for --trace-slow-ms.")
      .Set(static_cast<double>(spans.held));
}

}  // namespace skein::services
