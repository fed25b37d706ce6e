// A cluster of words for tests of OrchestratorCore with a latency profile.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/core_testing.h"

namespace skein::scheduler {

inline constexpr int64_t kTestBlockTokens = 4;

inline KvShape TestShape() {
  return {.model_hash = "h",
          .dtype = "f32",
          .block_tokens = kTestBlockTokens,
          .num_layers = 1,
          .kv_heads = 1,
          .head_dim = 4,
          .block_bytes = 128};
}

// A millisecond a token on one instance, about 0.55 on two, 0.3 on four.
inline LatencyModel TestLatency() {
  return LatencyModel::Make(
             {{1, {0, 1e-3, 0, 0}}, {2, {1e-3, 0.55e-3, 0, 0}}, {4, {2e-3, 0.3e-3, 0, 0}}})
      .value();
}

class PlanningTest : public OrchestratorTest {
 protected:
  explicit PlanningTest(const char* policy = "tetris", double improvement_rate = 0) {
    Make(policy, improvement_rate);
  }

  void Make(const char* policy, double improvement_rate = 0,
            RollingTable rolling = RollingTable::Constant({})) {
    PlanningConfig planning{
        .latency = TestLatency(),
        .policy = *Policy::Parse(policy),
        .tables = {ImprovementRateTable::Constant(improvement_rate), std::move(rolling)},
        .node_size = 4};
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{
        .generation = 1, .planning = std::make_shared<PlanningConfig>(std::move(planning))});
  }
  void MakeWithoutProfile() {
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = 1});
  }

  WorkerIdentity Identity(Role role, uint64_t incarnation, const std::string& host = "a") {
    WorkerIdentity identity;
    identity.role = role;
    identity.model = "m";
    identity.endpoint = "w:" + std::to_string(incarnation);
    identity.incarnation = {incarnation};
    identity.shape = shape_;
    identity.total_blocks = total_blocks_;
    identity.host = host;
    identity.max_requests = max_requests_;
    if (role == Role::kPrefill) identity.comm_address = "c" + std::to_string(incarnation);
    return identity;
  }
  InstanceId Up(Role role, uint64_t incarnation, const std::string& host = "a") {
    const InstanceId id = Of<AnswerRegister>(Connect(role, incarnation, host))[0].reply.instance;
    incarnations_[id] = {incarnation};
    streams_[id] = {calls_};
    Report(id);
    return id;
  }
  // A worker's stream begins; it is streams_[...] of the instance if Up was called before.
  Effects Connect(Role role, uint64_t incarnation, const std::string& host = "a",
                  std::vector<HeldRequest> held = {}, std::vector<EndedRequest> ended = {}) {
    return Do(RegisterCalled{
        Call(), {Identity(role, incarnation, host), std::move(held), std::move(ended)}});
  }
  Effects Break(InstanceId instance) { return Do(WorkerDisconnected{streams_.at(instance)}); }
  std::vector<InstanceId> UpPrefill(int count) {
    std::vector<InstanceId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(Up(Role::kPrefill, ++last_incarnation_));
    return ids;
  }
  Effects Report(InstanceId instance, std::vector<HeldRequest> held = {},
                 std::vector<EndedRequest> ended = {}, bool draining = false) {
    WorkerLoad load;
    load.free_blocks = load.total_blocks = 100000;
    load.draining = draining;
    return Do(ReportCalled{Call(),
                           {.instance = instance,
                            .incarnation = incarnations_[instance],
                            .serial = ++serial_,
                            .load = load,
                            .held = std::move(held),
                            .ended = std::move(ended)}});
  }

  static std::shared_ptr<RequestSpec> Spec(uint64_t serial, int64_t tokens) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->prompt.assign(static_cast<size_t>(tokens), 1);
    spec->max_tokens = 4;
    spec->names = {"cmpl-" + std::to_string(serial), "req-" + std::to_string(serial)};
    return spec;
  }
  Effects Submit(uint64_t serial, int64_t tokens) { return Do(SubmitCalled{Spec(serial, tokens)}); }
  Effects Answer(const CallAssign& assign, absl::Status status = absl::OkStatus()) {
    return Do(AssignReplied{assign.instance,
                            assign.request.spec->id,
                            assign.request.epoch,
                            {std::move(status)},
                            assign.request.sequence});
  }
  Effects Answer(const CallReserve& reserve, absl::Status status = absl::OkStatus()) {
    return Do(ReserveReplied{
        reserve.instance, reserve.request.spec->id, reserve.request.epoch, {std::move(status)}});
  }
  Effects Begin(const CallAssign& lead) {
    return Do(BeginPrefillCalled{Call(),
                                 {lead.instance, {1}, lead.request.spec->id, lead.request.epoch}});
  }
  // Submits a prompt and brings it to the state `placed`.
  std::vector<CallAssign> Place(uint64_t serial, int64_t tokens) {
    return Placed(Of<CallAssign>(Submit(serial, tokens)));
  }
  std::vector<CallAssign> Placed(const std::vector<CallAssign>& assigns) {
    for (const CallAssign& assign : assigns) Answer(assign);
    const auto reserves = Of<CallReserve>(Begin(assigns.at(0)));
    EXPECT_EQ(reserves.size(), 1u);
    reserve_ = reserves.at(0);
    Answer(reserve_);
    return assigns;
  }
  HeldRequest Held(const CallAssign& assign, uint32_t chunks_done = 0, TimeUs running_us = -1) {
    return {assign.request.spec->id, assign.request.epoch, chunks_done, running_us};
  }
  EndedRequest Ended(const CallAssign& assign, absl::Status status = absl::OkStatus()) {
    return {assign.request.spec->id, assign.request.epoch,
            status.ok() ? FinishReason::kStop : FinishReason::kError, std::move(status)};
  }
  double QueueSeconds(InstanceId instance) {
    for (const InstanceStatus& status : core_->Snapshot(now_).instances) {
      if (status.instance == instance) return status.queue_seconds;
    }
    return -1;
  }

  int64_t total_blocks_ = 100000;  // of instances that come
  KvShape shape_ = TestShape();    // of instances that come
  int64_t max_requests_ = 0;       // of instances that come
  uint64_t last_incarnation_ = 100;
  CallReserve reserve_;  // of the last Place
  std::map<InstanceId, Incarnation> incarnations_;
  std::map<InstanceId, CallId> streams_;
};

}  // namespace skein::scheduler
