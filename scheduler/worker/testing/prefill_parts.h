// The parts of a PrefillCore, put together as the core does it, each for its own test: no events,
// no order of their handling, no timers but those that a test asks for. Registered as instance 3,
// with a pool of 10 blocks of 4 tokens and steps of 4 tokens.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/worker/prefill/prefill_orders.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler::testing {

class PrefillPartsTest : public ::testing::Test {
 protected:
  static constexpr Epoch kEpoch{5};
  static constexpr InstanceId kDecode{4};

  PrefillPartsTest() {
    membership_.Due(
        0, true, [] { return WorkerLoad(); }, [] { return std::vector<HeldRequest>(); });
    membership_.On(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 0);
    place_calls_.SetConnected(true, 0);
  }

  // ---- the ways of a request ----

  absl::Status Assign(const SpecPtr& spec, Epoch epoch = kEpoch) {
    const uint64_t sequence = ++sequences_;
    effects_.clear();
    orders_.On(AssignCalled{{sequence}, {spec, epoch, {sequence}}});
    transfers_.AdmitQueued();
    Check();
    return Of<AnswerAssign>(effects_)[0].reply.status;
  }
  // Its question for a decode instance is answered, and the transfer opened there.
  PrefillRequest& Open(uint64_t serial) {
    transfers_.On(PlaceDecodeReplied{{7, serial}, kEpoch, {{}, {kEpoch, kDecode, "d:1"}}});
    kv_out_.On(OpenTransferReplied{{7, serial}, kEpoch, {{}, {{8}, {9}}, {}, "memory", 900}}, now_);
    transfers_.TakeOutcomes();
    Check();
    return requests_.at({7, serial});
  }
  void Cancel(uint64_t serial, Epoch epoch = kEpoch) {
    orders_.On(CancelCalled{{{7, serial}, epoch, "why"}});
    Check();
  }
  void Check() const {
    for (const absl::Status& status :
         {requests_.CheckInvariants(), sp_plans_.CheckInvariants(), place_calls_.CheckInvariants(),
          steps_.CheckInvariants(), kv_out_.CheckInvariants(), ends_.CheckInvariants(),
          transfers_.CheckInvariants(), orders_.CheckInvariants()}) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  // ---- what was told ----

  // The ends that the next report tells, by serial.
  std::map<uint64_t, EndedRequest> Ended() {
    std::map<uint64_t, EndedRequest> ended;
    const auto due = membership_.Due(
        now_, false, [] { return WorkerLoad(); }, [] { return std::vector<HeldRequest>(); });
    if (!due.has_value() || !std::holds_alternative<CallReport>(*due)) return ended;
    const ReportRequest& report = std::get<CallReport>(*due).request;
    for (const EndedRequest& one : report.ended) {
      EXPECT_TRUE(ended.emplace(one.id.serial, one).second) << one.id.serial << " ended twice";
    }
    membership_.On(ReportReplied{report.serial, {}}, now_);
    return ended;
  }

  static MembershipConfig MembershipOf() {
    MembershipConfig config;
    config.identity = Identity(Role::kPrefill, 10);
    config.report_spacing_us = 0;
    config.report_spacing_per_request_us = 0;
    return config;
  }

  TimeUs now_ = 0;
  uint64_t sequences_ = 0;
  std::vector<PrefillEffect> effects_;
  Membership membership_{MembershipOf()};
  PrefillRequests requests_{10, /*ahead=*/2, {.max_batch_tokens = 4}};
  SpPlans sp_plans_{{.incarnation = MembershipOf().identity.incarnation,
                     .block_tokens = 4,
                     .rank_tokens_max = 4,
                     .total_blocks = 10}};
  DecodePlaceCalls place_calls_{{.retry_us = 50, .give_up_us = 100'000},
                                [this](PlaceDecodeRequest request) {
                                  effects_.push_back(CallPlaceDecode{std::move(request)});
                                }};
  PrefillSteps steps_{{.max_batch_tokens = 4}, EngineWatchConfig(), RingStepLimits()};
  KvOut kv_out_{{.incarnation = MembershipOf().identity.incarnation,
                 .shape = MembershipOf().identity.shape,
                 .rpc_timeout_us = kSecondUs,
                 .acquire_timeout_us = 2 * kSecondUs,
                 .retry_us = 50,
                 .attempts = 3},
                [this](KvOutEffect effect) {
                  std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
                }};
  PrefillEnds ends_{kSecondUs,
                    /*keep_us=*/0,
                    {.now = &now_,
                     .requests = &requests_,
                     .sp_plans = &sp_plans_,
                     .place_calls = &place_calls_,
                     .steps = &steps_,
                     .kv_out = &kv_out_,
                     .membership = &membership_,
                     .effects = &effects_}};
  PrefillTransfers transfers_{{.now = &now_,
                               .requests = &requests_,
                               .sp_plans = &sp_plans_,
                               .place_calls = &place_calls_,
                               .steps = &steps_,
                               .kv_out = &kv_out_,
                               .membership = &membership_,
                               .ends = &ends_,
                               .effects = &effects_}};
  PrefillOrders orders_{{.max_requests = 4,
                         .max_sequence_tokens = 0,
                         .request_deadline_us = 600 * kSecondUs,
                         .join_wait_us = 5 * kSecondUs},
                        {.now = &now_,
                         .requests = &requests_,
                         .sp_plans = &sp_plans_,
                         .steps = &steps_,
                         .membership = &membership_,
                         .transfers = &transfers_,
                         .ends = &ends_,
                         .effects = &effects_}};
};

}  // namespace skein::scheduler::testing
