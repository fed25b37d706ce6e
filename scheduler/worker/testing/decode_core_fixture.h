// A DecodeCore that its test feeds with events: registered, with a clock that the test moves.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/base/testing/pass_until.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler::testing {

inline constexpr TimeUs kStepTimeoutUs = 200 * kSecondUs;

inline DecodeConfig DecodeTestConfig() {
  DecodeConfig config;
  config.membership.identity = Identity(Role::kDecode, 10);
  config.membership.report_spacing_us = 0;
  config.membership.report_spacing_per_request_us = 0;
  config.memory = "memory";
  config.lease_us = 1000;
  config.attach_lease_us = 5000;
  config.open_wait_us = 300;
  config.engine.step_timeout_us = kStepTimeoutUs;
  config.engine.last_words_us = 3000;
  config.launch_ahead = false;  // decode_ahead_test has it
  return config;
}

class DecodeCoreTest : public ::testing::Test {
 protected:
  using Effects = std::vector<DecodeEffect>;

  DecodeCoreTest() {
    Do(Tick{});
    Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000}});
  }
  Effects Do(const DecodeEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const EndedRequest& ended : report.request.ended) {
        ended_[ended.id] = ended.status;
        reasons_[ended.id] = ended.reason;
        if (ended.engine_failed) failed_under_.insert(ended.id);
        if (ended.unclaimed) unclaimed_.insert(ended.id);
      }
      for (const DecodeEffect& more :
           Do(ReportReplied{report.request.serial, {.elsewhere = elsewhere_}})) {
        effects.push_back(more);
      }
    }
    if (!writers_live_) return effects;
    for (const CloseGrant& closing : Of<CloseGrant>(effects)) {
      for (const DecodeEffect& more : Do(GrantClosed{closing.grant})) effects.push_back(more);
    }
    return effects;
  }
  Effects Until(TimeUs end) {
    Effects all;
    PassUntil(
        end, &now_, [this] { return core_.NextDeadline(); },
        [&] {
          for (const DecodeEffect& effect : Do(Tick{})) all.push_back(effect);
        });
    return all;
  }
  CallId Call() { return {++calls_}; }
  Effects Announce(SpecPtr spec, uint64_t epoch = 5) {
    return Do(AnnounceCalled{{spec, {epoch}, {{2}}}, absl::OkStatus()});
  }
  // Announces the request; then its first writer calls OpenTransfer.
  absl::Status Open(SpecPtr spec, uint64_t epoch = 5) {
    Announce(spec, epoch);
    return OpenTransfer(spec->id.serial, epoch).status;
  }
  OpenTransferReply OpenTransfer(uint64_t serial, uint64_t epoch = 5, uint64_t writer = 1) {
    OpenTransferRequest request{.id = {7, serial},
                                .epoch = {epoch},
                                .prefill = {writer},
                                .incarnation = {2},
                                .shape = DecodeTestConfig().membership.identity.shape};
    const auto answers = Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), request}));
    return answers.empty() ? OpenTransferReply{absl::UnknownError("not answered yet")}
                           : answers[0].reply;
  }
  absl::Status Renew(uint64_t serial, uint64_t writer = 1) {
    return Of<AnswerRenew>(Do(RenewCalled{Call(), {{7, serial}, {5}, {writer}}}))[0].reply.status;
  }
  Effects Commit(uint64_t serial, std::vector<int64_t> bytes = {256, 256}, int32_t token = 40,
                 uint64_t writer = 1) {
    return Do(CommitCalled{Call(),
                           {.id = {7, serial},
                            .epoch = {5},
                            .bytes_per_layer = std::move(bytes),
                            .has_token = token >= 0,
                            .token = token,
                            .payload = "zero",
                            .prompt_logprobs = "prompt",
                            .prefill = {writer},
                            .times = times_}});
  }
  void Abort(uint64_t serial, absl::Status reason, uint64_t writer = 1, uint64_t epoch = 5) {
    Do(AbortCalled{{{7, serial}, {epoch}, std::move(reason), {writer}, {2}}});
  }
  static absl::Status StatusOf(const Effects& commit) {
    return Of<AnswerCommit>(commit)[0].reply.status;
  }
  Effects Attach(uint64_t serial, uint64_t call, uint64_t epoch = 5) {
    return Do(AttachCalled{{call}, {7, serial}, {epoch}});
  }
  Effects AttachAhead(uint64_t serial, uint64_t call, uint64_t epoch = 5) {
    return Do(AttachCalled{{call}, {7, serial}, {epoch}, /*ahead=*/true});
  }
  Effects Step(int32_t token, size_t sequences = 1) {
    return Do(StepDone{++step_, {}, std::vector<StepResult>(sequences, {token, "p", ""})});
  }
  void Order(bool drain) { Do(OrderDrain{drain}); }
  int64_t Held() { return core_.Snapshot(now_).blocks.held; }

  TimeUs now_ = 0;
  uint64_t calls_ = 1000;
  uint64_t step_ = 0;
  std::map<RequestId, absl::Status> ended_;
  std::map<RequestId, FinishReason> reasons_;
  std::set<RequestId> failed_under_;
  std::set<RequestId> unclaimed_;
  bool writers_live_ = true;  // their grants are closed at once
  PrefillTimes times_;        // what the next Commit tells
  PoolRoom elsewhere_;        // what each report is answered with
  DecodeCore core_{DecodeTestConfig()};
};

}  // namespace skein::scheduler::testing
