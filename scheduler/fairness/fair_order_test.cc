#include "scheduler/fairness/fair_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace skein::scheduler {
namespace {

using Order = FairOrder<int>;

FairOwner Of(const std::string& tenant, int64_t weight = 1, int32_t priority = 0) {
  return {tenant, weight, priority};
}

TEST(FairOrder, OneTenantAloneIsServedInTheOrderOfItsKeys) {
  Order order(/*credit_tokens=*/0);
  for (const int key : {3, 1, 2}) order.Add(Of(""), key);
  for (const int key : {1, 2, 3}) {
    EXPECT_EQ(order.First(), key);
    EXPECT_TRUE(order.Serve(Of(""), key, 1000));
  }
  EXPECT_TRUE(order.empty());
  EXPECT_TRUE(order.CheckInvariants().ok());
}

TEST(FairOrder, TwoTenantsTakeTurnsByTokensAndWeight) {
  const std::string heavy = "heavy", light = "light";
  Order order(/*credit_tokens=*/0);
  for (int key = 0; key < 40; ++key) {
    order.Add(Of(heavy, 3), key);
    order.Add(Of(light, 1), 100 + key);
  }
  std::map<bool, int> served;
  for (int turn = 0; turn < 40; ++turn) {
    const int key = *order.First();
    ++served[key < 100];
    order.Serve(key < 100 ? Of(heavy, 3) : Of(light, 1), key, 10);
  }
  EXPECT_EQ(served[true], 30);
  EXPECT_EQ(served[false], 10);
}

TEST(FairOrder, ATenantThatWasIdleHasNoCreditForIt) {
  Order order(/*credit_tokens=*/0);
  for (int key = 0; key < 100; ++key) order.Add(Of("busy"), key);
  for (int key = 0; key < 50; ++key) order.Serve(Of("busy"), key, 100);
  for (int key = 100; key < 150; ++key) order.Add(Of("idle"), key);
  int of_idle = 0;
  for (int turn = 0; turn < 20; ++turn) {
    const int key = *order.First();
    of_idle += key >= 100 ? 1 : 0;
    order.Serve(key >= 100 ? Of("idle") : Of("busy"), key, 100);
  }
  EXPECT_EQ(of_idle, 10);
}

TEST(FairOrder, WhatATenantGetsWhileItDoesNotWaitCountsIfAnotherOneWaits) {
  Order order(/*credit_tokens=*/0);
  order.Add(Of("waits"), 1);
  order.Charge(Of("runs"), 1000);
  order.Add(Of("runs"), 2);
  order.Add(Of("waits"), 3);
  EXPECT_EQ(order.First(), 1);
  order.Serve(Of("waits"), 1, 500);
  EXPECT_EQ(order.First(), 3);
  order.Serve(Of("waits"), 3, 501);
  EXPECT_EQ(order.First(), 2);
  order.Serve(Of("runs"), 2, 1);
  order.Charge(Of("runs"), 1 << 30);  // nobody waits: it is taken from nobody
  order.Add(Of("other"), 4);
  order.Add(Of("runs"), 3);
  order.Serve(Of("other"), 4, 1000);
  EXPECT_EQ(order.First(), 3);
}

TEST(FairOrder, AHigherPriorityGoesFirstWhosesoeverItIs) {
  Order order(/*credit_tokens=*/0);
  order.Add(Of("a"), 1);
  order.Add(Of("b", 1, 2), 5);
  order.Add(Of("a", 1, 2), 6);
  order.Charge(Of("b", 1, 2), 10);
  EXPECT_EQ(order.First(), 6);
  EXPECT_TRUE(order.Remove(Of("a", 1, 2), 6));
  EXPECT_FALSE(order.Remove(Of("a", 1, 2), 6));
  EXPECT_EQ(order.First(), 5);
  order.Serve(Of("b", 1, 2), 5, 1);
  EXPECT_EQ(order.First(), 1);
}

TEST(FairOrder, LeastSlackFirstAndWhoIsTooLatePushesOutNobody) {
  Order order(/*credit_tokens=*/0);
  order.Add(Of(""), 1);
  order.Add(Of(""), 2, /*latest_start_us=*/100);
  order.Add(Of(""), 3, /*latest_start_us=*/200);
  order.Add(Of(""), 4, /*latest_start_us=*/150);
  EXPECT_EQ(order.First(50), 2);
  EXPECT_EQ(order.First(101), 4);  // 2 is too late
  order.Serve(Of(""), 4, 1);
  EXPECT_EQ(order.First(101), 3);
  order.Serve(Of(""), 3, 1);
  EXPECT_EQ(order.First(101), 1);
}

TEST(FairOrder, NobodyStarvesBehindGoals) {
  Order order(/*credit_tokens=*/0);
  order.Add(Of(""), 0);
  for (int key = 1; key <= 100; ++key) order.Add(Of(""), key, 1000);
  int turns = 0;
  while (order.Has(Of(""), 0)) {
    order.Serve(Of(""), *order.First(0), 1);
    ++turns;
  }
  EXPECT_EQ(turns, FairLevel<int>::kGoalTurns + 1);
}

TEST(FairOrder, AWalkVisitsAsServingWould) {
  Order order(/*credit_tokens=*/0);
  for (int key = 0; key < 6; ++key) order.Add(Of("a"), key);
  for (int key = 10; key < 16; ++key) order.Add(Of("b", 2), key);
  std::vector<int> walked;
  order.Walk([&](int key, int64_t /*ahead*/) -> int64_t {
    if (walked.size() == 8) return Order::kStop;
    walked.push_back(key);
    return 7 + key % 3;
  });
  std::vector<int> served;
  for (int i = 0; i < 8; ++i) {
    const int key = *order.First();
    served.push_back(key);
    order.Serve(key < 10 ? Of("a") : Of("b", 2), key, 7 + key % 3);
  }
  EXPECT_EQ(walked, served);
}

TEST(FairOrder, AWalkPassesOverATenant) {
  Order order(/*credit_tokens=*/0);
  for (const int key : {1, 2}) order.Add(Of("a"), key);
  for (const int key : {11, 12}) order.Add(Of("b"), key);
  std::vector<int> walked;
  order.Walk([&](int key, int64_t /*ahead*/) -> int64_t {
    walked.push_back(key);
    return key < 10 ? Order::kNextTenant : 1;
  });
  EXPECT_EQ(walked, (std::vector<int>{1, 11, 12}));
}

TEST(FairOrder, ForgetsTenantsThatOweNothing) {
  Order order(/*credit_tokens=*/0);
  for (int i = 0; i < 3000; ++i) {
    const std::string tenant = "t" + std::to_string(i);
    order.Add(Of(tenant), i);
    order.Serve(Of(tenant), i, 5);
  }
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(order.TenantsAt(0), 0U);
  EXPECT_TRUE(order.CheckInvariants().ok());
}

TEST(FairOrder, OfPrioritiesAtWhichNobodyWaitsFewAreRemembered) {
  Order order;
  for (int32_t priority = 1; priority <= 100; ++priority) {
    for (const char* tenant : {"a", "b"}) order.Add(Of(tenant, 1, priority), priority);
    order.Serve(Of("b", 1, priority), priority, 10);
    order.Serve(Of("a", 1, priority), priority, 5);
    ASSERT_TRUE(order.CheckInvariants().ok()) << order.CheckInvariants();
  }
  EXPECT_EQ(order.levels(), Order::kIdleLevels);
  for (const int32_t priority : {100, 1}) {
    for (const char* tenant : {"b", "a"}) order.Add(Of(tenant, 1, priority), tenant[0]);
    EXPECT_TRUE(order.CheckInvariants().ok()) << order.CheckInvariants();
  }
  order.Charge(Of("a", 1, 100), 3);
  EXPECT_EQ(order.First(), int{'a'}) << "it is remembered there that it was given less";
  for (const char* tenant : {"b", "a"}) order.Remove(Of(tenant, 1, 100), tenant[0]);
  order.Charge(Of("a", 1, 1), 3);
  EXPECT_EQ(order.First(), int{'b'}) << "there it is forgotten";
}

TEST(FairOrder, KnowsByHowMuchTheNextTenantLeadsOneThatDoesNotWait) {
  Order order(/*credit_tokens=*/100);
  EXPECT_EQ(order.LeadOver(Of("away")), 0);
  order.Add(Of("busy"), 1);
  EXPECT_EQ(order.LeadOver(Of("away")), 0);
  order.Charge(Of("busy"), 30);
  EXPECT_EQ(order.LeadOver(Of("away")), 30);
  order.Charge(Of("away"), 10);
  EXPECT_EQ(order.LeadOver(Of("away")), 20);
  order.Charge(Of("busy"), 1000);
  EXPECT_EQ(order.LeadOver(Of("away")), 100) << "more credit it does not get";
}

TEST(FairOrder, AChoiceAsksTenantsInTheirOrder) {
  Order order(/*credit_tokens=*/0);
  order.Add(Of("a"), 1);
  order.Add(Of("b"), 2);
  order.Add(Of("c", 1, 5), 3);
  order.Charge(Of("a"), 10);
  std::vector<std::string> asked;
  const auto choose = [&](const std::string& of) {
    asked.clear();
    return order.Choose([&](int32_t priority, std::string_view tenant) -> std::optional<int> {
      asked.push_back(std::string(tenant) + std::to_string(priority));
      return tenant == of ? std::optional<int>(7) : std::nullopt;
    });
  };
  EXPECT_EQ(choose("a"), 7);
  EXPECT_EQ(asked, (std::vector<std::string>{"c5", "b0", "a0"}));
  EXPECT_EQ(choose("nobody"), std::nullopt);
}

// The same by the definition, looking at everything each time.
class Reference {
 public:
  struct Waiter {
    std::string tenant;
    int64_t weight = 1;
    int32_t priority = 0;
    int key = 0;
    TimeUs latest_us = kNever;
  };
  using Name = std::pair<int32_t, std::string>;

