#include "services/shell/loop.h"

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

TEST(Loop, WhoHelpsAnIdleLoopRunsItsTaskItself) {
  Loop loop(2);
  loop.Start("test", kNever, [] {});
  ASSERT_TRUE(loop.RunAndWait([] {}));
  std::thread::id ran_on;
  // The loop's thread may still be busy with the end of its own round.
  while (ran_on != std::this_thread::get_id()) {
    std::promise<void> ran;
    loop.Post(
        [&] {
          ran_on = std::this_thread::get_id();
          ran.set_value();
        },
        Loop::kHelp);
    ran.get_future().wait();
  }
  loop.Stop();
}

TEST(Loop, TasksOfHelpersNeverOverlap) {
  Loop loop(1 << 20);
  int64_t ticks = 0;
  loop.Start(
      "test", [] { return MonotonicUs() + 50; }, [&ticks] { ++ticks; });
  constexpr int kThreads = 4, kTasks = 5000;
  int ran = 0;  // guarded by the loop alone
  std::vector<int> next(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        const Loop::Caller caller = (i + t) % 3 == 0 ? Loop::kBusy : Loop::kHelp;
        loop.Post(
            [&, t, i] {
              EXPECT_EQ(next[t]++, i) << "each thread's tasks run in order";
              ++ran;
              if (i % 7 == 0) loop.PostFirst([&ran] { ++ran; }, Loop::kHelp);
            },
            caller);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop.Stop();
  EXPECT_EQ(ran, kThreads * (kTasks + (kTasks + 6) / 7));
}

TEST(Loop, WhatIsDeferredRunsAtTheEndOfTheRound) {
  Loop loop(4);
  std::string order;
  loop.Post([&] {
    loop.Defer([&] {
      order += "first deferred, ";
      loop.Defer([&] { order += "its own, "; });
    });
    loop.Defer([&] { order += "second deferred, "; });
    loop.Post([&] { order += "the next round"; });
    order += "a task, ";
  });
  loop.Post([&] { order += "another, "; });
  loop.Start("test", kNever, [] {});
  loop.Stop();
  EXPECT_EQ(order, "a task, another, first deferred, second deferred, its own, the next round");
}

TEST(Loop, WhatATickDefersRunsBeforeTheNextTask) {
  Loop loop(4);
  bool deferred = false;
  int64_t deadline_us = 0;
  loop.Start(
      "test", [&] { return deadline_us; },
      [&] {
        deadline_us = INT64_MAX;
        loop.Defer([&] { deferred = true; });
      });
  ASSERT_TRUE(loop.RunAndWait([] {}));
  ASSERT_TRUE(loop.RunAndWait([&] { EXPECT_TRUE(deferred); }));
  loop.Stop();
}

TEST(Loop, AHelperAlsoRunsWhatComesMeanwhile) {
  Loop loop(2);
  loop.Start("test", kNever, [] {});
  std::thread::id ran_on;
  // The loop's thread may still be busy with the end of its own round.
  while (ran_on != std::this_thread::get_id()) {
    std::promise<void> ran;
    loop.Post(
        [&] {
          loop.Post([&] {
            ran_on = std::this_thread::get_id();
            ran.set_value();
          });
        },
        Loop::kHelp);
    ran.get_future().wait();
  }
  loop.Stop();
}

// So a step that its task launched on this thread does not wait for tasks that come meanwhile.
TEST(Loop, AHelperForOnceLeavesWhatComesMeanwhileToTheLoop) {
  Loop loop(2);
  loop.Start("test", kNever, [] {});
  const std::thread::id here = std::this_thread::get_id();
  bool helped = false;  // the loop's thread may still be busy with the end of its own round
  while (!helped) {
    std::promise<std::thread::id> ran_on;
    loop.Post(
        [&] {
          helped = std::this_thread::get_id() == here;
          loop.Post([&] { ran_on.set_value(std::this_thread::get_id()); });
        },
        Loop::kHelpOnce);
    EXPECT_NE(ran_on.get_future().get(), here);
  }
  loop.Stop();
}

TEST(Loop, AnEarlierDeadlineOfAHelpersTaskWakesTheLoop) {
  Loop loop(2);
  int64_t deadline_us = INT64_MAX;
  std::promise<void> ticked;
  loop.Start(
      "test", [&] { return deadline_us; },
      [&] {
        deadline_us = INT64_MAX;
        ticked.set_value();
      });
  ASSERT_TRUE(loop.RunAndWait([] {}));
  loop.Post([&] { deadline_us = MonotonicUs() + 2000; }, Loop::kHelp);
  ticked.get_future().wait();
  loop.Stop();
}

TEST(Loop, StopWaitsForAHelper) {
  for (int i = 0; i < 200; ++i) {
    auto loop = std::make_unique<Loop>(2);
    loop->Start("test", kNever, [] {});
    std::atomic<bool> posted{false}, ran{false};
    std::thread helper([&] {
      loop->Post(
          [&] {
            posted = true;
            posted.notify_all();
            std::this_thread::yield();
            ran = true;
          },
          Loop::kHelp);
    });
    posted.wait(false);
    loop->Stop();
    EXPECT_TRUE(ran);
    helper.join();
  }
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

TEST(Loop, ReportsHaveTheirOwnInboxAndRunFirst) {
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
