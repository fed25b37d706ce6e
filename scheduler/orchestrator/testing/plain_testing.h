// A cluster of words for tests of OrchestratorCore without a latency profile: instances of 10
// blocks each, and plans of one instance.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/held_digest.h"
#include "scheduler/orchestrator/testing/core_testing.h"

namespace skein::scheduler {

inline constexpr uint64_t kGeneration = 1;
inline const HandoffShape kShape{
    {.num_layers = 1, .kv_heads = 1, .head_dim = 4, .block_tokens = 4, .dtype = DType::kF32}, "h"};

inline HeadPtr Spec(uint64_t serial, int64_t prompt_tokens = 4, int64_t max_tokens = 4) {
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, serial};
  spec->model = "m";
  spec->prompt_tokens = prompt_tokens;
  spec->max_tokens = max_tokens;
  return spec;
}

class OrchestratorCoreTest : public OrchestratorTest {
 protected:
  OrchestratorCoreTest() {
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = kGeneration});
  }

  RegisterReply Join(Role role, uint64_t incarnation, const HandoffShape& shape = kShape,
                     int64_t max_batch_tokens = 8) {
    WorkerIdentity identity{.role = role,
                            .model = "m",
                            .endpoint = "w:" + std::to_string(incarnation),
                            .incarnation = {incarnation},
                            .shape = shape,
                            .total_blocks = 10,
                            .max_positions = 0,
                            .details = "",
                            .max_batch_tokens = max_batch_tokens};
    return Of<AnswerRegister>(Do(RegisterCalled{Call(), {identity}}))[0].reply;
  }
  Effects Report(InstanceId instance, uint64_t incarnation, std::vector<HeldRequest> held = {},
                 std::vector<EndedRequest> ended = {}, int64_t free_blocks = 10) {
    WorkerLoad load;
    load.free_blocks = free_blocks;
    load.total_blocks = 10;
    const uint64_t digest = DigestOf(held);
    return Do(ReportCalled{Call(),
                           {.instance = instance,
                            .incarnation = {incarnation},
                            .serial = ++serial_,
                            .load = load,
                            .held = std::move(held),
                            .full = true,
                            .ended = std::move(ended),
                            .held_digest = digest}});
  }
  InstanceId Up(Role role, uint64_t incarnation) {
    const InstanceId id = Join(role, incarnation).instance;
    Report(id, incarnation);
    return id;
  }
  CallAssign Submit(uint64_t serial, int64_t prompt_tokens = 4, int64_t max_tokens = 4) {
    const Effects effects = Do(SubmitCalled{Spec(serial, prompt_tokens, max_tokens)});
    EXPECT_EQ(Of<CallAssign>(effects).size(), 1u);
    const CallAssign assign = Of<CallAssign>(effects)[0];
    Do(AssignReplied{
        assign.instance, {7, serial}, assign.request.epoch, {}, assign.request.sequence});
    return assign;
  }
  // Its lead asks for a decode instance.
  Effects Ask(const CallAssign& assign, InstanceId refused_by = {},
              absl::Status why = absl::OkStatus()) {
    return Do(PlaceDecodeCalled{Call(),
                                {.instance = assign.instance,
                                 .incarnation = {1},
                                 .id = assign.request.spec->id,
                                 .epoch = assign.request.epoch,
                                 .refused_by = refused_by,
                                 .why = std::move(why)}});
  }
  // The decode instance that was named with the plan took its blocks.
  Effects Opened(const CallAssign& assign) {
    return Do(TransferOpened{assign.request.placed->decode, assign.request.spec->id,
                             assign.request.epoch});
  }
  // Submits a request and brings it to the state `placed`.
  CallAssign Place(uint64_t serial) {
    const CallAssign assign = Submit(serial);
    Opened(assign);
    return assign;
  }
  // The instance with which the lead's question was answered; 0: it was not.
  static InstanceId PlacedAt(const Effects& effects) {
    const auto answers = Of<AnswerPlaceDecode>(effects);
    return answers.empty() ? InstanceId{} : answers[0].reply.placed.decode;
  }
};

}  // namespace skein::scheduler
