// A pool of prefill instances for tests of what plans for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/prefill/prefill_pools.h"

namespace skein::scheduler::orchestrator {

class PrefillPoolTest : public ::testing::Test {
 protected:
  explicit PrefillPoolTest(const char* policy = "tetris") : pools_(Planning(policy), &registry_) {}

  // A millisecond a token on one instance, about 0.55 on two.
  static std::shared_ptr<const PlanningConfig> Planning(const char* policy) {
    return std::make_shared<PlanningConfig>(PlanningConfig{
        .latency = *LatencyModel::Make({{1, {0, 1e-3, 0, 0}}, {2, {1e-3, 0.55e-3, 0, 0}}}),
        .policy = *Policy::Parse(policy),
        .tables = {ImprovementRateTable::Constant(0), RollingTable::Constant({})},
        .node_size = 4});
  }
  void TearDown() override {
    for (const absl::Status& status : {requests_.CheckInvariants(), registry_.CheckInvariants(),
                                       pools_.CheckInvariants(requests_)}) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  InstanceId Up(int64_t total_blocks = 100, const char* node = "a") {
    WorkerIdentity identity;
    identity.model = "m";
    identity.incarnation = {++last_};
    identity.endpoint = "w:" + std::to_string(last_);
    identity.shape = {{.num_layers = 1, .block_tokens = 4, .dtype = DType::kF32}, "h"};
    identity.total_blocks = total_blocks;
    identity.node = node;
    identity.comm_address = "c" + std::to_string(last_);
    const InstanceId id = registry_.Register({identity}, {last_}, 0)->id;
    return id;
  }
  Request& Submit(int64_t tokens) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, ++serial_};
    spec->model = "m";
    spec->prompt_tokens = tokens;
    return requests_.Add(std::move(spec), 0, 100 * kSecondUs);
  }
  // The request's plan: one chunk on these instances. Returns its estimated time.
  TimeUs Plan(Request* request, const std::vector<InstanceId>& instances) {
    request->epoch = {++epoch_};
    request->members.clear();
    for (const InstanceId instance : instances) request->members.push_back({.instance = instance});
    request->chunks = {{.tokens = PromptTokens(*request->spec),
                        .members = instances.size(),
                        .sequence = {epoch_}}};
    pools_.AddChunk(request, 0, /*now=*/0);
    return request->chunks[0].estimated_us;
  }
  PrefillPools::Pool* Pool() { return pools_.Of("m", requests_); }
  std::vector<double> Queue(TimeUs now = 0) { return pools_.QueueOf("m", Pool(), {}, now).queue_s; }

  Registry registry_{1, 3 * kSecondUs};
  RequestTable requests_;
  PrefillPools pools_;
  uint64_t last_ = 0;
  uint64_t serial_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace skein::scheduler::orchestrator
