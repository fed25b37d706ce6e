#include "services/router/jobs/line_runner.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/random_bits.h"
#include "services/log/log.h"
#include "services/rpc/message_limits.h"

namespace skein::services {
namespace {

v1::LineId IdOf(const std::pair<std::string, uint64_t>& key) {
  v1::LineId id;
  id.set_job(key.first);
  id.set_line(key.second);
  return id;
}

// A result travels in one message.
constexpr size_t kResultBytesMax = kMessageBytesMax - (64 << 10);

// What another try may change: no room, no instance, a router that stops, a deadline.
bool IsOfTheCluster(int status) { return status == 429 || status == 503 || status == 504; }

// `delay_us` doubled `times` times.
int64_t Doubled(int64_t delay_us, int64_t times, int64_t max_us) {
  return std::min(delay_us << std::min<int64_t>(times, 16), max_us);
}

uint64_t CountOf(const nlohmann::json& usage, const char* name) {
  const auto it = usage.find(name);
  return it != usage.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

void ReadUsage(const std::string& body, v1::RouterLines::Result* result) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object() || !json.contains("usage") || !json["usage"].is_object()) return;
  const nlohmann::json& usage = json["usage"];
  result->set_prompt_tokens(CountOf(usage, "prompt_tokens"));
  result->set_output_tokens(CountOf(usage, "completion_tokens"));
  const auto details = usage.find("prompt_tokens_details");
  if (details != usage.end() && details->is_object()) {
    result->set_cached_tokens(CountOf(*details, "cached_tokens"));
  }
}

http::Request RequestOf(const v1::OrchestratorLines::Order& order, const std::string& id) {
  http::Request request;
  request.method = "POST";
  request.path = order.endpoint();
  request.headers = {{"Content-Type", "application/json"}};
  request.body = order.body();
  request.id = id;
  return request;
}

}  // namespace

LineRunner::LineRunner(LineRunnerOptions options, JobsClient* jobs, Answer answer, Metrics* metrics)
    : options_(std::move(options)),
      jobs_(jobs),
      answer_(std::move(answer)),
      metrics_(metrics),
      work_(kInboxMax) {
  for (const char* outcome : {"completed", "failed", "returned", "cancelled"}) {
    CounterOf(outcome);
  }
  gate_->loop = &jobs_->loop();
  ShowRunning();
  work_.Start(
      "job-lines", [] { return INT64_MAX; }, [] {});
}

LineRunner::~LineRunner() { Stop(); }

void LineRunner::Gate::Post(Loop::Task task) {
  std::lock_guard lock(mutex);
  if (loop != nullptr) loop->Post(std::move(task));
}

void LineRunner::Start() {
  if (options_.lines_max == 0) return;
  jobs_->loop().Post([this] { Open(); });
}

void LineRunner::Stop() {
  jobs_->loop().RunAndWait([this] {
    GiveAllBack();
    if (stream_ != nullptr) stream_->Close();
    stream_.reset();
    ++streams_;
  });
  work_.Stop();
  std::lock_guard lock(gate_->mutex);
  gate_->loop = nullptr;
}

void LineRunner::SetDraining(bool draining) {
  jobs_->loop().Post([this, draining] {
    if (std::exchange(draining_, draining) == draining || stream_ == nullptr) return;
    LogInfo(draining ? "this router takes no further lines of jobs"
                     : "this router takes lines of jobs again",
            {{"held", static_cast<int64_t>(lines_.size())}});
    Reopen();
  });
}

int64_t LineRunner::Held() {
  int64_t held = 0;
  jobs_->loop().RunAndWait([this, &held] { held = static_cast<int64_t>(lines_.size()); });
  return held;
}

void LineRunner::Leave(std::chrono::milliseconds wait) {
  auto written = std::make_shared<std::promise<void>>();
  auto all_written = written->get_future();
  jobs_->loop().Post([this, written] {
    GiveAllBack();
    if (stream_ == nullptr || stream_->Writable()) return written->set_value();
    written_ = [written] { written->set_value(); };
  });
  all_written.wait_for(wait);
}

void LineRunner::GiveAllBack() {
  left_ = true;
  std::vector<std::pair<Key, uint64_t>> running;
  for (const auto& [key, line] : lines_) {
    if (!line.result.has_result()) running.emplace_back(key, line.number);
  }
  for (const auto& [key, number] : running) Return(key, number, "this router stops");
}

// ---- the stream ----

void LineRunner::Open() {
  if (left_) return;
  jobs_->BeginRound();
  OpenAt(jobs_->Current());
}

