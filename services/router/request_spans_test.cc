// The spans of requests, as the router's tracer has them when the client has its answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/router/testing/router_fixture.h"
#include "services/tracing/tracer.h"

namespace skein::services::testing {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] = "b7ad6b7169203331";

std::string Traceparent(const std::string& flags) {
  return std::string("00-") + kTrace + "-" + kParent + "-" + flags;
}

std::string Bytes(const TraceId& trace) { return {trace.begin(), trace.end()}; }

class TracedRouterTest : public RouterTest {
 protected:
  // Instead of StartRouter.
  void StartTraced(TracerOptions options, FakeCluster::ScriptFn script) {
    tracer_.emplace(options);
    tracing_ = {.tracer = &*tracer_, .slow = [this](const TraceId& trace) {
                  shell_->loop().Post([this, trace] { shell_->KeepTrace(trace); });
                }};
    api_options_.tracing = &tracing_;
    StartRouter(std::move(script));
  }

  // Of everything that ended so far.
  std::vector<Span> Spans() { return tracer_->Take(1000); }

  static std::vector<Span> Named(const std::vector<Span>& spans, const std::string& name) {
    std::vector<Span> out;
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(out),
                 [&name](const Span& span) { return span.name == name; });
    return out;
  }
  static Span Only(const std::vector<Span>& spans, const std::string& name) {
    const std::vector<Span> found = Named(spans, name);
    EXPECT_EQ(found.size(), 1u) << name;
    return found.empty() ? Span() : found.front();
  }
  // As text; "" if it has none of that name.
  static std::string Of(const Span& span, const std::string& name) {
    for (const SpanAttribute& attribute : span.attributes) {
      if (attribute.name != name) continue;
      if (const auto* text = std::get_if<std::string>(&attribute.value)) return *text;
      if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
        return std::to_string(*number);
      }
      if (const auto* all = std::get_if<std::vector<std::string>>(&attribute.value)) {
        std::string joined;
        for (const std::string& one : *all) joined += (joined.empty() ? "" : ",") + one;
        return joined;
      }
      return "another type";
    }
    return "";
  }
  // Checks that the phases follow one another from the request's beginning to its end; their names.
  static std::vector<std::string> Phases(const std::vector<Span>& spans, const Span& server) {
    std::vector<std::string> names;
    int64_t at = server.start_unix_ns;
    for (const Span& span : spans) {
      if (span.kind != SpanKind::kInternal || span.parent != server.context.span) continue;
      EXPECT_EQ(span.start_unix_ns, at) << span.name;
      at = span.end_unix_ns;
      names.push_back(span.name);
    }
    EXPECT_EQ(at, server.end_unix_ns);
    return names;
  }

  static Json Completion(bool stream = false) {
    return {{"model", "m"}, {"prompt", "p"}, {"stream", stream}, {"max_tokens", 64}};
  }

  // A line of a batch; the status of its answer.
  int RunLine(const std::string& id) {
    class Answered : public http::Responder {
     public:
      void Send(http::Response response) override { status.set_value(response.status); }
      void StartStream(http::Response) override {}
      bool Write(std::string) override { return true; }
      void Finish() override {}
      void Abort() override {}
      void Watch(std::function<void(http::Gone)>, std::function<void()>) override {}
      std::promise<int> status;
    };
    http::Request line;
    line.method = "POST";
    line.path = "/v1/completions";
    line.body = Completion().dump();
    line.id = id;
    const auto responder = std::make_shared<Answered>();
    api_->RunLine(line, responder, 60'000'000);
    return responder->status.get_future().get();
  }

  std::optional<Tracer> tracer_;
  RequestTracing tracing_;
};

