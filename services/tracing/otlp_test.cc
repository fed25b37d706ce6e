#include "services/tracing/otlp.h"

#include "gtest/gtest.h"
#include "third_party/interfaces/opentelemetry/trace_service.pb.h"

namespace skein::services {
namespace {

namespace otlp = opentelemetry::proto;

TEST(Otlp, CarriesEveryFieldOfASpan) {
  Span span;
  span.context = {.trace = {0x0a, 0xf7}, .span = 0x0102030405060708, .sampled = true};
  span.parent = 0xf0;
  span.trace_state = "a=1";
  span.name = "chat m";
  span.kind = SpanKind::kServer;
  span.start_unix_ns = 1'000;
  span.end_unix_ns = 3'000;
  span.attributes = {{"text", "t"}, {"number", int64_t{-7}}, {"real", 0.5}, {"flag", true}};
  span.attributes.emplace_back("list", std::vector<std::string>{"stop", "length"});
  span.events = {{2'000, "first token", {{"index", 0}}}};
  span.links = {{.trace = {1}, .span = 2, .attributes = {{"why", "prompt"}}}};
  span.failed = true;
  span.failure = "no instance";
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  ASSERT_TRUE(request.ParseFromString(EncodeSpans({{"service.name", "skein-router"}}, {span})));
  ASSERT_EQ(request.resource_spans_size(), 1);
  const auto& of_process = request.resource_spans(0);
  EXPECT_EQ(of_process.resource().attributes(0).key(), "service.name");
  EXPECT_EQ(of_process.resource().attributes(0).value().string_value(), "skein-router");
  EXPECT_EQ(of_process.scope_spans(0).scope().name(), "skein");
  const otlp::trace::v1::Span& out = of_process.scope_spans(0).spans(0);
  EXPECT_EQ(out.trace_id(), std::string("\x0a\xf7", 2) + std::string(14, '\0'));
  EXPECT_EQ(out.span_id(), std::string("\1\2\3\4\5\6\7\x8"));
  EXPECT_EQ(out.parent_span_id(), std::string(7, '\0') + "\xf0");
  EXPECT_EQ(out.trace_state(), "a=1");
  EXPECT_EQ(out.flags(), 1u);
  EXPECT_EQ(out.name(), "chat m");
  EXPECT_EQ(out.kind(), otlp::trace::v1::Span::SPAN_KIND_SERVER);
  EXPECT_EQ(out.start_time_unix_nano(), 1'000u);
  EXPECT_EQ(out.end_time_unix_nano(), 3'000u);
  ASSERT_EQ(out.attributes_size(), 5);
  EXPECT_EQ(out.attributes(0).value().string_value(), "t");
  EXPECT_EQ(out.attributes(1).value().int_value(), -7);
  EXPECT_EQ(out.attributes(2).value().double_value(), 0.5);
  EXPECT_TRUE(out.attributes(3).value().bool_value());
  EXPECT_EQ(out.attributes(4).value().array_value().values(1).string_value(), "length");
  EXPECT_EQ(out.events(0).name(), "first token");
  EXPECT_EQ(out.events(0).time_unix_nano(), 2'000u);
  EXPECT_EQ(out.events(0).attributes(0).key(), "index");
  EXPECT_EQ(out.links(0).trace_id().size(), 16u);
  EXPECT_EQ(out.links(0).attributes(0).value().string_value(), "prompt");
  EXPECT_EQ(out.status().code(), otlp::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(out.status().message(), "no instance");
}

TEST(Otlp, ASpanWithoutParentAndFailureHasNeither) {
  Span span;
  span.context = {.trace = {1}, .span = 1};
  span.start_unix_ns = 5;
  span.end_unix_ns = 4;  // of a clock that was read twice
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  ASSERT_TRUE(request.ParseFromString(EncodeSpans({}, {span})));
  const otlp::trace::v1::Span& out = request.resource_spans(0).scope_spans(0).spans(0);
  EXPECT_EQ(out.parent_span_id(), "");
  EXPECT_FALSE(out.has_status());
  EXPECT_EQ(out.flags(), 0u);
  EXPECT_EQ(out.end_time_unix_nano(), 5u);
}

TEST(Otlp, ReadsHowManySpansWereRefused) {
  otlp::collector::trace::v1::ExportTraceServiceResponse answer;
  answer.mutable_partial_success()->set_rejected_spans(3);
  answer.mutable_partial_success()->set_error_message("too old");
  const PartialSuccess partial = DecodeAnswer(answer.SerializeAsString());
  EXPECT_EQ(partial.rejected, 3);
  EXPECT_EQ(partial.message, "too old");
  EXPECT_EQ(DecodeAnswer("").rejected, 0);
  EXPECT_EQ(DecodeAnswer("<html>not protobuf</html>").rejected, 0);
  answer.mutable_partial_success()->set_rejected_spans(-3);
  EXPECT_EQ(DecodeAnswer(answer.SerializeAsString()).rejected, 0);
}

}  // namespace
}  // namespace skein::services
