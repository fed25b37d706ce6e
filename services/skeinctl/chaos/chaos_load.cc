#include "services/skeinctl/chaos/chaos_load.h"

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "services/skeinctl/bench/http_client.h"
#include "services/skeinctl/chaos/load_mix.h"
#include "services/skeinctl/chaos/stream_reader.h"

namespace skein::services::chaos {
namespace {

namespace asio = boost::asio;
using bench::CallEnd;
using Clock = std::chrono::steady_clock;

constexpr auto kAfterFailure = std::chrono::milliseconds(200);  // before a client tries again
constexpr int kOk = 200;
constexpr int kUnavailable = 503;

const char* ErrorOf(CallEnd end) {
  switch (end) {
    case CallEnd::kConnect:
      return "connect";
    case CallEnd::kTimeout:
      return "timeout";
    case CallEnd::kCancelled:
      return "cancelled";
    default:
      return "connection lost";
  }
}

}  // namespace

int64_t RouterAmong(const std::vector<bench::Url>& routers, const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return -1;
  const std::string host = endpoint.substr(0, colon);
  const std::string port = endpoint.substr(colon + 1);
  int64_t found = -1;
  int64_t at_port = 0;
  for (size_t i = 0; i < routers.size(); ++i) {
    if (routers[i].port != port) continue;
    if (routers[i].host == host) return static_cast<int64_t>(i);
    found = static_cast<int64_t>(i);
    ++at_port;
  }
  return at_port == 1 ? found : -1;
}

// Everything but the constructor, Ask, RouterAt and NowS is called on the loop's thread.
class ChaosLoad::Loop {
 public:
  explicit Loop(LoadOptions options) : options_(std::move(options)), work_(io_.get_executor()) {
    for (const bench::Url& url : options_.routers) {
      clients_.push_back(std::make_unique<bench::HttpClient>(&io_));
      hosts_.push_back(absl::StrCat(url.host, ":", url.port));
    }
    bodies_.reserve(options_.requests.size());
    for (const StreamRequest& request : options_.requests) {
      bodies_.push_back(BodyOf(options_.model, request));
    }
  }

  void Replace(size_t index, StreamRequest request) {
    bodies_[index] = BodyOf(options_.model, request);
    options_.requests[index] = std::move(request);
  }

  absl::Status Resolve() {
    for (size_t i = 0; i < clients_.size(); ++i) {
      absl::Status resolved = clients_[i]->Resolve(options_.routers[i]);
      if (!resolved.ok()) return resolved;
    }
    return absl::OkStatus();
  }

  void Run() { io_.run(); }

  // Runs `fn` on the loop and waits for its result.
  template <typename Fn>
  auto Ask(Fn fn) {
    std::packaged_task<decltype(fn())()> task(std::move(fn));
    auto result = task.get_future();
    asio::post(io_, [&task] { task(); });
    return result.get();
  }

  void End() {
    sending_ = false;
    over_ = true;
    for (const auto& client : clients_) client->CancelAll();
    work_.reset();
  }

  void Start() {
    records_.clear();
    chains_.clear();
    start_ = Clock::now();
    ++round_;
    sending_ = true;
    for (int64_t i = 0; i < options_.streams; ++i) SendNext();
  }

  std::future<void> StopSending() {
    sending_ = false;
    stopped_ = std::promise<void>();
    stopping_ = true;
    auto future = stopped_.get_future();
    TellIfStopped();
    return future;
  }

  std::vector<StreamRecord> Take() {
    std::vector<StreamRecord> all(std::make_move_iterator(records_.begin()),
                                  std::make_move_iterator(records_.end()));
    records_.clear();
    return all;
  }

  // `ended` is called when it has.
  void SendAlone(size_t request, std::function<void(const StreamRecord&)> ended) {
    start_ = Clock::now();
    Send(StreamRecord{.request = request}, std::move(ended));
  }

  // `answered` gets the body, or the reason why there is none.
  void Post(const std::string& path, const std::string& body,
            std::function<void(absl::StatusOr<std::string>)> answered) {
    PostTo(0, path, body, std::move(answered));
  }

  void Probe(int64_t fault, int64_t chains) {
    for (int64_t chain = 0; chain < chains; ++chain) {
      chains_[{fault, chain}] = false;
      SendProbe(fault, chain);
    }
  }

  bool ProbesAnswered() const {
    for (const auto& [chain, answered] : chains_) {
      if (!answered) return false;
    }
    return true;
  }

  int64_t Running() const { return with_tokens_; }

  int64_t RouterAt(const std::string& endpoint) const {
    return RouterAmong(options_.routers, endpoint);
  }

