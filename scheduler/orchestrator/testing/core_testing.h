// What all tests of OrchestratorCore share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/base/testing/pass_until.h"
#include "scheduler/orchestrator/orchestrator_core.h"

namespace skein::scheduler {

class OrchestratorTest : public ::testing::Test {
 protected:
  using Effects = std::vector<OrchestratorEffect>;

  // Handles the event now; the invariants hold afterwards. A hello without a number gets the next.
  Effects Do(OrchestratorEvent event) {
    if (auto* hello = std::get_if<RegisterCalled>(&event)) Number(&hello->request.stream);
    if (auto* hello = std::get_if<RouterConnected>(&event)) Number(&hello->hello.stream);
    Effects effects = core_->Handle(event, now_);
    EXPECT_TRUE(core_->CheckInvariants().ok()) << core_->CheckInvariants();
    const OrchestratorSnapshot totals = core_->Totals();
    EXPECT_EQ(CountedByState(totals), totals.requests);
    return effects;
  }
  static int64_t CountedByState(const OrchestratorSnapshot& totals) {
    return totals.planning + totals.parked + totals.assigning + totals.assigned + totals.waiting +
           totals.reserving + totals.placed + totals.sharing;
  }
  // Time passes until then; the core gets every tick that it asks for, in time.
  Effects Until(TimeUs end) {
    Effects all;
    PassUntil(
        end, &now_, [this] { return core_->NextDeadline(); },
        [&] {
          for (OrchestratorEffect& effect : Do(OrchestratorTick{})) all.push_back(effect);
        });
    return all;
  }
  // The effects of one kind.
  template <class T>
  static std::vector<T> Of(const Effects& effects) {
    std::vector<T> found;
    for (const OrchestratorEffect& effect : effects) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }
  template <class T>
  static std::vector<T> Updates(const Effects& effects) {
    std::vector<T> found;
    for (const SendPlanUpdate& update : Of<SendPlanUpdate>(effects)) {
      if (const T* one = std::get_if<T>(&update.update)) found.push_back(*one);
    }
    return found;
  }
  CallId Call() { return CallId{++calls_}; }
  // The last word on each request that has ended in these effects.
  static std::vector<SendPlanUpdate> Ends(const Effects& effects) {
    std::vector<SendPlanUpdate> ends;
    for (SendPlanUpdate& update : Of<SendPlanUpdate>(effects)) {
      const bool last = std::holds_alternative<Failed>(update.update) ||
                        std::holds_alternative<PlanEnded>(update.update);
      if (last) ends.push_back(std::move(update));
    }
    return ends;
  }
  // A router's stream begins, with what it has; it is router_stream_ then.
  Effects RouterConnects(uint64_t router, std::vector<RouterRequest> requests = {},
                         Generation seen = {}) {
    RouterHello hello;
    hello.identity = {.router = router, .endpoint = "r:" + std::to_string(router), .host = "h"};
    hello.requests = std::move(requests);
    hello.seen = seen;
    router_stream_ = Call();
    return Do(RouterConnected{router_stream_, std::move(hello)});
  }
  // The request's client has gone.
  static RouterEnded Closed(RequestId id) {
    return {{.id = id, .how = RouterEnd::How::kClientGone}};
  }

  void Number(uint64_t* stream) {
    if (*stream == 0) *stream = ++hellos_;
  }

  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  uint64_t hellos_ = 0;
  uint64_t serial_ = 0;
  CallId router_stream_;
  std::unique_ptr<OrchestratorCore> core_;
};

}  // namespace skein::scheduler
