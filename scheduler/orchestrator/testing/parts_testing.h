// The parts of OrchestratorCore without the core: what it shares among them, and ends of requests
// that are only noted. For tests of one part. Without a PlanningConfig plans are plain: on one
// instance each.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/orchestrator/replanner.h"
#include "scheduler/orchestrator/router_side.h"
#include "scheduler/orchestrator/worker_side.h"

namespace skein::scheduler::orchestrator {

class PartsTest : public ::testing::Test, public RequestEnds {
 protected:
  static constexpr TimeUs kLeaseUs = 3 * kSecondUs;
  static constexpr TimeUs kPlaceDecodeWaitUs = 5 * kSecondUs;
  static constexpr int kReplansMax = 2;

  explicit PartsTest(std::shared_ptr<const PlanningConfig> planning = nullptr,
                     FormationConfig formations = {})
      : formation_config_(std::move(formations)), pools_(std::move(planning), &registry_) {}

  // An end erases the request, as the core's does.
  void CloseByRouter(Request& request) override { End(request, "closed"); }
  void Fail(Request& request, const absl::Status& why) override {
    End(request, "failed: " + std::string(why.message()));
  }
  void Finish(Request& request, FinishReason) override { End(request, "finished"); }
  void Replan(Request& request, const absl::Status& why) override {
    replanner_.Replan(request, why, now_);
  }
  void End(Request& request, const std::string& how) {
    ends_.push_back(std::to_string(request.spec->id.serial) + " " + how);
    decode_.Answer(request, absl::NotFoundError("the request has ended"));
    prefill_.ForgetPlan(request, now_);
    decode_.ForgetPlan(request);
    replanner_.Forget(request.spec->id);
    longs_.Forget(request);
    sharing_.Forget(request);
    sharing_.FirstEnded(request.spec->id);
    requests_.Erase(request);
  }
  void TearDown() override {
    for (const absl::Status& status :
         {requests_.CheckInvariants(), registry_.CheckInvariants(), decode_.CheckInvariants(),
          prefill_.CheckInvariants(), replanner_.CheckInvariants(), workers_.CheckInvariants(),
          groups_.CheckInvariants(registry_), formations_.CheckInvariants(),
          sharing_.CheckInvariants(), longs_.CheckInvariants()}) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  // An instance of 10 blocks of 4 tokens registers, over stream `incarnation`.
  InstanceId Join(Role role, uint64_t incarnation, std::vector<HeldRequest> held = {}) {
    RegisterRequest hello;
    hello.identity = {.role = role,
                      .model = "m",
                      .endpoint = "w:" + std::to_string(incarnation),
                      .incarnation = {incarnation},
                      .shape = {{.num_layers = 1,
                                 .kv_heads = 1,
                                 .head_dim = 4,
                                 .block_tokens = 4,
                                 .dtype = DType::kF32},
                                "h"},
                      .total_blocks = 10,
                      .max_positions = 0,
                      .details = "",
                      .node = "a",
                      .comm_address = "c" + std::to_string(incarnation),
                      .max_batch_tokens = 8};
    hello.load.free_blocks = hello.load.total_blocks = 10;
    hello.held = std::move(held);
    hello.stream = ++hellos_;
    workers_.Connect({{incarnation}, std::move(hello)}, {numbers_.generation(), {1}}, now_);
    return registry_.FindConnected({incarnation})->id;
  }
  // A request of so many tokens and 4 to come that is planned.
  Request& Submit(uint64_t serial, int64_t prompt_tokens = 4, const std::string& tenant = "") {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->prompt_tokens = prompt_tokens;
    spec->max_tokens = 4;
    spec->tenant = tenant;
    Request& request = requests_.Add(std::move(spec), now_, now_ + 600 * kSecondUs);
    effects_.clear();
    prefill_.Plan(request, now_);
    return request;
  }
  // Its lead took the plan.
  void Accept(const Request& request) {
    const Member& lead = request.members[0];
    workers_.On(AssignReplied{lead.instance, request.spec->id, request.epoch, {}, lead.assigned},
                now_);
  }
  // Its lead asks for a decode instance on the stream `call`.
  void Ask(const Request& request, uint64_t call, InstanceId refused_by = {},
           absl::Status why = absl::OkStatus()) {
    effects_.clear();
    decode_.On(PlaceDecodeCalled{{call},
                                 {.instance = request.members[0].instance,
                                  .incarnation = {1},
                                  .id = request.spec->id,
                                  .epoch = request.epoch,
                                  .refused_by = refused_by,
                                  .why = std::move(why)}},
               now_);
    decode_.PlaceWaiting();
  }
  void Open(const Request& request) {
    decode_.On(TransferOpened{request.decode, request.spec->id, request.epoch}, now_);
  }
  template <class T>
  std::vector<T> Of() const {
    std::vector<T> found;
    for (const OrchestratorEffect& effect : effects_) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }

  TimeUs now_ = 0;
  std::vector<OrchestratorEffect> effects_;
  std::vector<std::string> ends_;  // "<serial> <how>"
  FormationConfig formation_config_;
  PlanNumbers numbers_{1};
  RequestTable requests_;
  Registry registry_{1, kLeaseUs};
  PrefillPools pools_;
  GoneList gone_{10, 600 * kSecondUs};
  RefusedPeers refused_{10, 600 * kSecondUs};
  GroupControl groups_;
  GroupNeeds needs_;
  ExplanationLog explanations_{10};
  PlanSender sender_{&registry_, &effects_};
  SharedPrompts sharing_{{&requests_, &registry_, &numbers_, &sender_, &effects_}};
  DecodeFlow decode_{{.place_decode_wait_us = kPlaceDecodeWaitUs},
                     {.requests = &requests_,
                      .registry = &registry_,
                      .pools = &pools_,
                      .sender = &sender_,
                      .sharing = &sharing_,
                      .explanations = &explanations_,
                      .ends = this,
                      .effects = &effects_}};
  Formations formations_{formation_config_,
                         {.requests = &requests_,
                          .registry = &registry_,
                          .groups = &groups_,
                          .needs = &needs_,
                          .decode = &decode_,
                          .switches = explanations_.switches(),
                          .sender = &sender_,
                          .effects = &effects_}};
  PrefillFlow prefill_{1000,
                       kLeaseUs,
                       {.requests = &requests_,
                        .registry = &registry_,
                        .numbers = &numbers_,
                        .pools = &pools_,
                        .decode = &decode_,
                        .sender = &sender_,
                        .explanations = &explanations_,
                        .ends = this,
                        .effects = &effects_}};
  LongRequests longs_{10 * kSecondUs,
                      {.requests = &requests_,
                       .registry = &registry_,
                       .groups = &groups_,
                       .formations = &formations_,
                       .needs = &needs_,
                       .numbers = &numbers_,
                       .prefill = &prefill_,
                       .sender = &sender_,
                       .ends = this,
                       .effects = &effects_}};
  Replanner replanner_{{.replans_max = kReplansMax, .lease_us = kLeaseUs},
                       {.requests = &requests_,
                        .registry = &registry_,
                        .numbers = &numbers_,
                        .prefill = &prefill_,
                        .longs = &longs_,
                        .decode = &decode_,
                        .sender = &sender_,
                        .sharing = &sharing_,
                        .explanations = &explanations_,
                        .ends = this,
                        .effects = &effects_}};
  RouterSide routers_{kLeaseUs,
                      100,
                      {.requests = &requests_,
                       .registry = &registry_,
                       .explanations = &explanations_,
                       .gone = &gone_,
                       .ends = this,
                       .effects = &effects_}};
  WorkerSide workers_{{.lease_us = kLeaseUs},
                      {.requests = &requests_,
                       .registry = &registry_,
                       .numbers = &numbers_,
                       .prefill = &prefill_,
                       .decode = &decode_,
                       .replanner = &replanner_,
                       .routers = &routers_,
                       .sender = &sender_,
                       .explanations = &explanations_,
                       .gone = &gone_,
                       .refused = &refused_,
                       .groups = &groups_,
                       .needs = &needs_,
                       .formations = &formations_,
                       .ends = this,
                       .effects = &effects_}};
  uint64_t hellos_ = 0;  // of all instances
};

}  // namespace skein::scheduler::orchestrator
