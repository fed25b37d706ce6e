#include "scheduler/orchestrator/registry/registry.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>

namespace skein::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 3 * kSecondUs;

class RegistryTest : public ::testing::Test {
 protected:
  WorkerIdentity Identity(Role role, uint64_t incarnation) {
    WorkerIdentity identity;
    identity.role = role;
    identity.model = "m";
    identity.endpoint = "w:" + std::to_string(incarnation);
    identity.incarnation = {incarnation};
    identity.shape = {{.num_layers = 1, .block_tokens = 4, .dtype = DType::kF32}, "h"};
    identity.total_blocks = 100;
    identity.max_requests = 2;
    return identity;
  }
  InstanceId Up(Role role, uint64_t incarnation) {
    return registry_.Register({Identity(role, incarnation)}, {incarnation}, now_)->id;
  }
  void Report(InstanceId id, uint64_t incarnation, bool draining = false) {
    ReportRequest report{.instance = id, .incarnation = {incarnation}};
    report.load.draining = draining;
    EXPECT_TRUE(registry_.Report(report, now_).ok());
  }
  static HeadPtr Spec(uint64_t serial) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    return spec;
  }
  const PoolCounts& Counts() { return registry_.Counts("m", Role::kPrefill); }
  void TearDown() override {
    EXPECT_TRUE(registry_.CheckInvariants().ok()) << registry_.CheckInvariants();
  }

  TimeUs now_ = 0;
  Registry registry_{1, kLeaseUs};
};

TEST_F(RegistryTest, CountsWhatAPoolCanDoWithEachChange) {
  const InstanceId one = Up(Role::kPrefill, 11);
  const InstanceId two = Up(Role::kPrefill, 12);
  Up(Role::kDecode, 13);
  EXPECT_EQ(Counts(), (PoolCounts{.placeable = 2, .serving = 2, .taking = 2, .request_limit = 4}));
  Instance& first = *registry_.Find(one);
  first.Place(Spec(1), {5});
  first.Place(Spec(2), {6});  // full
  EXPECT_EQ(Counts().taking, 1);
  registry_.Avoid(*registry_.Find(two));
  EXPECT_EQ(Counts().taking, 0);
  first.Take({7, 2});
  EXPECT_EQ(Counts().taking, 1);
  Report(one, 11, /*draining=*/true);
  EXPECT_EQ(
      Counts(),
      (PoolCounts{.placeable = 1, .serving = 1, .request_limit = 2, .placed_not_serving = 1}));
  ReportRequest suspect{.instance = two, .incarnation = {12}};  // its step does not end
  suspect.load.step_age_us = 3 * kSecondUs;
  suspect.load.step_estimate_us = 10'000;
  EXPECT_TRUE(registry_.Report(suspect, now_).ok());
  EXPECT_EQ(Counts(), (PoolCounts{.serving = 1, .request_limit = 2, .placed_not_serving = 1}));
  Report(two, 12);
  EXPECT_EQ(Counts().placeable, 1);
  EXPECT_EQ(Counts().taking, 1);
  registry_.Disconnect(*registry_.Find(two));
  EXPECT_EQ(Counts().placeable, 0);
  registry_.Remove(one);
  EXPECT_EQ(Counts(), (PoolCounts{.serving = 1, .request_limit = 2}));
  EXPECT_EQ(registry_.Counts("other", Role::kPrefill), PoolCounts{});
}

// What ListModels tells: of those that do not drain, whether or not they can be placed at.
TEST_F(RegistryTest, AddsUpWhatAPoolReportsWithEachChange) {
  const auto sums = [this]() -> const PoolSums& { return registry_.Sums("m", Role::kDecode); };
  const auto up = [this](uint64_t incarnation, int64_t max_positions) {
    RegisterRequest hello{Identity(Role::kDecode, incarnation)};
    hello.identity.max_positions = max_positions;
    hello.load = {
        .queued_requests = 1, .running_requests = 2, .held_blocks = 10, .total_blocks = 50};
    return registry_.Register(hello, {incarnation}, now_)->id;
  };
  const InstanceId one = up(11, 90);
  const InstanceId two = up(12, 80);
  const InstanceId three = up(13, 0);  // no limit
  const PoolLoad all{.instances = 3,
                     .running_requests = 6,
                     .queued_requests = 3,
                     .total_blocks = 150,
                     .held_blocks = 30};
  EXPECT_EQ(sums().load, all);
  EXPECT_EQ(sums().max_positions, (std::multiset<int64_t>{80, 90}));
  registry_.Disconnect(*registry_.Find(one));
  EXPECT_EQ(sums().load, all) << "its worker comes back";
  ReportRequest report{.instance = three, .incarnation = {13}};
  report.load = {.running_requests = 5, .held_blocks = 20, .total_blocks = 50};
  EXPECT_TRUE(registry_.Report(report, now_).ok());
  EXPECT_EQ(sums().load.running_requests, 9);
  EXPECT_EQ(sums().load.queued_requests, 2);
  EXPECT_EQ(sums().load.held_blocks, 40);
  EXPECT_TRUE(registry_.Drain({.instance = two}).ok());
  EXPECT_EQ(sums().load.instances, 2);
  EXPECT_EQ(sums().load.total_blocks, 100);
  EXPECT_EQ(sums().max_positions, (std::multiset<int64_t>{90}));
  EXPECT_TRUE(registry_.Drain({.instance = two, .undo = true}).ok());
  EXPECT_EQ(sums().max_positions, (std::multiset<int64_t>{80, 90}));
  for (const InstanceId id : {one, two, three}) registry_.Remove(id);
  EXPECT_EQ(sums(), PoolSums{});
}

