// A RouterCore that its test feeds with events: connected to one cell, with a clock that the test
// moves.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "scheduler/router/router_core.h"

namespace skein::scheduler::testing {

inline HeadPtr Spec(uint64_t serial, TimeUs deadline_us = 0) {
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, serial};
  spec->model = "m";
  spec->prompt_tokens = 3;
  spec->max_tokens = 4;
  spec->deadline_us = deadline_us;
  return spec;
}

inline constexpr Generation kGeneration{3, {1}};

class RouterCoreTest : public ::testing::Test {
 protected:
  explicit RouterCoreTest(const RouterConfig& config = {.max_streams = 2, .max_queued = 1})
      : core_(config) {
    Do(Join{{.router = 7, .endpoint = "r:1"}});
    Welcome();
  }
  std::vector<RouterEffect> Do(const RouterEvent& event) {
    std::vector<RouterEffect> effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    return effects;
  }
  // Brings a request to the state `placed`.
  void Place(uint64_t serial) {
    Do(Arrived{Spec(serial)});
    Do(PlanUpdateReceived{{7, serial}, Planned{{5}, {1}}});
    const auto effects = Do(PlanUpdateReceived{{7, serial}, Placed{{5}, {2}, "d:1"}});
    ASSERT_EQ(effects.size(), 1u);
    EXPECT_EQ(std::get<OpenTokens>(effects[0]).endpoint, "d:1");
  }
  std::vector<RouterEffect> Welcome(std::vector<RequestId> unknown = {},
                                    Generation generation = kGeneration) {
    return Do(Welcomed{
        {.generation = generation, .lease_us = 3 * kSecondUs, .unknown = std::move(unknown)}});
  }
  // The stream breaks, and the router opens another one, with this hello.
  RouterHello Break() {
    Do(LinkBroken{absl::UnavailableError("connection lost")});
    return Reopen();
  }
  RouterHello Reopen() {
    now_ += kSecondUs;
    const auto opened = Of<OpenLink>(Do(RouterTick{}));
    EXPECT_EQ(opened.size(), 1u);
    return opened.empty() ? RouterHello{} : opened[0].hello;
  }
  std::vector<RouterEffect> Token(uint64_t serial, int64_t index) {
    return Do(TokenReceived{{7, serial}, {5}, index, 42, "payload", ""});
  }
  template <class T>
  static std::vector<T> Of(const std::vector<RouterEffect>& effects) {
    std::vector<T> found;
    for (const RouterEffect& effect : effects) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }

  TimeUs now_ = 0;
  RouterCore core_;
};

}  // namespace skein::scheduler::testing
