// Puts a load on a server: sends each request when it is due, or when another has ended, and
// records the outcome. Nothing is dropped: each request that was due has a record.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "services/skeinctl/bench/dataset.h"
#include "services/skeinctl/bench/http_client.h"
#include "services/skeinctl/bench/record.h"
#include "services/skeinctl/bench/target.h"

namespace skein::services::bench {

struct RunOptions {
  // When each request is due, in seconds from the start, ascending. Empty: a closed loop; a request
  // is due when one of the previous `concurrency` has ended.
  std::vector<double> due_s;
  int64_t concurrency = 0;                     // limit of concurrent calls; 0: none
  std::chrono::milliseconds timeout{600'000};  // of each request, from its sending
  double duration_s = 0;  // no request is sent later; sent ones may end; 0: no limit
};

class Runner {
 public:
  // All outlive the runner. Calls `ended` after each request, and `over` when no more will be sent
  // and none is in progress.
  Runner(boost::asio::io_context* io, HttpClient* client, const Target& target,
         const std::vector<LoadRequest>& requests, RunOptions options, std::function<void()> ended,
         std::function<void()> over);

  // Runs the io_context until everything has ended. Records are in the order of the requests;
  // requests not sent because of `duration_s` or Cancel have none.
  std::vector<RequestRecord> Run();

  // Call on the loop. Sends no more requests and ends those in progress, with the error
  // "cancelled".
  void Cancel();
  bool cancelled() const { return cancelled_; }

 private:
  struct Flight;

  double NowS() const;
  bool MaySend() const;
  void SendDue();
  void TellIfOver();
  void Send(double intended_s);
  void OnEnd(const std::shared_ptr<Flight>& flight, CallEnd end, const std::string& why);

  boost::asio::io_context& io_;
  HttpClient& client_;
  const Target& target_;
  const std::vector<LoadRequest>& requests_;
  const RunOptions options_;
  const std::function<void()> ended_;
  const std::function<void()> over_;
  boost::asio::steady_timer timer_;
  std::chrono::steady_clock::time_point start_;
  std::optional<HttpCall> next_call_;  // prepared early, so that making it delays nothing
  size_t next_ = 0;
  int64_t running_ = 0;
  bool late_ = false;  // the next one is due after the duration
  bool cancelled_ = false;
  std::vector<RequestRecord> records_;  // by number
};

}  // namespace skein::services::bench
