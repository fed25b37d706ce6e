// What a router tells the orchestrator of itself: that it is there, its load, how its requests
// ended; and what operators tell the router by way of the answer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proto/orchestrator.pb.h"
#include "services/base/rpc.h"

namespace skein::services {

// Requests that have ended, on their way to the orchestrator. Bounded: the oldest go first.
// Thread-safe; its owner and the one who fills it may go in any order.
class EndedRequests {
 public:
  void Add(v1::RouterEnded ended);

 private:
  friend class OrchestratorReports;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::RouterEnded> ended_;  // guarded by mutex_
  bool stopping_ = false;              // guarded by mutex_
};

class OrchestratorReports {
 public:
  struct Self {
    v1::RouterReport identity;                    // all that does not change
    std::function<void(v1::RouterReport*)> load;  // fills in the rest; called on a thread of ours
    std::function<void(bool)> drain;              // an operator's order; may come again and again
  };
  // Reports at least twice a second, and soon after a request ended. `channels` outlives it.
  OrchestratorReports(Channels* channels, std::string orchestrator, Self self,
                      std::shared_ptr<EndedRequests> ended);
  // Sends a final report, with which the router leaves.
  ~OrchestratorReports();

  // As MembershipCalls' in services/worker: whether this router may drain, and an order that came
  // to it itself. Any thread.
  absl::Status MayDrain();
  void OrderDrain(bool drain);

 private:
  void Run();
  void Report(bool leaving);
  absl::Status CallDrain(bool undo, bool force);
  void Tell();

  Channels* const channels_;
  const std::string orchestrator_;
  const Self self_;
  const int64_t started_us_;
  const std::shared_ptr<EndedRequests> ended_;
  std::optional<bool> order_;  // untold; guarded by ended_->mutex_
  uint64_t orders_ = 0;        // counts them; guarded by ended_->mutex_
  uint64_t tried_ = 0;         // the latest that Tell tried; guarded by ended_->mutex_
  std::thread thread_;
};

}  // namespace skein::services
