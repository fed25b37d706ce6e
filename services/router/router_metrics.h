// What the router measures, under vLLM's names where vLLM has them. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "scheduler/router/router_core.h"
#include "services/base/metrics.h"

namespace skein::services {

class RouterMetrics {
 public:
  explicit RouterMetrics(Metrics* metrics) : metrics_(metrics) {}

  // The series of one model. References stay valid as long as the metrics.
  struct Model {
    prometheus::Histogram& ttft_s;
    prometheus::Histogram& inter_token_s;
    prometheus::Histogram& e2e_s;
    prometheus::Counter& prompt_tokens;
    prometheus::Counter& generation_tokens;
  };
  Model& Of(const std::string& model);

  // One choice ended: "stop", "length", "abort" (the client left) or "error".
  void CountEnd(const std::string& model, const std::string& reason);
  // One HTTP request to the API was answered.
  void CountAnswer(const std::string& path, int status);

  // A request to `path` had that many parameters that the API does not have.
  void CountUnknownParameters(const std::string& path, int64_t count);

  void Refresh(const scheduler::RouterSnapshot& snapshot, size_t connections);

 private:
  Metrics* const metrics_;
  std::mutex mutex_;
  std::map<std::string, Model> models_;  // guarded by mutex_
};

}  // namespace skein::services