TEST_F(RegistryTest, NamesEachChangedInstanceOnce) {
  const InstanceId one = Up(Role::kDecode, 11);
  const InstanceId two = Up(Role::kDecode, 12);
  Up(Role::kPrefill, 13);
  const auto changed = [&] {
    std::set<InstanceId> ids;
    for (const Instance* instance : registry_.TakeChanged("m", Role::kDecode)) {
      EXPECT_TRUE(ids.insert(instance->id).second) << "named twice";
    }
    return ids;
  };
  changed();
  EXPECT_TRUE(changed().empty());
  registry_.Find(two)->Place(Spec(1), {5});
  registry_.Find(two)->Place(Spec(2), {6});
  EXPECT_EQ(changed(), std::set<InstanceId>{two});
  EXPECT_TRUE(changed().empty()) << "told";
  Report(one, 11, /*draining=*/true);
  registry_.Find(two)->Take({7, 1});
  EXPECT_EQ(changed(), (std::set<InstanceId>{one, two}));
  registry_.Find(one)->Place(Spec(3), {7});
  registry_.Remove(one);
  EXPECT_TRUE(changed().empty()) << "gone: PoolVersion tells it";
  EXPECT_TRUE(registry_.TakeChanged("other", Role::kDecode).empty());
}

TEST_F(RegistryTest, PoolsAreByModelAndRoleAndTellWhenTheyChange) {
  const InstanceId one = Up(Role::kPrefill, 11);
  const uint64_t version = registry_.PoolVersion("m", Role::kPrefill);
  Up(Role::kDecode, 12);
  EXPECT_EQ(registry_.PoolVersion("m", Role::kPrefill), version);
  Up(Role::kPrefill, 13);
  EXPECT_NE(registry_.PoolVersion("m", Role::kPrefill), version);
  ASSERT_EQ(registry_.Pool("m", Role::kPrefill).size(), 2u);
  EXPECT_EQ(registry_.Pool("m", Role::kPrefill).front()->id, one);
  EXPECT_TRUE(registry_.Pool("other", Role::kDecode).empty());
}

TEST_F(RegistryTest, APoolTellsWhenOneBeginsOrEndsToDrain) {
  const InstanceId one = Up(Role::kPrefill, 11);
  Up(Role::kPrefill, 12);
  uint64_t version = 0;
  const auto changed = [&] {
    const uint64_t before = std::exchange(version, registry_.DrainVersion("m", Role::kPrefill));
    return before != version;
  };
  EXPECT_TRUE(changed());
  Report(one, 11);
  EXPECT_FALSE(changed());
  const uint64_t pool = registry_.PoolVersion("m", Role::kPrefill);
  EXPECT_TRUE(registry_.Drain({.instance = one}).ok());
  EXPECT_TRUE(changed());
  Report(one, 11, /*draining=*/true);
  EXPECT_FALSE(changed()) << "it drains already";
  Report(one, 11);
  EXPECT_TRUE(registry_.Drain({.instance = one, .undo = true}).ok());
  EXPECT_TRUE(changed());
  Report(one, 11, /*draining=*/true);
  EXPECT_TRUE(changed());
  EXPECT_EQ(registry_.PoolVersion("m", Role::kPrefill), pool);
  registry_.Remove(one);
  EXPECT_TRUE(changed());
}

TEST_F(RegistryTest, ALayoutThatDoesNotFitTheHeadsIsRefused) {
  WorkerIdentity identity = Identity(Role::kDecode, 11);
  identity.shape.kv_heads = 4;
  for (const int32_t tp : {0, 3, 6}) {
    identity.shape.layout.tp = tp;
    EXPECT_EQ(registry_.Register({identity}, {11}, now_).status(),
              absl::InvalidArgumentError("layout.tp: " + std::to_string(tp) +
                                         " does not fit kv_heads=4"));
  }
  identity.shape.layout.tp = 8;
  EXPECT_TRUE(registry_.Register({identity}, {11}, now_).ok());
}

TEST_F(RegistryTest, OnlyTheSilentAreDead) {
  const InstanceId one = Up(Role::kPrefill, 11);
  const InstanceId two = Up(Role::kPrefill, 12);
  std::vector<InstanceId> dead;
  while (now_ < kLeaseUs + kSecondUs) {
    now_ = registry_.NextTick();
    Report(two, 12);
    for (const InstanceId id : registry_.Listened(now_)) dead.push_back(id);
    if (!dead.empty()) break;
  }
  EXPECT_EQ(dead, (std::vector<InstanceId>{one}));
  registry_.Remove(one);
}

TEST_F(RegistryTest, AStreamIsFoundUntilItBreaksOrAnotherTakesItsPlace) {
  const InstanceId one = Up(Role::kPrefill, 11);
  EXPECT_EQ(registry_.FindConnected({11})->id, one);
  const auto again = registry_.Register({Identity(Role::kPrefill, 11)}, {99}, now_);
  EXPECT_EQ(again->id, one);
  EXPECT_EQ(again->former, CallId{11});
  EXPECT_EQ(registry_.FindConnected({11}), nullptr);
  EXPECT_EQ(registry_.FindConnected({99})->id, one);
  registry_.Disconnect(*registry_.Find(one));
  EXPECT_EQ(registry_.FindConnected({99}), nullptr);
  EXPECT_EQ(registry_.FindConnected({}), nullptr);
}

}  // namespace
}  // namespace skein::scheduler
