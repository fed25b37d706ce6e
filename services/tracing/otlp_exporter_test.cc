// The exporter against collectors that work, refuse, hang and are not there.
#include "services/tracing/otlp_exporter.h"

#include <condition_variable>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "services/http/server.h"
#include "services/http/testing/raw_server.h"
#include "services/tls/security.h"
#include "services/tls/testing/authority.h"
#include "third_party/interfaces/opentelemetry/trace_service.pb.h"

namespace skein::services {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kLong{30};

// Answers calls with the given statuses, one after the other, and then with 200.
class Collector {
 public:
  explicit Collector(std::deque<http::Response> answers = {}) : answers_(std::move(answers)) {
    auto started = http::Server::Start(
        {}, [this](http::Request request, auto responder) { Take(request, responder); });
    server_ = *std::move(started);
  }

  ~Collector() {
    std::vector<std::shared_ptr<http::Responder>> dropped;
    {
      std::lock_guard lock(mu_);
      dropped.swap(hanging_);
    }
    dropped.clear();  // while there is a server to answer 500
    server_.reset();
  }

  TraceEndpoint endpoint() const { return {{"127.0.0.1", server_->port()}, "/v1/traces"}; }

  // Waits until `done`.
  bool Await(const std::function<bool(const Collector&)>& done) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kLong, [&] { return done(*this); });
  }

  // Within Await, and after the exporter's end.
  std::vector<std::string> names;
  int calls = 0;
  std::set<std::string> bodies;

 private:
  void Take(const http::Request& request, const std::shared_ptr<http::Responder>& responder) {
    std::lock_guard lock(mu_);
    ++calls;
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/traces");
    EXPECT_EQ(request.Get("Content-Type"), "application/x-protobuf");
    bodies.insert(request.body);
    http::Response answer;
    if (!answers_.empty()) {
      answer = std::move(answers_.front());
      answers_.pop_front();
    }
    if (answer.status == 0) {
      hanging_.push_back(responder);  // never answered
    } else {
      if (answer.status == 200) Read(request.body);
      responder->Send(std::move(answer));
    }
    changed_.notify_all();
  }

  void Read(const std::string& body) {
    opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest request;
    ASSERT_TRUE(request.ParseFromString(body));
    for (const auto& of_process : request.resource_spans()) {
      for (const auto& scope : of_process.scope_spans()) {
        for (const auto& span : scope.spans()) names.push_back(span.name());
      }
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<http::Response> answers_;  // guarded by mu_
  std::vector<std::shared_ptr<http::Responder>> hanging_;
  std::unique_ptr<http::Server> server_;
};

http::Response Status(int status, std::vector<http::Header> headers = {}, std::string body = {}) {
  http::Response out;
  out.status = status;
  out.headers = std::move(headers);
  out.body = std::move(body);
  return out;
}

OtlpExporterOptions Options(const TraceEndpoint& endpoint) {
  OtlpExporterOptions out;
  out.endpoint = endpoint;
  out.interval = milliseconds(1);
  out.first_pause = milliseconds(1);
  out.longest_pause = milliseconds(2);
  out.retry_for = milliseconds(20'000);
  out.flush_for = milliseconds(30'000);  // also on a busy machine a call is not broken off
  return out;
}

void RecordOne(Tracer* tracer, const std::string& name) {
  Span span;
  span.context = {.trace = {1}, .span = 1, .sampled = true};
  span.name = name;
  tracer->Record(std::move(span));
}

TEST(OtlpExporter, SendsWhatIsRecordedInBatches) {
  Collector collector;
  Tracer tracer({});
  for (int i = 0; i < 5; ++i) RecordOne(&tracer, std::to_string(i));
  OtlpExporterOptions options = Options(collector.endpoint());
  options.batch_spans_max = 2;
  OtlpExporter exporter(options, &tracer);
  ASSERT_TRUE(collector.Await([](const Collector& c) { return c.names.size() == 5; }));
  EXPECT_TRUE(collector.Await([](const Collector& c) {
    return c.calls == 3 && c.names == std::vector<std::string>{"0", "1", "2", "3", "4"};
  }));
}

TEST(OtlpExporter, SendsTheSameBatchAgainAfterAnswersThatPass) {
  Collector collector({Status(503, {{"Retry-After", "0"}}), Status(429), Status(502), Status(504)});
  Tracer tracer({});
  RecordOne(&tracer, "once");
  {
    OtlpExporter exporter(Options(collector.endpoint()), &tracer);
    ASSERT_TRUE(collector.Await([](const Collector& c) { return c.calls == 5; }));
  }
  EXPECT_EQ(collector.names, std::vector<std::string>{"once"});
  EXPECT_EQ(collector.bodies.size(), 1u);
}

// A call that waited for the connection's end would be late, and the batch would be sent again.
TEST(OtlpExporter, ABatchIsSentOnceToACollectorThatKeepsConnections) {
  const http::testing::RawServer collector("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  Tracer tracer({});
  RecordOne(&tracer, "once");
  OtlpExporterOptions options = Options({{"127.0.0.1", collector.port()}, "/v1/traces"});
  options.timeout = milliseconds(5'000);
  OtlpExporter exporter(options, &tracer);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (exporter.counts().exported == 0 && exporter.counts().retries == 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(exporter.counts().exported, 1u);
  EXPECT_EQ(exporter.counts().retries, 0u);
  EXPECT_EQ(collector.answered(), 1);
}

TEST(OtlpExporter, WaitsAsLongAsTheCollectorAsks) {
  Collector collector({Status(503, {{"Retry-After", "1"}})});
  Tracer tracer({});
  RecordOne(&tracer, "once");
  OtlpExporterOptions options = Options(collector.endpoint());
  options.longest_pause = milliseconds(20'000);
  const auto begin = std::chrono::steady_clock::now();
  OtlpExporter exporter(options, &tracer);
  ASSERT_TRUE(collector.Await([](const Collector& c) { return c.calls == 2; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(OtlpExporter, GivesUpWhatIsRefusedAndGoesOn) {
  Collector collector({Status(400), Status(404)});
  Tracer tracer({});
  for (const char* name : {"a", "b", "c"}) RecordOne(&tracer, name);
  OtlpExporterOptions options = Options(collector.endpoint());
  options.batch_spans_max = 1;
  OtlpExporter exporter(options, &tracer);
  ASSERT_TRUE(collector.Await([](const Collector& c) { return c.names.size() == 1; }));
  EXPECT_EQ(exporter.counts().failed, 2u);
  EXPECT_EQ(exporter.counts().retries, 0u);
}

TEST(OtlpExporter, CountsSpansOfAPartialSuccess) {
  opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse partial;
  partial.mutable_partial_success()->set_rejected_spans(2);
  Collector collector({Status(200, {}, partial.SerializeAsString()), Status(200, {}, "garbage")});
  Tracer tracer({});
  for (int i = 0; i < 3; ++i) RecordOne(&tracer, "span");
  OtlpExporterOptions options = Options(collector.endpoint());
  std::optional<OtlpExporter> exporter;
  exporter.emplace(options, &tracer);
  ASSERT_TRUE(collector.Await([](const Collector& c) { return c.calls == 1; }));
  RecordOne(&tracer, "span");
  ASSERT_TRUE(collector.Await([](const Collector& c) { return c.calls == 2; }));
  while (exporter->counts().exported < 2) std::this_thread::yield();
  EXPECT_EQ(exporter->counts().failed, 2u);
}

TEST(OtlpExporter, ABatchThatIsTooOldIsGivenUp) {
  std::deque<http::Response> always;
  for (int i = 0; i < 10'000; ++i) always.push_back(Status(503));
  Collector collector(std::move(always));
  Tracer tracer({});
  RecordOne(&tracer, "old");
  OtlpExporterOptions options = Options(collector.endpoint());
  options.retry_for = milliseconds(1);
  OtlpExporter exporter(options, &tracer);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (exporter.counts().failed == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(exporter.counts().failed, 1u);
}

TEST(OtlpExporter, SendsTheRestAtItsEnd) {
  Collector collector;
  Tracer tracer({});
  {
    OtlpExporterOptions options = Options(collector.endpoint());
    options.interval = std::chrono::hours(1);
    options.batch_spans_max = 2;
    OtlpExporter exporter(options, &tracer);
    for (int i = 0; i < 5; ++i) RecordOne(&tracer, "late");
  }
  EXPECT_EQ(collector.names.size(), 5u);
}

// Without a bound the first call alone would take an hour.
TEST(OtlpExporter, EndsThoughTheCollectorHangs) {
  Collector collector({Status(0), Status(0)});
  Tracer tracer({});
  RecordOne(&tracer, "a");
  {
    OtlpExporterOptions options = Options(collector.endpoint());
    options.timeout = std::chrono::hours(1);
    options.flush_for = milliseconds(50);
    OtlpExporter exporter(options, &tracer);
    ASSERT_TRUE(collector.Await([](const Collector& c) { return c.calls == 1; }));
    RecordOne(&tracer, "b");
  }
  EXPECT_TRUE(collector.names.empty());
  EXPECT_EQ(tracer.Queued(), 0u);
}

TEST(OtlpExporter, NobodyAtThePortIsAFailureOnly) {
  Tracer tracer({.queue_spans_max = 10});
  {
    OtlpExporterOptions options = Options({{"127.0.0.1", 1}, "/v1/traces"});
    OtlpExporter exporter(options, &tracer);
    for (int i = 0; i < 1000; ++i) RecordOne(&tracer, "span");
    EXPECT_LE(tracer.Queued(), 10u);
  }
  EXPECT_EQ(tracer.Queued(), 0u);
}

// The endpoint is an http:// one. The last test: what a process uses stays.
TEST(OtlpExporter, SendsPlainTextWhereTheProcessHasCertificates) {
  const std::string folder = tls::testing::TestFolder("exporter");
  tls::testing::Authority().Publish(folder);
  tls::Security security;
  security.certificates = *tls::Certificates::Open(folder, tls::Needs::kAuthority,
                                                   /*ask_clients=*/false, std::time(nullptr));
  tls::UseSecurity(std::move(security));
  Collector collector;
  Tracer tracer({});
  RecordOne(&tracer, "plain");
  OtlpExporter exporter(Options(collector.endpoint()), &tracer);
  ASSERT_TRUE(collector.Await([](const Collector& c) { return c.names.size() == 1; }));
}

}  // namespace
}  // namespace skein::services