  bool Waits(const Name& name) const {
    return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& w) {
      return Name{w.priority, w.tenant} == name;
    });
  }
  std::optional<int64_t> LeastWaiting(int32_t priority) const {
    std::optional<int64_t> least;
    for (const Waiter& w : waiters_) {
      if (w.priority != priority) continue;
      const int64_t counter = counters_.at({priority, w.tenant});
      least = std::min(least.value_or(counter), counter);
    }
    return least;
  }
  explicit Reference(int64_t credit) : credit_(credit * FairLevel<int>::kUnit) {}
  int64_t Lift(int32_t priority) {
    times_[priority] = std::max(times_[priority], LeastWaiting(priority).value_or(0));
    return times_[priority] - credit_;
  }
  int64_t& CounterOf(const Name& name) {
    const auto [it, added] = counters_.try_emplace(name, 0);
    if (added) it->second = Lift(name.first);
    return it->second;
  }
  void Add(const Waiter& w) {
    const Name name{w.priority, w.tenant};
    if (!Waits(name)) CounterOf(name) = std::max(CounterOf(name), Lift(w.priority));
    waiters_.push_back(w);
    Lift(w.priority);
  }
  void Charge(const Name& name, int64_t weight, int64_t tokens) {
    if (!LeastWaiting(name.first).has_value()) return;
    CounterOf(name) = std::max(CounterOf(name), Lift(name.first)) +
                      std::max<int64_t>(1, tokens * FairLevel<int>::kUnit / weight);
    Lift(name.first);
  }
  void Remove(int key) {
    const auto it = std::find_if(waiters_.begin(), waiters_.end(),
                                 [&](const Waiter& w) { return w.key == key; });
    const Name name{it->priority, it->tenant};
    waiters_.erase(it);
    if (!Waits(name)) turns_[name] = 0;
    if (!LeastWaiting(name.first).has_value()) {
      times_[name.first] = std::max(times_[name.first], counters_.at(name));
    }
    Lift(name.first);
  }
  void Serve(const Waiter& w, int64_t tokens) {
    const Name name{w.priority, w.tenant};
    bool first = true;
    for (const Waiter& other : waiters_) {
      first &= other.tenant != w.tenant || other.priority != w.priority || other.key >= w.key;
    }
    turns_[name] = first ? 0 : turns_[name] + 1;
    Charge(name, w.weight, tokens);
    Remove(w.key);
  }
  std::optional<Waiter> First(TimeUs now) {
    if (waiters_.empty()) return std::nullopt;
    const Waiter* best = nullptr;
    for (Waiter& w : waiters_) {
      if (best == nullptr || TenantRank(w) < TenantRank(*best)) best = &w;
    }
    const Name name{best->priority, best->tenant};
    std::vector<Waiter*> own;
    for (Waiter& w : waiters_) {
      if (Name{w.priority, w.tenant} == name) own.push_back(&w);
    }
    std::optional<Waiter> by_goal;
    for (Waiter* w : own) {
      if (w->latest_us < now) w->latest_us = kNever;
      if (w->latest_us == kNever) continue;
      if (!by_goal.has_value() ||
          std::pair(w->latest_us, w->key) < std::pair(by_goal->latest_us, by_goal->key)) {
        by_goal = *w;
      }
    }
    if (by_goal.has_value() && turns_[name] < FairLevel<int>::kGoalTurns) return by_goal;
    return **std::min_element(own.begin(), own.end(),
                              [](const Waiter* a, const Waiter* b) { return a->key < b->key; });
  }
  const std::vector<Waiter>& waiters() const { return waiters_; }

 private:
  std::tuple<int32_t, int64_t, std::string> TenantRank(const Waiter& w) const {
    return {-w.priority, counters_.at({w.priority, w.tenant}), w.tenant};
  }

  std::vector<Waiter> waiters_;
  std::map<Name, int64_t> counters_;
  std::map<int32_t, int64_t> times_;
  const int64_t credit_;
  std::map<Name, int> turns_;
};

