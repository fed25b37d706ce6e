#include "services/shell/loop.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

constexpr auto kNever = [] { return INT64_MAX; };

TEST(Loop, AFullInboxRefusesAtOnceAndCompletionsStillPass) {
  Loop loop(2);
  loop.Start("test", kNever, [] {});
  std::mutex gate;
  gate.lock();
  std::atomic<int> ran{0};
  std::atomic<bool> entered{false};
  ASSERT_TRUE(loop.TryPost([&] {
    entered = true;
    entered.notify_all();
    std::lock_guard lock(gate);
  }));
  entered.wait(false);
  EXPECT_TRUE(loop.TryPost([&] { ++ran; }));
  EXPECT_TRUE(loop.TryPost([&] { ++ran; }));
  EXPECT_FALSE(loop.TryPost([&] { ++ran; }));
  loop.Post([&] { ++ran; });
  gate.unlock();
  loop.Stop();
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(loop.TryPost([] {}));
}

TEST(Loop, WhatWasPostedBeforeTheStartRunsFirst) {
  Loop loop(2);
  std::vector<int> ran;
  loop.Post([&ran] { ran.push_back(1); });
  EXPECT_FALSE(loop.TryPost([] {}));
  EXPECT_FALSE(loop.RunAndWait([] {}));
  loop.Start("test", kNever, [] {});
  EXPECT_TRUE(loop.RunAndWait([&ran] { ran.push_back(2); }));
  loop.Stop();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST(Loop, WhatOthersAreAliveByHasRoomOfItsOwnAndRunsFirst) {
  Loop loop(1);
  loop.Start("test", kNever, [] {});
  std::mutex gate;
  gate.lock();
  std::atomic<bool> entered{false};
  std::string order;
  ASSERT_TRUE(loop.TryPost([&] {
    entered = true;
    entered.notify_all();
    std::lock_guard lock(gate);
  }));
  entered.wait(false);
  EXPECT_TRUE(loop.TryPost([&] { order += "request "; }));
  EXPECT_FALSE(loop.TryPost([&] { order += "request "; }));
  EXPECT_TRUE(loop.TryPostFirst([&] { order += "report "; }));
  EXPECT_FALSE(loop.TryPostFirst([&] { order += "report "; }));
  gate.unlock();
  loop.Stop();
  EXPECT_EQ(order, "report request ");
  EXPECT_FALSE(loop.TryPostFirst([] {}));
}

TEST(Loop, TicksWhenTheDeadlineIsReached) {
  Loop loop(8);
  int64_t deadline = MonotonicUs();
  std::atomic<int> ticks{0};
  loop.Start(
      "test", [&] { return deadline; },
      [&] {
        deadline = ++ticks < 3 ? MonotonicUs() + 100 : INT64_MAX;
        ticks.notify_all();
      });
  for (int seen = ticks; seen < 3; seen = ticks) ticks.wait(seen);
  bool inside = false;
  EXPECT_TRUE(loop.RunAndWait([&] { inside = true; }));
  EXPECT_TRUE(inside);
  EXPECT_EQ(ticks, 3);
}

}  // namespace
}  // namespace skein::services