TEST_F(TracedRouterTest, ARequestIsOneTreeWhoseTimesAddUp) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) { return Says("abc"); });
  for (const bool stream : {false, true}) {
    const http::Response response =
        Post("/v1/completions", Completion(stream), {{"X-Request-Id", "mine"}});
    EXPECT_EQ(response.status, 200);
    const std::vector<Span> spans = Spans();
    const Span server = Only(spans, "text_completion m");
    EXPECT_EQ(server.kind, SpanKind::kServer);
    EXPECT_EQ(server.parent, 0u);
    EXPECT_EQ(Phases(spans, server),
              (std::vector<std::string>{"tokenize", "admission", "plan", "first token", "stream"}));
    EXPECT_EQ(Of(server, "gen_ai.operation.name"), "text_completion");
    EXPECT_EQ(Of(server, "gen_ai.provider.name"), "skein");
    EXPECT_EQ(Of(server, "gen_ai.request.model"), "m");
    EXPECT_EQ(Of(server, "gen_ai.response.model"), "m");
    EXPECT_EQ(Of(server, "gen_ai.response.finish_reasons"), "length");
    EXPECT_EQ(Of(server, "gen_ai.usage.input_tokens"), "1");
    EXPECT_EQ(Of(server, "gen_ai.usage.output_tokens"), "3");
    EXPECT_EQ(Of(server, "gen_ai.request.max_tokens"), "64");
    EXPECT_EQ(Of(server, "skein.request_id"), "mine");
    EXPECT_EQ(Of(server, "http.response.status_code"), "200");
    EXPECT_EQ(Of(server, "error.type"), "");
    EXPECT_FALSE(server.failed);
    const Span attempt = Only(spans, "attempt");
    EXPECT_EQ(attempt.kind, SpanKind::kClient);
    EXPECT_EQ(attempt.parent, server.context.span);
    EXPECT_FALSE(attempt.failed);
    const Span submit = Only(spans, "submit"), last = Only(spans, "last token");
    EXPECT_EQ(submit.parent, attempt.context.span);
    EXPECT_EQ(submit.start_unix_ns, attempt.start_unix_ns);
    EXPECT_LE(submit.end_unix_ns, last.end_unix_ns);
    EXPECT_EQ(last.parent, attempt.context.span);
    EXPECT_GE(last.start_unix_ns, submit.end_unix_ns) << "the plan came before";
    EXPECT_EQ(last.end_unix_ns, attempt.end_unix_ns);
    // What orchestrator and workers hang their spans on.
    EXPECT_EQ(cluster_->traceparent(), FormatTraceparent(attempt.context));
    EXPECT_EQ(cluster_->specs().back().traceparent(), FormatTraceparent(attempt.context));
    EXPECT_EQ(cluster_->token_traceparent(), FormatTraceparent(attempt.context));
  }
}

TEST_F(TracedRouterTest, ChatsAndChoicesHaveTheirNamesAndAttempts) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) { return Says("a"); });
  EXPECT_EQ(Post("/v1/chat/completions", {{"model", "m"},
                                          {"n", 2},
                                          {"max_tokens", 5},
                                          {"messages", {{{"role", "user"}, {"content", "hey"}}}}})
                .status,
            200);
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "chat m");
  EXPECT_EQ(Of(server, "gen_ai.request.choice.count"), "2");
  EXPECT_EQ(Of(server, "gen_ai.response.finish_reasons"), "length,length");
  EXPECT_EQ(Named(spans, "attempt").size(), 2u);
  Phases(spans, server);
}

TEST_F(TracedRouterTest, AClientsTraceGoesOn) {
  StartTraced({.ratio = 0}, [](const v1::RequestSpec&) { return Says("a"); });
  Post("/v1/completions", Completion(),
       {{"traceparent", Traceparent("01")}, {"tracestate", "vendor=1"}});
  const Span server = Only(Spans(), "text_completion m");
  EXPECT_EQ(Hex(server.context.trace), kTrace);
  EXPECT_EQ(HexOfSpan(server.parent), kParent);
  EXPECT_EQ(server.trace_state, "vendor=1");
  EXPECT_EQ(cluster_->traceparent().substr(0, 36), Traceparent("01").substr(0, 36));
  EXPECT_NE(cluster_->traceparent(), Traceparent("01"));
}

TEST_F(TracedRouterTest, WhatIsNotSampledLeavesNothing) {
  StartTraced({.ratio = 0}, [](const v1::RequestSpec&) { return Says("a"); });
  Post("/v1/completions", Completion());
  EXPECT_EQ(cluster_->traceparent(), "");
  // An unsampled trace of the client's is passed on as it is.
  Post("/v1/completions", Completion(), {{"traceparent", Traceparent("00")}});
  EXPECT_EQ(cluster_->traceparent(), Traceparent("00"));
  Post("/v1/completions", Completion(), {{"traceparent", "00-nonsense"}});
  EXPECT_EQ(cluster_->traceparent(), "");
  EXPECT_TRUE(Spans().empty());
}

TEST_F(TracedRouterTest, AMalformedParentIsNone) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) { return Says("a"); });
  for (const char* text : {"", "00", "00-0-0-01", "zz"}) {
    Post("/v1/completions", Completion(), {{"traceparent", text}, {"tracestate", "vendor=1"}});
    const Span server = Only(Spans(), "text_completion m");
    EXPECT_EQ(server.parent, 0u);
    EXPECT_EQ(server.trace_state, "");
  }
}

TEST_F(TracedRouterTest, ASlowRequestIsExportedAndTheClusterIsTold) {
  StartTraced({.ratio = 0, .slow_us = 1}, [](const v1::RequestSpec&) { return Says("a"); });
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "text_completion m");
  EXPECT_EQ(Phases(spans, server).size(), 5u);
  EXPECT_EQ(Named(spans, "attempt").size(), 1u);
  // Not sampled when it was submitted.
  EXPECT_EQ(cluster_->traceparent().substr(52), "-00");
  EXPECT_TRUE(cluster_->AwaitKeptTrace(Bytes(server.context.trace)));
}

