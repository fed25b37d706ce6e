// A PrefillCore that its test feeds with events: registered, with a clock that the test moves.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler::testing {

inline constexpr TimeUs kStepTimeoutUs = 600'000;
inline constexpr TimeUs kLastWordsUs = 3000;

inline PrefillConfig PrefillTestConfig() {
  PrefillConfig config;
  config.membership.identity = Identity(Role::kPrefill, 10);
  config.membership.report_spacing_us = 0;
  config.membership.report_spacing_per_request_us = 0;
  config.batch = {.max_batch_tokens = 4};
  config.open_ahead = 2;
  config.retry_us = 50;
  config.place_decode_give_up_us = 100'000;
  config.engine.step_timeout_us = kStepTimeoutUs;
  config.engine.last_words_us = kLastWordsUs;
  return config;
}

class PrefillCoreTest : public ::testing::Test {
 protected:
  using Effects = std::vector<PrefillEffect>;

  PrefillCoreTest() {
    Do(Tick{});
    Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
  }
  Effects Do(const PrefillEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const EndedRequest& ended : report.request.ended) {
        ended_[ended.id] = ended.status;
        handoffs_[ended.id] = ended.handoff;
        if (ended.engine_failed) failed_under_.insert(ended.id);
      }
      for (const PrefillEffect& more : Do(ReportReplied{report.request.serial, {}})) {
        effects.push_back(more);
      }
    }
    return effects;
  }
  Effects Assign(SpecPtr spec, uint64_t sequence = 0, uint64_t epoch = 5) {
    return Do(AssignCalled{{++calls_}, {spec, {epoch}, {sequence == 0 ? calls_ : sequence}}});
  }
  static absl::Status StatusOf(const Effects& assign) {
    return Of<AnswerAssign>(assign)[0].reply.status;
  }
  // What it asked the orchestrator is answered.
  Effects Place(uint64_t serial) {
    return Do(PlaceDecodeReplied{{7, serial}, {5}, {{}, {{5}, {4}, "d:1"}}});
  }
  Effects Grant(uint64_t serial, size_t blocks = 2, TimeUs lease_us = 900) {
    std::vector<BlockId> granted;
    for (size_t i = 0; i < blocks; ++i) granted.push_back({static_cast<int32_t>(8 + i)});
    return Do(OpenTransferReplied{{7, serial}, {5}, {{}, granted, {}, "memory", lease_us}});
  }
  // Its transfer is opened.
  Effects Open(uint64_t serial, size_t blocks = 2, TimeUs lease_us = 900) {
    Effects effects = Place(serial);
    for (PrefillEffect& effect : Grant(serial, blocks, lease_us)) effects.push_back(effect);
    return effects;
  }
  Effects Step(int32_t token = 40, size_t sequences = 1) {
    return Do(StepDone{++step_, {}, std::vector<StepResult>(sequences, {token, "p", "l"})});
  }
  void Order(bool drain) { Do(OrderDrain{drain}); }
  int64_t Held() { return core_.Snapshot(now_).blocks.held; }

  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  uint64_t step_ = 0;
  std::map<RequestId, absl::Status> ended_;
  std::map<RequestId, HandoffPath> handoffs_;
  std::set<RequestId> failed_under_;
  PrefillCore core_{PrefillTestConfig()};
};

}  // namespace skein::scheduler::testing
