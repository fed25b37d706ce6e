// Which models the cluster can serve right now, asked of each cell's orchestrator twice a second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/orchestrator.pb.h"
#include "services/orchestrator_link/leader_calls.h"
#include "services/rpc/rpc.h"

namespace skein::services {

// What a model's instances do, all together, as the orchestrator said last.
struct ModelLoad {
  int64_t running = 0;          // requests
  int64_t waiting = 0;          // prompts that wait in prefill instances
  int64_t kv_blocks = 0;        // of the decode instances
  int64_t kv_blocks_held = 0;   // of these, by sequences
  int64_t kv_block_tokens = 0;  // tokens per block
};

// What the orchestrator of one cell says; of several, the one that leads.
class CellWatch {
 public:
  // `channels` outlives the watch. `cell`: as CellOrchestrators takes it.
  CellWatch(Channels* channels, std::string cell);
  ~CellWatch();

  // OK when the model has a prefill and a decode instance, as the orchestrator said at most a lease
  // of instances ago: by itself an answer that does not come, or comes late, says no more than a
  // report of an instance that does not come. Otherwise the message says what is missing and what
  // to do. Any thread.
  absl::Status Ready(const std::string& model) const;
  // The longest sequence of that model's instances; 0 when not known.
  int64_t MaxPositions(const std::string& model) const;
  // Zeros when not known.
  ModelLoad Load(const std::string& model) const;
  const std::string& cell() const { return calls_.cell(); }

 private:
  struct Live {
    uint64_t prefill = 0;
    uint64_t decode = 0;
    int64_t max_positions = 0;
    ModelLoad load;
  };

  void Run();
  void Ask();
  absl::Status Reached() const;                           // holds mutex_
  std::string MissingOf(const std::string& model) const;  // holds mutex_; "" when it is ready

  LeaderCalls calls_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;                             // guarded by mutex_
  std::chrono::steady_clock::time_point good_until_;  // of live_; guarded by mutex_
  std::map<std::string, Live> live_;                  // guarded by mutex_
  absl::Status last_;  // how the orchestrator was asked last; guarded by mutex_
  std::thread thread_;
};

class ModelWatch {
 public:
  // `channels` outlives the watch. `cells`: one at least, each as CellOrchestrators takes it.
  // `models`: what this router is configured to serve.
  ModelWatch(Channels* channels, const std::vector<std::string>& cells,
             std::vector<std::string> models);

  // OK when each model can be served by one cell at least. Any thread.
  absl::Status Ready() const;
  absl::Status Ready(const std::string& model) const;
  // The longest sequence that every cell's instances take; 0 when not known.
  int64_t MaxPositions(const std::string& model) const;
  // Of all cells together. Zeros when not known.
  ModelLoad Load(const std::string& model) const;

 private:
  const std::vector<std::string> models_;
  std::vector<std::unique_ptr<CellWatch>> cells_;
};

}  // namespace skein::services