  double NowS() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  struct Flight {
    explicit Flight(StreamRecord* to) : record(to) { reader.emplace(to); }
    StreamRecord* const record;
    std::optional<StreamReader> reader;
    size_t router = 0;     // tried now
    size_t tried = 1;      // routers tried
    bool counted = false;  // in with_tokens_
    std::function<void(const StreamRecord&)> ended;
  };

  void SendNext() {
    const auto request = static_cast<size_t>(next_++) % options_.requests.size();
    Send(StreamRecord{.request = request}, [this](const StreamRecord& record) {
      if (record.whole()) return Again(std::chrono::milliseconds(0), [this] { SendNext(); });
      Again(kAfterFailure, [this] { SendNext(); });
    });
  }

  // Of a request whose first token can be seen.
  void SendProbe(int64_t fault, int64_t chain) {
    auto request = static_cast<size_t>(next_++) % options_.requests.size();
    if (!options_.requests[request].streamed) request = (request + 1) % options_.requests.size();
    Send({.request = request, .probed_fault = fault, .probe_chain = chain},
         [this, fault, chain](const StreamRecord& record) {
           if (record.FirstTokenS() >= 0) return;
           Again(kAfterFailure, [this, fault, chain] { SendProbe(fault, chain); });
         });
  }

  // Calls `fn` after `time`, unless no more is to be sent then.
  void Again(std::chrono::milliseconds time, std::function<void()> fn) {
    auto timer = std::make_shared<asio::steady_timer>(io_, time);
    timer->async_wait(
        [this, timer, round = round_, fn = std::move(fn)](const boost::system::error_code& error) {
          if (!error && sending_ && round == round_) fn();
        });
  }

  void Send(StreamRecord record, std::function<void(const StreamRecord&)> ended) {
    record.sent_s = NowS();
    record.streamed = options_.requests[record.request].streamed;
    records_.push_back(std::move(record));
    auto flight = std::make_shared<Flight>(&records_.back());
    flight->ended = std::move(ended);
    flight->router = static_cast<size_t>(turn_++) % clients_.size();
    ++running_;
    if (!flight->record->streamed) Count(flight.get());
    Try(flight);
  }

  // On a connection of its own. Any server may close a kept one at the moment when a request is
  // sent on it, and nobody can tell then whether that was a fault.
  bench::HttpCall CallTo(size_t router, const std::string& path, const std::string& body) const {
    bench::HttpCall call{.method = "POST",
                         .target = options_.routers[router].path + path,
                         .headers = {{"Host", hosts_[router]},
                                     {"User-Agent", "skeinctl-chaos"},
                                     {"Connection", "close"},
                                     {"Content-Type", "application/json"}},
                         .body = body};
    if (!options_.api_key.empty()) {
      call.headers.emplace_back("Authorization", absl::StrCat("Bearer ", options_.api_key));
    }
    return call;
  }

  void PostTo(size_t router, const std::string& path, const std::string& body,
              std::function<void(absl::StatusOr<std::string>)> answered) {
    struct Got {
      int status = 0;
      std::string body;
    };
    auto got = std::make_shared<Got>();
    clients_[router]->Send(CallTo(router, path, body), options_.hung_after,
                           {.on_status = [got](int status) { got->status = status; },
                            .on_body = [got](std::string_view bytes) { got->body.append(bytes); },
                            .on_end =
                                [this, got, router, path, body, answered = std::move(answered)](
                                    CallEnd end, const std::string& why) {
                                  if (end == CallEnd::kDone && got->status == kOk)
                                    return answered(got->body);
                                  if (router + 1 < clients_.size() && !over_) {
                                    return PostTo(router + 1, path, body, answered);
                                  }
                                  answered(absl::UnavailableError(absl::StrCat(
                                      path, ": ", end == CallEnd::kDone ? got->body : why)));
                                }});
  }

  void Try(const std::shared_ptr<Flight>& flight) {
    flight->record->router = flight->router;
    bench::HttpCall call =
        CallTo(flight->router, PathOf(options_.requests[flight->record->request]),
               bodies_[flight->record->request]);
    clients_[flight->router]->Send(
        std::move(call), options_.hung_after,
        {.on_status = [flight](int status) { flight->reader->OnStatus(status); },
         .on_body = [this, flight](std::string_view bytes) { OnBody(flight, bytes); },
         .on_end = [this, flight](CallEnd end,
                                  const std::string& why) { OnEnd(flight, end, why); }});
  }

  void Count(Flight* flight) {
    flight->counted = true;
    ++with_tokens_;
  }