TEST(FairOrder, DoesWhatTheReferenceDoes) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t credit = seed % 2 == 0 ? 0 : 60;
    Order order(credit);
    Reference reference(credit);
    TimeUs now = 0;
    for (int step = 0; step < 400; ++step) {
      now += pick(20);
      const int64_t t = pick(4);
      const std::string tenant = t == 0 ? "" : "t" + std::to_string(t);
      const int64_t weight = 1 + t;
      const auto priority = static_cast<int32_t>(pick(8) == 0 ? 1 : 0);
      const FairOwner owner = Of(tenant, weight, priority);
      switch (pick(4)) {
        case 0:
        case 1: {
          const TimeUs latest_us = pick(2) == 0 ? kNever : now + pick(200);
          reference.Add({tenant, weight, priority, step, latest_us});
          order.Add(owner, step, latest_us);
          break;
        }
        case 2: {
          const std::optional<Reference::Waiter> first = reference.First(now);
          const std::optional<int> got = order.First(now);
          ASSERT_EQ(got.has_value(), first.has_value()) << "seed " << seed << " step " << step;
          if (!first.has_value()) break;
          ASSERT_EQ(*got, first->key) << "seed " << seed << " step " << step;
          const int64_t tokens = 1 + pick(50);
          ASSERT_TRUE(order.Serve(Of(first->tenant, first->weight, first->priority), *got, tokens));
          reference.Serve(*first, tokens);
          break;
        }
        case 3:
          if (pick(2) == 0 && !reference.waiters().empty()) {
            const auto place = pick(static_cast<int64_t>(reference.waiters().size()));
            const Reference::Waiter w = reference.waiters()[static_cast<size_t>(place)];
            ASSERT_TRUE(order.Remove(Of(w.tenant, w.weight, w.priority), w.key));
            reference.Remove(w.key);
          } else {
            const int64_t tokens = 1 + pick(100);
            order.Charge(owner, tokens);
            reference.Charge({priority, tenant}, weight, tokens);
          }
          break;
      }
      ASSERT_EQ(order.size(), reference.waiters().size());
      const absl::Status status = order.CheckInvariants();
      ASSERT_TRUE(status.ok()) << status.message() << ", seed " << seed << " step " << step;
    }
  }
}

