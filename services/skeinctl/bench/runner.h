// Puts a load on a server: sends each request when it is due, or when another has ended, and
// records what becomes of it. Nothing is dropped: each request that was due has a record.
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
  // When each request is due, seconds from the start, ascending; empty: a closed loop, in which a
  // request is due when one of the `concurrency` before it has ended.
  std::vector<double> due_s;
  int64_t concurrency = 0;                     // calls at a time at the most; 0: as many as are due
  std::chrono::milliseconds timeout{600'000};  // of each request, from its sending
  double duration_s = 0;  // nothing is sent later than that; what was sent ends; 0: no limit
};

class Runner {
 public:
  // All outlive the runner. `ended` is called after each request; `over` when no more are to be
  // sent and none is under way.
  Runner(boost::asio::io_context* io, HttpClient* client, const Target& target,
         const std::vector<LoadRequest>& requests, RunOptions options, std::function<void()> ended,
         std::function<void()> over);

  // Runs the io_context until all is over. The records in the order of the requests; those not sent
  // for `duration_s` or Cancel have none.
  std::vector<RequestRecord> Run();

  // From the loop: sends no more and ends what is under way, with the error "cancelled".
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
  std::optional<HttpCall> next_call_;  // made before it is due, so that making it delays nothing
  size_t next_ = 0;
  int64_t running_ = 0;
  bool late_ = false;  // the next one is due after the duration
  bool cancelled_ = false;
  std::vector<RequestRecord> records_;  // by number
};

}  // namespace skein::services::bench