  void OnBody(const std::shared_ptr<Flight>& flight, std::string_view bytes) {
    flight->reader->OnBody(bytes, NowS());
    const StreamRecord& record = *flight->record;
    if (flight->counted || record.FirstTokenS() < 0) return;
    Count(flight.get());
    if (record.probed_fault >= 0) chains_[{record.probed_fault, record.probe_chain}] = true;
  }

  void OnEnd(const std::shared_ptr<Flight>& flight, CallEnd end, const std::string& why) {
    StreamRecord& record = *flight->record;
    const bool refused = end == CallEnd::kConnect ||
                         (end == CallEnd::kDone && flight->reader->status() == kUnavailable);
    if (refused && flight->tried < clients_.size() && !over_) {
      ++flight->tried;
      flight->router = (flight->router + 1) % clients_.size();
      flight->reader.emplace(&record);
      return Try(flight);
    }
    if (end == CallEnd::kDone) {
      flight->reader->OnEnd(NowS());
    } else {
      record.end_s = NowS();
      record.hung = end == CallEnd::kTimeout;
      record.error = ErrorOf(end);
      record.message = why;
    }
    if (flight->counted) --with_tokens_;
    --running_;
    flight->ended(record);
    TellIfStopped();
  }

  void TellIfStopped() {
    if (!stopping_ || running_ > 0) return;
    stopping_ = false;
    stopped_.set_value();
  }

  LoadOptions options_;
  std::vector<std::string> hosts_;   // by router
  std::vector<std::string> bodies_;  // by request
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::unique_ptr<bench::HttpClient>> clients_;  // by router
  Clock::time_point start_ = Clock::now();
  std::deque<StreamRecord> records_;                    // never moved: flights point into it
  std::map<std::pair<int64_t, int64_t>, bool> chains_;  // (fault, chain): it had a first token
  std::promise<void> stopped_;
  bool stopping_ = false;
  bool sending_ = false;
  bool over_ = false;
  int64_t round_ = 0;        // counts calls of Start
  int64_t next_ = 0;         // request sent next
  int64_t turn_ = 0;         // router tried first
  int64_t running_ = 0;      // requests that have not ended
  int64_t with_tokens_ = 0;  // those of them that have tokens, or are not streamed
};

ChaosLoad::ChaosLoad(LoadOptions options) : loop_(std::make_unique<Loop>(std::move(options))) {}

ChaosLoad::~ChaosLoad() {
  if (!thread_.joinable()) return;
  loop_->Ask([this] { loop_->End(); });
  thread_.join();
}

absl::Status ChaosLoad::Open() {
  absl::Status resolved = loop_->Resolve();
  if (resolved.ok()) thread_ = std::thread([this] { loop_->Run(); });
  return resolved;
}

void ChaosLoad::Replace(size_t index, StreamRequest request) {
  loop_->Ask([&] { loop_->Replace(index, std::move(request)); });
}

absl::StatusOr<StreamRecord> ChaosLoad::Alone(size_t request) {
  std::promise<StreamRecord> ended;
  loop_->Ask([&] {
    loop_->SendAlone(request, [&](const StreamRecord& record) { ended.set_value(record); });
  });
  StreamRecord record = ended.get_future().get();
  if (record.whole()) return record;
  const std::string why = absl::StrCat(
      "a request by itself failed: ", record.hung ? "no end" : record.error, ": ", record.message);
  return record.error == "HTTP 400" ? absl::InvalidArgumentError(why) : absl::UnavailableError(why);
}

absl::StatusOr<std::string> ChaosLoad::Post(const std::string& path, const std::string& body) {
  std::promise<absl::StatusOr<std::string>> answered;
  loop_->Ask([&] {
    loop_->Post(path, body,
                [&](absl::StatusOr<std::string> answer) { answered.set_value(std::move(answer)); });
  });
  return answered.get_future().get();
}

int64_t ChaosLoad::RouterAt(const std::string& endpoint) const { return loop_->RouterAt(endpoint); }

void ChaosLoad::Start() {
  loop_->Ask([this] { loop_->Start(); });
}

double ChaosLoad::NowS() const { return loop_->NowS(); }

int64_t ChaosLoad::Running() const {
  return loop_->Ask([this] { return loop_->Running(); });
}

void ChaosLoad::Probe(int64_t fault, int64_t chains) {
  loop_->Ask([=, this] { loop_->Probe(fault, chains); });
}

bool ChaosLoad::ProbesAnswered() const {
  return loop_->Ask([this] { return loop_->ProbesAnswered(); });
}

std::vector<StreamRecord> ChaosLoad::Stop() {
  loop_->Ask([this] { return loop_->StopSending(); }).get();
  return loop_->Ask([this] { return loop_->Take(); });
}

}  // namespace skein::services::chaos
