#include "services/tracing/otlp.h"

#include <algorithm>
#include <type_traits>

#include "services/base/version.h"
#include "third_party/interfaces/opentelemetry/trace_service.pb.h"

namespace skein::services {
namespace {

namespace otlp = opentelemetry::proto;

constexpr size_t kMessageBytesMax = 1024;

void Fill(const AttributeValue& value, otlp::common::v1::AnyValue* out) {
  std::visit(
      [out]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, std::string>) {
          out->set_string_value(v);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          out->set_int_value(v);
        } else if constexpr (std::is_same_v<T, double>) {
          out->set_double_value(v);
        } else if constexpr (std::is_same_v<T, bool>) {
          out->set_bool_value(v);
        } else {
          auto* const array = out->mutable_array_value();
          for (const std::string& one : v) array->add_values()->set_string_value(one);
        }
      },
      value);
}

template <class Attributes>
void Fill(const std::vector<SpanAttribute>& attributes, Attributes* out) {
  for (const SpanAttribute& attribute : attributes) {
    otlp::common::v1::KeyValue& one = *out->Add();
    one.set_key(attribute.name);
    Fill(attribute.value, one.mutable_value());
  }
}

std::string Bytes(const TraceId& trace) { return {trace.begin(), trace.end()}; }

// The highest byte first, as it is written in hexadecimal.
std::string Bytes(SpanId span) {
  std::string out(8, '\0');
  for (size_t i = 8; i-- > 0; span >>= 8) out[i] = static_cast<char>(span & 0xff);
  return out;
}

uint32_t FlagsOf(const SpanContext& context) {
  return context.sampled ? otlp::trace::v1::SPAN_FLAGS_TRACE_FLAGS_MASK & 1 : 0;
}

void Fill(const Span& span, otlp::trace::v1::Span* out) {
  out->set_trace_id(Bytes(span.context.trace));
  out->set_span_id(Bytes(span.context.span));
  if (span.parent != 0) out->set_parent_span_id(Bytes(span.parent));
  out->set_trace_state(span.trace_state);
  out->set_flags(FlagsOf(span.context));
  out->set_name(span.name);
  out->set_kind(static_cast<otlp::trace::v1::Span::SpanKind>(span.kind));
  out->set_start_time_unix_nano(static_cast<uint64_t>(span.start_unix_ns));
  // A span does not end before it began, whatever its clock says.
  out->set_end_time_unix_nano(
      static_cast<uint64_t>(std::max(span.end_unix_ns, span.start_unix_ns)));
  Fill(span.attributes, out->mutable_attributes());
  for (const SpanEvent& event : span.events) {
    otlp::trace::v1::Span::Event& one = *out->add_events();
    one.set_time_unix_nano(static_cast<uint64_t>(event.unix_ns));
    one.set_name(event.name);
    Fill(event.attributes, one.mutable_attributes());
  }
  for (const SpanLink& link : span.links) {
    otlp::trace::v1::Span::Link& one = *out->add_links();
    one.set_trace_id(Bytes(link.trace));
    one.set_span_id(Bytes(link.span));
    Fill(link.attributes, one.mutable_attributes());
  }
  if (!span.failed) return;
  out->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
  out->mutable_status()->set_message(span.failure);
}

}  // namespace

std::string EncodeSpans(const std::vector<SpanAttribute>& resource,
                        const std::vector<Span>& spans) {
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  otlp::trace::v1::ResourceSpans& of_process = *request.add_resource_spans();
  Fill(resource, of_process.mutable_resource()->mutable_attributes());
  otlp::trace::v1::ScopeSpans& scope = *of_process.add_scope_spans();
  scope.mutable_scope()->set_name("skein");
  scope.mutable_scope()->set_version(kVersion);
  for (const Span& span : spans) Fill(span, scope.add_spans());
  return request.SerializeAsString();
}

PartialSuccess DecodeAnswer(std::string_view body) {
  otlp::collector::trace::v1::ExportTraceServiceResponse answer;
  if (!answer.ParseFromArray(body.data(), static_cast<int>(body.size()))) return {};
  const auto& partial = answer.partial_success();
  return {std::max<int64_t>(partial.rejected_spans(), 0),
          partial.error_message().substr(0, kMessageBytesMax)};
}

}  // namespace skein::services