TEST(FairOrder, ATenantThatAsksForLessThanItsShareIsServedAtOnce) {
  Order order(/*credit_tokens=*/100);
  for (int key = 0; key < 1000; ++key) order.Add(Of("much"), key);
  const auto serve = [&order](int tokens) {
    const int key = *order.First();
    order.Serve(key < 1000 ? Of("much") : Of("little"), key, tokens);
    return key;
  };
  for (int i = 0; i < 20; ++i) serve(10);
  for (int key = 1000; key < 1020; ++key) order.Add(Of("little"), key);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(serve(10), 1000 + i);
  int of_little = 0;  // it has used its credit up
  for (int i = 0; i < 10; ++i) of_little += serve(10) >= 1000 ? 1 : 0;
  EXPECT_EQ(of_little, 5);
}

// Theorem 4.4: between tenants that wait all through an interval, the tokens by weight differ by
// twice the largest charge and the credit at most, whatever others come and go.
TEST(FairOrder, TenantsThatAlwaysWaitGetTheSameUpToTheBound) {
  constexpr int64_t kMostTokens = 500;
  const std::vector<int64_t> weights = {1, 2, 5};
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int64_t credit = seed % 2 == 0 ? 0 : 700;
    Order order(credit);
    int next = 0;
    std::map<int, std::string> owners;
    std::vector<double> given(weights.size());
    const auto name = [](size_t t) { return "t" + std::to_string(t); };
    const auto fill = [&] {
      for (size_t t = 0; t < weights.size(); ++t) {
        while (order.WaitingOf(Of(name(t))) < 2) {
          owners[next] = name(t);
          order.Add(Of(name(t), weights[t]), next++);
        }
      }
    };
    for (int turn = 0; turn < 3000; ++turn) {
      fill();
      if (random() % 3 == 0) {
        owners[next] = "guest";
        order.Add(Of("guest"), next++);
      }
      const int key = *order.First();
      const auto tokens = static_cast<int64_t>(1 + random() % kMostTokens);
      const std::string owner = owners.at(key);
      int64_t weight = 1;
      for (size_t t = 0; t < weights.size(); ++t) {
        if (owner != name(t)) continue;
        weight = weights[t];
        given[t] += static_cast<double>(tokens) / static_cast<double>(weight);
      }
      fill();
      order.Serve(Of(owner, weight), key, tokens);
      const auto [least, most] = std::minmax_element(given.begin(), given.end());
      ASSERT_LE(*most - *least, 2.0 * static_cast<double>(kMostTokens + credit))
          << "seed " << seed << " turn " << turn;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