void LineRunner::Reopen() {
  if (stream_ != nullptr) stream_->Close();
  stream_.reset();
  OpenAt(jobs_->Current());
}

void LineRunner::OpenAt(const std::string& endpoint) {
  const uint64_t number = ++streams_;
  lease_us_ = 0;
  const std::shared_ptr<JobsClient::Stub> stub = jobs_->StubOf(endpoint);
  stream_ = Stream::Open(
      JobsClient::kPeer, jobs_->calls(),
      [this](std::function<void()> hook) { jobs_->loop().Post(std::move(hook)); },
      {.message =
           [this, number](const v1::OrchestratorLines& message) {
             if (number == streams_) Take(message);
           },
       .ended =
           [this, number, endpoint](const absl::Status& status) {
             if (number == streams_) StreamEnded(endpoint, status);
           },
       .writable =
           [this] {
             if (written_) std::exchange(written_, nullptr)();
           }},
      [stub](auto* context, auto* reactor) { stub->async()->ComputeLines(context, reactor); });
  v1::RouterLines message;
  v1::RouterLines::Hello& hello = *message.mutable_hello();
  hello.set_router(options_.router);
  hello.set_room(draining_ || left_ ? 0 : static_cast<uint32_t>(options_.lines_max));
  for (const auto& [key, line] : lines_) *hello.add_held() = IdOf(key);
  stream_->Write(std::move(message));
  for (const auto& [key, line] : lines_) {
    if (line.result.has_result()) stream_->Write(line.result);
  }
}

void LineRunner::StreamEnded(const std::string& endpoint, const absl::Status& status) {
  stream_.reset();
  ++streams_;
  if (written_) std::exchange(written_, nullptr)();
  if (left_) return;
  const absl::Status why =
      status.ok() ? absl::UnavailableError("the orchestrator ended the stream") : status;
  if (jobs_->Failed(endpoint, why)) return OpenAt(jobs_->Current());
  if (unreached_.Admit(std::string(why.message()), MonotonicUs())) {
    LogInfo("no lines of jobs are taken",
            {{"orchestrator", endpoint}, {"reason", std::string(why.message())}});
  }
  OpenLater();
}

void LineRunner::OpenLater() {
  const int64_t pause_us = Doubled(options_.reopen_us, opens_in_row_++, options_.reopen_max_us);
  jobs_->After(pause_us, [this, number = streams_] {
    if (number == streams_) Open();
  });
}

void LineRunner::Send(v1::RouterLines message) {
  if (stream_ != nullptr) stream_->Write(std::move(message));
}

void LineRunner::StayAlive(uint64_t stream) {
  if (stream != streams_ || left_) return;
  Send({});
  jobs_->After(lease_us_ / 3, [this, stream] { StayAlive(stream); });
}

