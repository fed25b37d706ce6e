// State of a node's instances: of their processes, from the supervisor, and of their work, from
// their admin ports. Thread-safe.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "services/admin/admin_server.h"
#include "services/http/client.h"
#include "services/metrics/metrics.h"
#include "services/metrics/process_metrics.h"
#include "services/node/node_options.h"

namespace skein::services {

// One process, from the supervisor.
struct InstanceProcess {
  pid_t pid = 0;  // 0: not running
  int64_t starts = 0;
  std::string last_exit;
  std::string last_words;
  int64_t next_start_us = 0;
};

class InstanceView {
 public:
  InstanceView(const NodeOptions& options, std::vector<InstanceCommand> commands);
  ~InstanceView();

  void Set(size_t index, InstanceProcess process);  // called by the supervisor
  void Stopping();

  // Polls the instances twice a second from now on.
  void StartAsking();

  // For the admin pages.
  ProcessStatus Status() const;
  absl::Status Order(const DrainOrder& order);
  std::string MetricsText();
  void AddPages(http::Routes* routes);

 private:
  struct Instance {
    InstanceCommand command;
    InstanceProcess process;
    // The latest answer of its admin port; "": none.
    std::string status_json;
    std::string state, reason;
    bool started = false, safe = false;
    int64_t in_flight = 0, running = 0, waiting = 0, handoffs = 0, held_blocks = 0;

    bool ready() const { return state == "serving"; }
    bool Gone() const { return process.pid == 0; }
    void Forget();
  };

  void Run();
  void Ask(size_t index);
  void Take(size_t index, pid_t pid, const std::string& json);
  absl::StatusOr<http::Response> Call(size_t index, const char* method, const std::string& target,
                                      std::chrono::milliseconds timeout) const;
  static std::string WhyNotReady(const Instance& instance, int64_t now_us);
  static std::string JsonOf(size_t index, const Instance& instance, int64_t now_us);
  http::Response ReadyPage(const http::Request& request) const;

  const int64_t min_ready_;
  const std::string token_file_;
  mutable std::mutex mutex_;         // guards all below
  std::vector<Instance> instances_;  // its commands never change
  bool stopping_ = false;
  std::optional<bool> ordered_drain_;
  std::condition_variable stop_;
  bool stop_asking_ = false;
  Metrics metrics_;
  ProcessMetrics process_{"skein-node", &metrics_};
  std::thread thread_;
};

}  // namespace skein::services
