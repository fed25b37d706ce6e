// A cluster of words for tests of OrchestratorCore with a latency profile.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/held_digest.h"
#include "scheduler/orchestrator/testing/core_testing.h"

namespace skein::scheduler {

inline constexpr int64_t kTestBlockTokens = 4;

inline HandoffShape TestShape() {
  return {{.num_layers = 1,
           .kv_heads = 1,
           .head_dim = 4,
           .block_tokens = kTestBlockTokens,
           .dtype = DType::kF32},
          "h"};
}

// A millisecond a token on one instance, about 0.55 on two, 0.3 on four.
inline LatencyModel TestLatency() {
  return LatencyModel::Make(
             {{1, {0, 1e-3, 0, 0}}, {2, {1e-3, 0.55e-3, 0, 0}}, {4, {2e-3, 0.3e-3, 0, 0}}})
      .value();
}

// The same, and in TP half a millisecond or more less; TP 4 is slower for long chunks.
inline LatencyModel TensorTestLatency() {
  const LatencyModel plain = TestLatency();
  std::map<int, SpCoefficients> sizes;
  for (const int sp : plain.sp_sizes()) sizes[sp] = plain.CoefficientsAt(plain.IndexOf(sp));
  return LatencyModel::Make(sizes, {{2, 2, {0.5e-3, 0.55e-3, 0, 0}},
                                    {4, 2, {1.5e-3, 0.3e-3, 0, 0}},
                                    {4, 4, {0, 0.31e-3, 0, 0}}})
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
        .latency = latency_,
        .policy = *Policy::Parse(policy),
        .tables = {ImprovementRateTable::Constant(improvement_rate), std::move(rolling)},
        .node_size = node_size_};
    core_ = std::make_unique<OrchestratorCore>(
        OrchestratorConfig{.generation = 1,
                           .planning = std::make_shared<PlanningConfig>(std::move(planning)),
                           .formations = formations_});
  }
  void MakeWithoutProfile() {
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = 1});
  }

  WorkerIdentity Identity(Role role, uint64_t incarnation, const std::string& node = "a") {
    WorkerIdentity identity;
    identity.role = role;
    identity.model = "m";
    identity.endpoint = "w:" + std::to_string(incarnation);
    identity.incarnation = {incarnation};
    identity.shape = shape_;
    identity.total_blocks = total_blocks_;
    identity.node = node;
    identity.max_requests = max_requests_;
    identity.comm_address = "c" + std::to_string(incarnation);
    return identity;
  }
  InstanceId Up(Role role, uint64_t incarnation, const std::string& node = "a") {
    const InstanceId id = Of<AnswerRegister>(Connect(role, incarnation, node))[0].reply.instance;
    incarnations_[id] = {incarnation};
    streams_[id] = {calls_};
    Report(id);
    return id;
  }
  // A worker's stream begins; it is streams_[...] of the instance if Up was called before.
  Effects Connect(Role role, uint64_t incarnation, const std::string& node = "a",
                  std::vector<HeldRequest> held = {}, std::vector<EndedRequest> ended = {}) {
    return Do(RegisterCalled{Call(),
                             {Identity(role, incarnation, node), std::move(held), std::move(ended),
                              LoadOf(/*draining=*/false)}});
  }
  WorkerLoad LoadOf(bool draining) const {
    WorkerLoad load;
    load.total_blocks = 100000;
    load.free_blocks = free_blocks_;
    load.draining = draining;
    load.step_age_us = step_age_us_;
    load.step_estimate_us = step_estimate_us_;
    return load;
  }
  Effects Break(InstanceId instance) { return Do(WorkerDisconnected{streams_.at(instance)}); }
  std::vector<InstanceId> UpPrefill(int count) {
    std::vector<InstanceId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(Up(Role::kPrefill, ++last_incarnation_));
    return ids;
  }
  // A full one.
  Effects Report(InstanceId instance, std::vector<HeldRequest> held = {},
                 std::vector<EndedRequest> ended = {}, bool draining = false) {
    const uint64_t digest = DigestOf(held);
    return Do(ReportCalled{Call(),
                           {.instance = instance,
                            .incarnation = incarnations_[instance],
                            .serial = ++serial_,
                            .load = LoadOf(draining),
                            .held = std::move(held),
                            .full = true,
                            .ended = std::move(ended),
                            .held_digest = digest}});
  }

  static std::shared_ptr<RequestHead> Spec(uint64_t serial, int64_t tokens) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->prompt_tokens = tokens;
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
  // The lead asks for a decode instance.
  Effects Ask(const CallAssign& lead, InstanceId refused_by = {},
              absl::Status why = absl::OkStatus()) {
    return Do(PlaceDecodeCalled{Call(),
                                {.instance = lead.instance,
                                 .incarnation = {1},
                                 .id = lead.request.spec->id,
                                 .epoch = lead.request.epoch,
                                 .refused_by = refused_by,
                                 .why = std::move(why)}});
  }
  // The instance with which a lead's question was answered; 0: none was.
  static InstanceId PlacedAt(const Effects& effects) {
    const auto answers = Of<AnswerPlaceDecode>(effects);
    return answers.empty() ? InstanceId{} : answers[0].reply.placed.decode;
  }
  // The decode instance took the blocks of the plan.
  Effects Opened(InstanceId decode, const CallAssign& lead) {
    return Do(TransferOpened{decode, lead.request.spec->id, lead.request.epoch});
  }
  // Submits a prompt and brings it to the state `placed`.
  std::vector<CallAssign> Place(uint64_t serial, int64_t tokens) {
    return Placed(Of<CallAssign>(Submit(serial, tokens)));
  }
  std::vector<CallAssign> Placed(const std::vector<CallAssign>& assigns) {
    for (const CallAssign& assign : assigns) Answer(assign);
    const CallAssign& lead = assigns.at(0);
    opened_at_ =
        lead.request.placed.has_value() ? lead.request.placed->decode : PlacedAt(Ask(lead));
    EXPECT_NE(opened_at_, InstanceId{});
    Opened(opened_at_, lead);
    return assigns;
  }
  HeldRequest Held(const CallAssign& assign, uint32_t chunks_done = 0, TimeUs running_us = -1) {
    return {.id = assign.request.spec->id,
            .epoch = assign.request.epoch,
            .chunks_done = chunks_done,
            .chunk_running_us = running_us,
            .chunks_known = static_cast<uint32_t>(assign.request.chunks.size())};
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

  LatencyModel latency_ = TestLatency();  // of cores that are made
  int node_size_ = 4;                     // likewise
  int64_t total_blocks_ = 100000;         // of instances that come
  HandoffShape shape_ = TestShape();      // of instances that come
  orchestrator::FormationConfig formations_ = {};
  int64_t max_requests_ = 0;      // of instances that come
  int64_t free_blocks_ = 100000;  // as they report
  TimeUs step_age_us_ = 0;        // as they report
  TimeUs step_estimate_us_ = 0;   // as they report
  uint64_t last_incarnation_ = 100;
  InstanceId opened_at_;  // of the last Placed
  std::map<InstanceId, Incarnation> incarnations_;
  std::map<InstanceId, CallId> streams_;
};

}  // namespace skein::scheduler
