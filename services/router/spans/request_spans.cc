#include "services/router/spans/request_spans.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr size_t kMostEvents = 64;  // of one attempt

const char* NameOf(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kTokenize:
      return "tokenize";
    case RequestPhase::kAdmission:
      return "admission";
    case RequestPhase::kPlan:
      return "plan";
    case RequestPhase::kFirstToken:
      return "first token";
    case RequestPhase::kStream:
      break;
  }
  return "stream";
}

}  // namespace

std::shared_ptr<RequestSpans> RequestSpans::Begin(const RequestTracing* tracing,
                                                  const http::Request& request, int64_t arrived_us,
                                                  bool may_be_slow) {
  if (tracing == nullptr) return nullptr;
  const std::optional<SpanContext> parent = ParseTraceparent(request.Get("traceparent"));
  Span server;
  server.context = tracing->tracer->Begin(parent);
  const bool wanted = may_be_slow ? tracing->tracer->Wants(server.context) : server.context.sampled;
  if (!wanted) return nullptr;
  if (parent.has_value()) {
    server.parent = parent->span;
    server.trace_state = UsableTracestate(request.Get("tracestate"));
  }
  server.name = "unnamed";
  server.kind = SpanKind::kServer;
  server.attributes = {{"http.request.method", request.method},
                       {"url.path", request.path},
                       {"http.route", request.path},
                       {"skein.request_id", request.id}};
  return std::shared_ptr<RequestSpans>(new RequestSpans(tracing, std::move(server), arrived_us));
}

RequestSpans::RequestSpans(const RequestTracing* tracing, Span server, int64_t arrived_us)
    : tracing_(tracing),
      context_(server.context),
      arrived_us_(arrived_us),
      trace_id_(Hex(context_.trace)),
      exported_(context_.sampled),
      server_(std::move(server)),
      phases_({{RequestPhase::kTokenize, arrived_us}}) {}

void RequestSpans::Name(std::string_view operation, std::string_view model) {
  std::lock_guard lock(mu_);
  server_.name = absl::StrCat(std::string(operation), " ", std::string(model));
}

void RequestSpans::Add(SpanAttribute attribute) {
  std::lock_guard lock(mu_);
  server_.attributes.push_back(std::move(attribute));
}

void RequestSpans::Enter(RequestPhase phase, int64_t now_us) {
  std::lock_guard lock(mu_);
  if (phases_.back().phase < phase) phases_.push_back({phase, now_us});
}

std::string RequestSpans::BeginAttempt(scheduler::RequestId attempt, size_t cell, int64_t now_us) {
  std::lock_guard lock(mu_);
  if (auto former = attempts_.extract(attempt); !former.empty()) {
    Close(std::move(former.mapped()), "it was submitted again", now_us);
  }
  Attempt begun{.begin_us = now_us};
  Span& span = begun.span;
  span.context = tracing_->tracer->ChildOf(context_);
  span.parent = context_.span;
  span.name = "attempt";
  span.kind = SpanKind::kClient;
  span.start_unix_ns = tracing_->tracer->UnixNs(now_us);
  span.attributes = {{"skein.attempt_id", scheduler::ToString(attempt)},
                     {"skein.attempt", static_cast<int64_t>(attempt.attempt())},
                     {"skein.cell", static_cast<int64_t>(cell)}};
  std::string traceparent = FormatTraceparent(span.context);
  if (!ended_) attempts_.emplace(attempt, std::move(begun));
  return traceparent;
}

void RequestSpans::Event(scheduler::RequestId attempt, std::string name,
                         std::vector<SpanAttribute> attributes, int64_t now_us) {
  std::lock_guard lock(mu_);
  const auto it = attempts_.find(attempt);
  if (it == attempts_.end() || it->second.span.events.size() >= kMostEvents) return;
  it->second.span.events.push_back(
      {tracing_->tracer->UnixNs(now_us), std::move(name), std::move(attributes)});
}

void RequestSpans::Answered(scheduler::RequestId attempt, int64_t now_us) {
  std::lock_guard lock(mu_);
  const auto it = attempts_.find(attempt);
  if (it == attempts_.end() || std::exchange(it->second.answered, true)) return;
  RecordPart(it->second.span.context, "submit", it->second.begin_us, now_us);
}

void RequestSpans::Received(scheduler::RequestId attempt, int64_t at_us) {
  std::lock_guard lock(mu_);
  const auto it = attempts_.find(attempt);
  if (it == attempts_.end() || it->second.latest_us == at_us) return;
  it->second.former_us = std::exchange(it->second.latest_us, at_us);
}

void RequestSpans::EndAttempt(scheduler::RequestId attempt, std::string_view failure,
                              int64_t now_us) {
  std::lock_guard lock(mu_);
  if (auto open = attempts_.extract(attempt); !open.empty()) {
    Close(std::move(open.mapped()), failure, now_us);
  }
}

void RequestSpans::Close(Attempt attempt, std::string_view failure, int64_t now_us) {
  Span& span = attempt.span;
  if (!attempt.answered) RecordPart(span.context, "submit", attempt.begin_us, now_us);
  if (attempt.former_us > 0) RecordPart(span.context, "last token", attempt.former_us, now_us);
  span.end_unix_ns = tracing_->tracer->UnixNs(now_us);
  span.failed = !failure.empty();
  span.failure = failure;
  tracing_->tracer->Record(std::move(span));
}

void RequestSpans::RecordPart(const SpanContext& parent, std::string name, int64_t begin_us,
                              int64_t end_us) {
  Span span;
  span.context = tracing_->tracer->ChildOf(parent);
  span.parent = parent.span;
  span.name = std::move(name);
  span.start_unix_ns = tracing_->tracer->UnixNs(begin_us);
  span.end_unix_ns = tracing_->tracer->UnixNs(end_us);
  tracing_->tracer->Record(std::move(span));
}

void RequestSpans::RecordPhases(int64_t now_us) {
  for (size_t i = 0; i < phases_.size(); ++i) {
    RecordPart(context_, NameOf(phases_[i].phase), phases_[i].begin_us,
               i + 1 < phases_.size() ? phases_[i + 1].begin_us : now_us);
  }
}

void RequestSpans::End(int status, std::string_view error, int64_t now_us) {
  std::lock_guard lock(mu_);
  if (std::exchange(ended_, true)) return;
  for (auto& [id, attempt] : std::exchange(attempts_, {})) {
    Close(std::move(attempt), error, now_us);
  }
  RecordPhases(now_us);
  server_.start_unix_ns = tracing_->tracer->UnixNs(arrived_us_);
  server_.end_unix_ns = tracing_->tracer->UnixNs(now_us);
  server_.attributes.emplace_back("http.response.status_code", status);
  if (!error.empty()) server_.attributes.emplace_back("error.type", error);
  // A client's mistake is no failure of the server (OpenTelemetry's conventions for HTTP spans).
  server_.failed = status >= 500;
  tracing_->tracer->Record(std::move(server_));
  if (context_.sampled || !tracing_->tracer->IsSlow(now_us - arrived_us_)) return;
  exported_.store(true);
  tracing_->tracer->Keep(context_.trace);
  tracing_->slow(context_.trace);
}

}  // namespace skein::services
