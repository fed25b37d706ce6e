// The parts of a DecodeCore, put together as the core does it, each for its own test: no events,
// no order of steps, no timers but those that a test asks for. Registered as instance 3, with a
// pool of 10 blocks of 4 tokens.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/worker/decode/prompt_sharing.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler::testing {

class DecodePartsTest : public ::testing::Test {
 protected:
  static constexpr TimeUs kLeaseUs = 1000;
  static constexpr TimeUs kOpenWaitUs = 300;
  static constexpr Incarnation kWriter{2};
  static constexpr Epoch kEpoch{5};

  DecodePartsTest() {
    membership_.Due(
        0, true, [] { return WorkerLoad(); }, [] { return std::vector<HeldRequest>(); });
    membership_.On(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000}}, 0);
  }

  // ---- the ways of a request ----

  static AnnounceCalled Announcement(const SpecPtr& spec, Epoch epoch = kEpoch) {
    return {{spec, epoch, {kWriter}}, absl::OkStatus()};
  }
  void Announce(const SpecPtr& spec, Epoch epoch = kEpoch) {
    orders_.On(Announcement(spec, epoch));
    Check();
  }
  static OpenTransferCalled OpenCall(uint64_t serial, Epoch epoch = kEpoch,
                                     Incarnation writer = kWriter) {
    return {{serial},
            {.id = {7, serial},
             .epoch = epoch,
             .prefill = {1},
             .incarnation = writer,
             .shape = Identity(Role::kDecode, 10).shape}};
  }
  // How its first OpenTransfer is answered; UNKNOWN: not yet.
  absl::Status Open(uint64_t serial, Epoch epoch = kEpoch, Incarnation writer = kWriter) {
    effects_.clear();
    opening_.On(OpenCall(serial, epoch, writer));
    Check();
    return Answer();
  }
  absl::Status Answer() {
    const auto answers = Of<AnswerOpenTransfer>(effects_);
    return answers.empty() ? absl::UnknownError("not answered") : answers[0].reply.status;
  }
  // Announced, opened, its KV whole: the phase is kReceiving still, as when the core takes it up.
  DecodeSequence& MakeWhole(const SpecPtr& spec) {
    Announce(spec);
    EXPECT_TRUE(Open(spec->id.serial).ok()) << Answer();
    const int64_t bytes = (PromptTokens(*spec) + 3) / 4 * 128;
    kv_in_.On(CommitCalled{{1},
                           {.id = spec->id,
                            .epoch = kEpoch,
                            .bytes_per_layer = {bytes, bytes},
                            .has_token = true,
                            .token = 40,
                            .payload = "",
                            .prompt_logprobs = "",
                            .prefill = {1},
                            .times = {}}},
              clock_.Listening());
    EXPECT_EQ(kv_in_.TakeOutcomes().size(), 1u);
    return sequences_.at(spec->id);
  }
  // It runs, with one token.
  DecodeSequence& Start(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens = 30,
                        const std::string& tenant = "") {
    const std::shared_ptr<RequestSpec> spec = Spec(serial, prompt_tokens, max_tokens);
    spec->tenant = tenant;
    DecodeSequence& sequence = MakeWhole(spec);
    sequences_.Run(sequence, "", {});
    sequences_.AddToken(sequence, 40, "");
    running_.Add(sequence, sequence.KnownTokens() - 1);
    ++clock_.now;  // so that the next one is younger
    Check();
    return sequence;
  }
  void Check() const {
    for (const absl::Status& status :
         {kv_in_.CheckInvariants(), sequences_.CheckInvariants(), running_.CheckInvariants(),
          ends_.CheckInvariants(), orders_.CheckInvariants(), opening_.CheckInvariants()}) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  // ---- what was told ----

  // The ends that the next report tells, by serial.
  std::map<uint64_t, EndedRequest> Ended() {
    std::map<uint64_t, EndedRequest> ended;
    clock_.now += kSecondUs;  // a report is due
    const auto due = membership_.Due(
        clock_.now, false, [] { return WorkerLoad(); }, [] { return std::vector<HeldRequest>(); });
    if (!due.has_value() || !std::holds_alternative<CallReport>(*due)) return ended;
    const ReportRequest& report = std::get<CallReport>(*due).request;
    for (const EndedRequest& one : report.ended) {
      EXPECT_TRUE(ended.emplace(one.id.serial, one).second) << one.id.serial << " ended twice";
    }
    membership_.On(ReportReplied{report.serial, {}}, clock_.now);
    return ended;
  }

  static MembershipConfig MembershipOf() {
    MembershipConfig config;
    config.identity = Identity(Role::kDecode, 10);
    config.report_spacing_us = 0;
    config.report_spacing_per_request_us = 0;
    return config;
  }

  DecodeClock clock_{.now = 0, .listening = ListeningClock(kLeaseUs)};
  std::vector<DecodeEffect> effects_;
  KvIn kv_in_{{.shape = Identity(Role::kDecode, 10).shape,
               .total_blocks = 10,
               .memory = "memory",
               .lease_us = kLeaseUs,
               .staging = {}},
              [this](RequestId id, Epoch epoch) { return orders_.WhyGone(id, epoch); },
              [this](KvInEffect effect) {
                std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
              }};
  DecodeSequences sequences_{[this](TokenEffect effect) {
    std::visit([this](auto& one) { effects_.push_back(std::move(one)); }, effect);
  }};
  BoundGroup group_{{},
                    kv_in_.pool(),
                    kv_in_.coming(),
                    [](int64_t) { return absl::OkStatus(); },
                    [](const BoundEffect&) {}};
  ExpectedStreams expected_streams_;
  Membership membership_{MembershipOf()};
  StepLoop steps_{EngineWatchConfig()};
  RunningBatch running_{
      BatchLimits(),
      /*launch_ahead=*/false,
      {.clock = &clock_, .kv_in = &kv_in_, .sequences = &sequences_, .membership = &membership_}};
  DecodeEnds ends_{{.clock = &clock_,
                    .kv_in = &kv_in_,
                    .sequences = &sequences_,
                    .expected_streams = &expected_streams_,
                    .running = &running_,
                    .membership = &membership_,
                    .steps = &steps_,
                    .effects = &effects_},
                   [this](RequestId id) { orders_.EndSharers(id); }};
  DecodeOrders orders_{600 * kSecondUs,
                       {.clock = &clock_,
                        .kv_in = &kv_in_,
                        .sequences = &sequences_,
                        .ends = &ends_,
                        .group = &group_,
                        .membership = &membership_}};
  TransferOpening opening_{{.open_wait_us = kOpenWaitUs,
                            .attach_lease_us = 5000,
                            .max_requests = 4,
                            .max_sequence_tokens = 0},
                           {.clock = &clock_,
                            .kv_in = &kv_in_,
                            .sequences = &sequences_,
                            .expected_streams = &expected_streams_,
                            .orders = &orders_,
                            .running = &running_,
                            .group = &group_,
                            .membership = &membership_,
                            .steps = &steps_,
                            .effects = &effects_}};
  PromptSharing sharing_{4,
                         {.kv_in = &kv_in_,
                          .sequences = &sequences_,
                          .orders = &orders_,
                          .opening = &opening_,
                          .running = &running_,
                          .ends = &ends_}};
};

}  // namespace skein::scheduler::testing