TEST_F(TracedRouterTest, AFastRequestIsHeldOnly) {
  StartTraced({.ratio = 0, .slow_us = int64_t{3600} * 1'000'000},
              [](const v1::RequestSpec&) { return Says("a"); });
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
  EXPECT_TRUE(Spans().empty());
  EXPECT_GT(tracer_->counts().held, 0u);
}

TEST_F(TracedRouterTest, ARefusalNamesItsError) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) { return Says("a"); });
  EXPECT_EQ(Post("/v1/completions", {{"model", "other"}, {"prompt", "p"}}).status, 404);
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "POST /v1/completions");
  EXPECT_EQ(Phases(spans, server), std::vector<std::string>{"tokenize"});
  EXPECT_EQ(Of(server, "http.response.status_code"), "404");
  EXPECT_EQ(Of(server, "error.type"), "model_not_found");
  EXPECT_FALSE(server.failed);
}

TEST_F(TracedRouterTest, AFailureIsOne) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) {
    Script script = Says("a");
    script.reason = v1::FINISH_REASON_ERROR;
    script.failure = absl::InternalError("broken");
    return script;
  });
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 500);
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "text_completion m");
  EXPECT_TRUE(server.failed);
  EXPECT_EQ(Of(server, "error.type"), "internal_error");
  EXPECT_EQ(Of(server, "gen_ai.response.finish_reasons"), "error");
  const Span attempt = Only(spans, "attempt");
  EXPECT_TRUE(attempt.failed);
  EXPECT_EQ(attempt.failure, "broken");
}

TEST_F(TracedRouterTest, AResumedRequestHasAnAttemptForEachTry) {
  resume_wait_us_ = scheduler::kSecondUs;
  StartTraced({.ratio = 1}, [](const v1::RequestSpec& spec) {
    Script script = Says(spec.sent().empty() ? "ab" : "cd");
    if (spec.sent().empty()) script.failure = absl::UnavailableError("worker died");
    return script;
  });
  EXPECT_EQ(Post("/v1/completions", Completion(true)).status, 200);
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "text_completion m");
  const std::vector<Span> attempts = Named(spans, "attempt");
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_TRUE(attempts[0].failed);
  EXPECT_NE(attempts[0].failure.find("worker died"), std::string::npos);
  EXPECT_FALSE(attempts[1].failed);
  EXPECT_LE(attempts[0].end_unix_ns, attempts[1].start_unix_ns);
  EXPECT_EQ(Of(attempts[1], "skein.attempt"), "1");
  EXPECT_EQ(attempts[1].parent, server.context.span);
  const std::vector<v1::RequestSpec> specs = cluster_->specs();
  EXPECT_EQ(specs[0].traceparent(), FormatTraceparent(attempts[0].context));
  EXPECT_EQ(specs[1].traceparent(), FormatTraceparent(attempts[1].context));
  Phases(spans, server);
}

TEST_F(TracedRouterTest, AClientThatLeavesEndsTheSpans) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) {
    Script script = Says("a");
    script.hold = true;
    return script;
  });
  {
    RawClient client(server_->port());
    client.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
    EXPECT_EQ(client.ReadHead().status, 200);
  }
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  shell_->loop().RunAndWait([] {});
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "text_completion m");
  EXPECT_EQ(Of(server, "http.response.status_code"), "499");
  EXPECT_EQ(Of(server, "error.type"), "client_disconnected");
  Phases(spans, server);
}

TEST_F(TracedRouterTest, ALineOfABatchIsTracedAsAnyRequest) {
  StartTraced({.ratio = 1}, [](const v1::RequestSpec&) { return Says("a"); });
  EXPECT_EQ(RunLine("line-1"), 200);
  const std::vector<Span> spans = Spans();
  const Span server = Only(spans, "text_completion m");
  EXPECT_EQ(Of(server, "skein.request_id"), "line-1");
  EXPECT_EQ(Phases(spans, server).size(), 5u);
}

// It may wait for hours by design.
TEST_F(TracedRouterTest, ALineOfABatchIsNeverSlow) {
  StartTraced({.ratio = 0, .slow_us = 1}, [](const v1::RequestSpec&) { return Says("a"); });
  EXPECT_EQ(RunLine("line-1"), 200);
  EXPECT_TRUE(Spans().empty());
  EXPECT_EQ(tracer_->counts().held, 0u);
  EXPECT_EQ(cluster_->traceparent(), "");
}

}  // namespace
}  // namespace skein::services::testing