void LineRunner::Take(const v1::OrchestratorLines& message) {
  opens_in_row_ = 0;
  switch (message.message_case()) {
    case v1::OrchestratorLines::kLeaseUs: {
      unreached_.Clear();
      const bool first =
          std::exchange(lease_us_,
                        std::max<int64_t>(static_cast<int64_t>(message.lease_us()), 300'000)) == 0;
      if (first) jobs_->After(lease_us_ / 3, [this, stream = streams_] { StayAlive(stream); });
      return;
    }
    case v1::OrchestratorLines::kOrder:
      return TakeOrder(message.order());
    case v1::OrchestratorLines::kKept:
      return Forget({message.kept().job(), message.kept().line()});
    case v1::OrchestratorLines::kCancel: {
      const Key key = {message.cancel().job(), message.cancel().line()};
      const auto it = lines_.find(key);
      if (it == lines_.end()) return;
      if (!it->second.result.has_result()) CounterOf("cancelled").Increment();
      return Forget(key);
    }
    case v1::OrchestratorLines::MESSAGE_NOT_SET:
      return;
  }
}

// ---- lines ----

void LineRunner::TakeOrder(const v1::OrchestratorLines::Order& order) {
  const Key key = {order.line().job(), order.line().line()};
  if (left_) return;
  const auto [it, added] = lines_.try_emplace(key);
  if (!added) return;  // it runs, or its result is on its way
  Line& line = it->second;
  line.number = next_number_++;
  line.request_id = "batch_req_" + RandomHex();
  line.responder = std::make_shared<LineResponder>(
      [this, gate = gate_, key, number = line.number](http::Response response) {
        gate->Post([this, key, number, response = std::move(response)]() mutable {
          TakeAnswer(key, number, std::move(response));
        });
      });
  ShowRunning();
  if (static_cast<int64_t>(lines_.size()) > options_.lines_max || draining_) {
    line.responder->Cancel();
    return Return(key, line.number, "this router has no room");
  }
  auto request = std::make_shared<http::Request>(RequestOf(order, line.request_id));
  if (options_.caller) {
    auto caller = options_.caller(order.owner());
    if (!caller.ok()) return GiveBackForOwner(key, caller.status());
    request->caller = *std::move(caller);
  }
  if (options_.bodies != nullptr) {
    request->held = std::make_shared<http::ByteBudget::Lease>(options_.bodies);
    if (!request->held->Resize(request->body.size())) {
      http::Response full;
      full.status = 429;
      full.error = "the router's limit of held bytes is reached";
      return line.responder->Send(std::move(full));
    }
  }
  const int64_t within_us =
      static_cast<int64_t>(std::min<uint64_t>(order.within_us(), uint64_t{INT64_MAX}));
  work_.Post([this, request, responder = line.responder, within_us] {
    if (responder->wanted()) answer_(*request, responder, within_us);
  });
}

// The pause is always the same one: other jobs' lines, which the cluster answers, have no part in
// this.
void LineRunner::GiveBackForOwner(const Key& key, const absl::Status& why) {
  Line& line = lines_.at(key);
  line.responder->Cancel();
  const std::string reason(why.message());
  if (without_owner_.Admit(reason, MonotonicUs())) {
    LogWarning("a batch waits until its tenant is back, or its window is over",
               {{"job", key.first}, {"reason", reason}});
  }
  jobs_->After(options_.first_pause_us,
               [this, key, number = line.number, reason] { Return(key, number, reason); });
}

void LineRunner::TakeAnswer(const Key& key, uint64_t number, http::Response response) {
  const auto it = lines_.find(key);
  if (it == lines_.end() || it->second.number != number) return;
  Line& line = it->second;
  line.responder.reset();
  if (IsOfTheCluster(response.status)) {
    const std::string why = absl::StrCat(response.status, ": ", response.error);
    if (draining_ || left_) return Return(key, number, why);
    const int64_t pause_us =
        Doubled(options_.first_pause_us, returns_in_row_++, options_.pause_max_us);
    return jobs_->After(pause_us, [this, key, number, why] { Return(key, number, why); });
  }
  returns_in_row_ = 0;
  v1::RouterLines::Result& result = *line.result.mutable_result();
  *result.mutable_line() = IdOf(key);
  result.set_status_code(static_cast<uint32_t>(response.status));
  result.set_request_id(line.request_id);
  if (response.status == 200) ReadUsage(response.body, &result);
  if (response.body.size() > kResultBytesMax) {
    result.set_status_code(0);
    response.body = absl::StrCat(R"({"code": "answer_too_large", "message": "The answer has )",
                                 response.body.size(), " bytes; the limit in a batch is ",
                                 kResultBytesMax, R"(. Ask for fewer choices."})");
  }
  result.set_body(std::move(response.body));
  CounterOf(result.status_code() == 200 ? "completed" : "failed").Increment();
  ShowRunning();
  Send(line.result);
}

void LineRunner::Return(const Key& key, uint64_t number, const std::string& why) {
  const auto it = lines_.find(key);
  if (it == lines_.end() || it->second.number != number) return;
  CounterOf("returned").Increment();
  v1::RouterLines message;
  *message.mutable_returned()->mutable_line() = IdOf(key);
  message.mutable_returned()->set_why(why);
  Send(std::move(message));
  Forget(key);
}

void LineRunner::Forget(const Key& key) {
  const auto node = lines_.extract(key);
  if (node.empty()) return;
  if (node.mapped().responder != nullptr) node.mapped().responder->Cancel();
  ShowRunning();
}

// ---- metrics ----

prometheus::Counter& LineRunner::CounterOf(const char* outcome) {
  return metrics_->Counter("skein_router_job_lines_total",
                           "Lines of offline jobs that ended here, by outcome.",
                           {{"outcome", outcome}});
}

void LineRunner::ShowRunning() {
  const auto running = std::count_if(lines_.begin(), lines_.end(), [](const auto& line) {
    return !line.second.result.has_result();
  });
  metrics_
      ->Gauge("skein_router_job_lines_running", "Lines of offline jobs that are computed here now.")
      .Set(static_cast<double>(running));
}

}  // namespace skein::services
