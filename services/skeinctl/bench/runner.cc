#include "services/skeinctl/bench/runner.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "services/skeinctl/bench/answer_reader.h"

namespace skein::services::bench {
namespace {

const char* KindOf(CallEnd end) {
  switch (end) {
    case CallEnd::kConnect:
      return "connect";
    case CallEnd::kTimeout:
      return "timeout";
    case CallEnd::kCancelled:
      return "cancelled";
    default:
      return "connection closed";
  }
}

}  // namespace

// A request that was sent and has not ended.
struct Runner::Flight {
  Flight(bool streaming, RequestRecord of) : record(std::move(of)), reader(streaming, &record) {}
  RequestRecord record;
  AnswerReader reader;
};

Runner::Runner(boost::asio::io_context* io, HttpClient* client, const Target& target,
               const std::vector<LoadRequest>& requests, RunOptions options,
               std::function<void()> ended, std::function<void()> over)
    : io_(*io),
      client_(*client),
      target_(target),
      requests_(requests),
      options_(std::move(options)),
      ended_(std::move(ended)),
      over_(std::move(over)),
      timer_(*io) {}

double Runner::NowS() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::vector<RequestRecord> Runner::Run() {
  records_.clear();
  start_ = std::chrono::steady_clock::now();
  SendDue();
  io_.restart();
  io_.run();
  std::sort(records_.begin(), records_.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return std::move(records_);
}

bool Runner::MaySend() const {
  const bool room = options_.concurrency == 0 || running_ < options_.concurrency;
  return !cancelled_ && room && next_ < requests_.size();
}

void Runner::SendDue() {
  while (MaySend()) {
    if (!next_call_.has_value()) next_call_ = CallFor(target_, requests_[next_]);
    const double now_s = NowS();
    const double due_s = options_.due_s.empty() ? now_s : options_.due_s[next_];
    late_ = options_.duration_s > 0 && due_s >= options_.duration_s;
    if (late_) break;
    if (due_s > now_s) {
      // One timer: a new wait replaces the previous one.
      timer_.expires_at(start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                     std::chrono::duration<double>(due_s)));
      timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) SendDue();
      });
      return;
    }
    Send(due_s);
  }
  TellIfOver();
}

void Runner::TellIfOver() {
  const bool none_left = cancelled_ || late_ || next_ == requests_.size();
  if (none_left && running_ == 0) over_();
}

void Runner::Send(double intended_s) {
  RequestRecord record;
  record.number = static_cast<int64_t>(next_);
  record.intended_s = intended_s;
  record.sent_s = NowS();
  record.input_tokens = requests_[next_].input_tokens;
  ++next_;
  ++running_;
  auto flight = std::make_shared<Flight>(target_.streaming, std::move(record));
  client_.Send(
      *std::exchange(next_call_, std::nullopt), options_.timeout,
      {.on_status = [flight](int status) { flight->reader.OnStatus(status); },
       .on_body = [this, flight](std::string_view bytes) { flight->reader.OnBody(bytes, NowS()); },
       .on_end = [this, flight](CallEnd end, const std::string& why) { OnEnd(flight, end, why); }});
}

void Runner::OnEnd(const std::shared_ptr<Flight>& flight, CallEnd end, const std::string& why) {
  if (end == CallEnd::kDone) {
    flight->reader.OnEnd(NowS());
  } else {
    flight->record.error = KindOf(end);
    flight->record.message = why;
    flight->record.end_s = NowS();
  }
  records_.push_back(std::move(flight->record));
  --running_;
  ended_();
  SendDue();
}

void Runner::Cancel() {
  cancelled_ = true;
  timer_.cancel();
  client_.CancelAll();
  TellIfOver();
}

}  // namespace skein::services::bench
