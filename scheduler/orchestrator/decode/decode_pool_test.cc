#include "scheduler/orchestrator/decode/decode_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "scheduler/base/looks.h"

namespace skein::scheduler {
namespace {

Instance DecodeInstance(uint64_t id, int64_t free_blocks = 10) {
  Instance instance;
  instance.id = {id};
  instance.identity.role = Role::kDecode;
  instance.identity.model = "m";
  instance.identity.shape.block_tokens = 4;
  instance.identity.total_blocks = 10;
  instance.connection = {1};
  instance.reported = true;
  instance.load.free_blocks = free_blocks;
  instance.load.total_blocks = 10;
  return instance;
}

HeadPtr Spec(uint64_t serial, int64_t tokens) {
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, serial};
  spec->model = "m";
  spec->prompt_tokens = tokens;
  return spec;
}

class DecodePoolTest : public ::testing::Test {
 protected:
  DecodePool::Choice Choose(int64_t tokens, bool asked = false) {
    return Choose(*Spec(99, tokens), asked);
  }
  DecodePool::Choice Choose(const RequestHead& spec, bool asked = false) {
    for (const Instance& instance : instances_) pool_.Set(instance);
    EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
    return pool_.Choose(
        {.spec = &spec, .tried = &tried_, .old = &old_, .asked = asked, .urgent = urgent_});
  }
  using Outcome = DecodePool::Outcome;

  std::vector<Instance> instances_ = {DecodeInstance(1), DecodeInstance(2)};
  bool urgent_ = false;
  std::set<InstanceId> tried_;
  std::set<InstanceId> old_;
  DecodePool pool_;
};

TEST_F(DecodePoolTest, ADedicatedInstanceIsForUrgentRequestsWhileOthersHaveRoom) {
  instances_ = {DecodeInstance(1), DecodeInstance(2, 4), DecodeInstance(3, 3)};
  instances_[1].dedicated = true;
  EXPECT_EQ(Choose(8).instance, (InstanceId{1}));
  tried_ = {{1}};
  EXPECT_EQ(Choose(8).instance, (InstanceId{3})) << "the other has more room";
  EXPECT_EQ(Choose(16).instance, (InstanceId{2})) << "only it has room";
  tried_.clear();
  urgent_ = true;
  EXPECT_EQ(Choose(8).instance, (InstanceId{2}));
  EXPECT_EQ(Choose(17).instance, (InstanceId{1})) << "it has no room";
  EXPECT_EQ(Choose(8, /*asked=*/true).instance, (InstanceId{2}));
  instances_[1].dedicated = false;
  EXPECT_EQ(Choose(8).instance, (InstanceId{1}));
}

// Its idle steps are not wasted while the others are much busier.
TEST_F(DecodePoolTest, ADedicatedInstanceThatIsMuchFreerGetsOthersToo) {
  instances_ = {DecodeInstance(1), DecodeInstance(2), DecodeInstance(3)};
  instances_[2].dedicated = true;
  instances_[0].load.running_requests = instances_[1].load.running_requests = 3;
  EXPECT_EQ(Choose(8).instance, (InstanceId{1})) << "4 times as free";
  instances_[0].load.running_requests = instances_[1].load.running_requests = 4;
  EXPECT_EQ(Choose(8).instance, (InstanceId{3}));
  EXPECT_EQ(Choose(8, /*asked=*/true).instance, (InstanceId{3}));
  instances_[2].load.running_requests = 1;
  EXPECT_EQ(Choose(8).instance, (InstanceId{1}));
  instances_[2].load.running_requests = 0;
  tried_ = {{3}};
  EXPECT_EQ(Choose(8).instance, (InstanceId{1}));
}

TEST_F(DecodePoolTest, AnUrgentRequestLooksAtTheDedicatedInstancesOnly) {
  for (uint64_t id = 3; id <= 60; ++id) instances_.push_back(DecodeInstance(id));
  instances_[40].load.free_blocks = 4;  // the others have more room
  instances_[40].dedicated = true;
  urgent_ = true;
  const int64_t before = looks;
  EXPECT_EQ(Choose(8).instance, instances_[40].id);
  EXPECT_LE(looks - before, 2);
}

TEST_F(DecodePoolTest, WhatIsClosedByItsGroupGetsNothing) {
  instances_[0].closed_by_group = true;
  EXPECT_EQ(Choose(8).instance, (InstanceId{2}));
  old_ = {{2}};
  EXPECT_EQ(Choose(8).instance, (InstanceId{2})) << "no other is open";
  tried_ = {{2}};
  EXPECT_EQ(Choose(8).outcome, Outcome::kAllTried);
  tried_.clear();
  instances_[1].closed_by_group = true;
  EXPECT_EQ(Choose(8).outcome, Outcome::kNoRoom) << "one of them will be open again";
  instances_[0].closed_by_group = false;
  EXPECT_EQ(Choose(8).instance, (InstanceId{1}));
}

TEST_F(DecodePoolTest, VirtualUsageSpreadsABurst) {
  std::vector<uint64_t> chosen;
  for (uint64_t serial = 1; serial <= 4; ++serial) {
    const auto choice = Choose(8);
    ASSERT_EQ(choice.outcome, Outcome::kPlaced);
    chosen.push_back(choice.instance.value);
    instances_[choice.instance.value - 1].Place(Spec(serial, 8), {serial}, true);
  }
  EXPECT_EQ(chosen, (std::vector<uint64_t>{1, 2, 1, 2}));
}

TEST_F(DecodePoolTest, WhoAsksIsMeasuredAgainstThoseThatOpenNow) {
  for (Instance& instance : instances_) instance.Place(Spec(instance.id.value, 36), {1}, true);
  EXPECT_EQ(Choose(8).outcome, Outcome::kNoRoom);
  EXPECT_EQ(Choose(8, /*asked=*/true).outcome, Outcome::kPlaced);
  for (Instance& instance : instances_) instance.Opened({7, instance.id.value});
  EXPECT_EQ(Choose(8, /*asked=*/true).outcome, Outcome::kNoRoom)
      << "its blocks are taken, and the load that was reported does not know it";
  for (Instance& instance : instances_) {
    EXPECT_TRUE(instance.CheckPlaced().ok());
    instance.load.free_blocks = 1;
    instance.TakeHeld({.id = {7, instance.id.value}, .epoch = {1}, .opened = true});
    EXPECT_TRUE(instance.CheckPlaced().ok());
    EXPECT_EQ(instance.unreported, Unreported{});
  }
  EXPECT_EQ(Choose(4).outcome, Outcome::kPlaced) << "it counts once";
}

// It takes the rest as its tokens come.
TEST_F(DecodePoolTest, ARequestNeedsRoomForItsPromptAndTheWholePoolForAllItsTokens) {
  auto spec = std::make_shared<RequestHead>(*Spec(99, 8));
  instances_.pop_back();
  const auto choose = [&] { return Choose(*spec).outcome; };
  spec->max_tokens = 32;
  instances_[0].load.free_blocks = 3;
  EXPECT_EQ(choose(), Outcome::kPlaced);
  instances_[0].load.free_blocks = 2;
  EXPECT_EQ(choose(), Outcome::kNoRoom) << "the first token after the prompt has no place";
  instances_[0].load.free_blocks = 10;
  spec->max_tokens = 33;
  EXPECT_EQ(choose(), Outcome::kNone);
}

TEST_F(DecodePoolTest, BlocksThatAnInstanceKeepsForItsRequestsAreNotFree) {
  instances_[0].load.free_blocks = 9;
  instances_[0].load.claimed_blocks = 8;
  instances_[1].load.free_blocks = 5;
  instances_[1].load.claimed_blocks = 3;
  EXPECT_EQ(Choose(8).instance, InstanceId{2});
  EXPECT_EQ(Choose(12).outcome, Outcome::kNoRoom);
}

TEST_F(DecodePoolTest, AnInstanceThatIsFullOfAnnouncedRequestsHasRoomForOneThatAsks) {
  instances_.pop_back();
  instances_[0].identity.max_requests = 2;
  instances_[0].Place(Spec(1, 4), {1}, true);
  instances_[0].Place(Spec(2, 4), {2}, true);
  EXPECT_EQ(Choose(4).outcome, Outcome::kNoRoom);
  EXPECT_EQ(Choose(4, /*asked=*/true).outcome, Outcome::kPlaced);
  instances_[0].Opened({7, 1});
  instances_[0].Opened({7, 2});
  EXPECT_EQ(Choose(4, /*asked=*/true).outcome, Outcome::kNoRoom);
}

TEST_F(DecodePoolTest, AnInstanceThatIsManyTimesSlowerIsTheLastChoice) {
  instances_[0].load.running_requests = 1;
  instances_[0].load.tokens_per_second = 3;  // 333 ms a step
  instances_[1].load.running_requests = 4;
  instances_[1].load.tokens_per_second = 80;  // 50 ms
  EXPECT_EQ(Choose(4).instance, InstanceId{2});
  instances_[1].load.free_blocks = 0;
  EXPECT_EQ(Choose(4).instance, InstanceId{1});
  instances_[1].load.free_blocks = 10;
  instances_[0].load.running_requests = 0;  // what it measured before says nothing now
  EXPECT_EQ(Choose(4).instance, InstanceId{1});
}

TEST_F(DecodePoolTest, TriedOnesAreLeftOutAndOldOnesComeLast) {
  old_ = {{1}};
  EXPECT_EQ(Choose(4).instance, InstanceId{2});
  tried_ = {{2}};
  EXPECT_EQ(Choose(4).instance, InstanceId{1});
  tried_ = {{1}, {2}};
  EXPECT_EQ(Choose(4).outcome, Outcome::kAllTried);
  tried_.clear();
  EXPECT_EQ(Choose(44).outcome, Outcome::kNone) << "11 blocks of 10";
  for (Instance& instance : instances_) instance.drain_order = true;
  EXPECT_EQ(Choose(4).outcome, Outcome::kNone);
}

TEST_F(DecodePoolTest, OneThatTakesNothingNowIsNotWaitedForWhereOldOnesHaveRoom) {
  old_ = {{1}};
  instances_[1].pace.pace = Pace::kAside;
  EXPECT_EQ(Choose(4).instance, InstanceId{1});
  instances_[1].pace.pace = Pace::kFair;
  EXPECT_EQ(Choose(4).instance, InstanceId{2});
}

TEST_F(DecodePoolTest, OneThatIsTooSmallForAllItsTokensIsPassedOver) {
  instances_[1].identity.total_blocks = 20;
  instances_[1].load.free_blocks = 8;
  auto spec = std::make_shared<RequestHead>(*Spec(99, 8));
  EXPECT_EQ(Choose(*spec).instance, InstanceId{1});
  spec->max_tokens = 33;
  EXPECT_EQ(Choose(*spec).instance, InstanceId{2});
  instances_[1].load.free_blocks = 2;
  EXPECT_EQ(Choose(*spec).outcome, Outcome::kNoRoom);
  tried_ = {{2}};
  EXPECT_EQ(Choose(*spec).outcome, Outcome::kAllTried);
}

TEST_F(DecodePoolTest, OneThatDrainsIsLeftOutUntilItDrainsNoMore) {
  instances_[1].load.draining = true;
  instances_[0].load.free_blocks = 0;
  EXPECT_EQ(Choose(4).outcome, Outcome::kNoRoom);
  tried_ = {{2}};
  EXPECT_EQ(Choose(4).outcome, Outcome::kNoRoom);
  tried_.clear();
  instances_[1].load.draining = false;
  EXPECT_EQ(Choose(4).instance, InstanceId{2});
}

// Those that are told of as changed are enough.
TEST(DecodePoolsTest, APoolFollowsItsInstances) {
  Registry registry(1, 3 * kSecondUs);
  DecodePools pools(&registry);
  const std::set<InstanceId> none;
  const HeadPtr spec = Spec(99, 8);
  uint64_t last = 0;
  const auto up = [&] {
    ++last;
    RegisterRequest hello{.identity = DecodeInstance(last).identity};
    hello.identity.incarnation = {last};
    hello.identity.endpoint = "d:" + std::to_string(last);
    hello.identity.shape = {{.num_layers = 1, .block_tokens = 4, .dtype = DType::kF32}, "h"};
    hello.load.free_blocks = hello.load.total_blocks = 10;
    return registry.Register(hello, {last}, 0)->id;
  };
  const auto choose = [&] {
    const DecodePool::Choice choice =
        pools.Of("m").Choose({.spec = spec.get(), .tried = &none, .old = &none});
    EXPECT_TRUE(pools.CheckInvariants().ok()) << pools.CheckInvariants();
    return choice.instance;
  };
  EXPECT_EQ(choose(), InstanceId{});
  const InstanceId first = up();
  EXPECT_EQ(choose(), first);
  const InstanceId second = up();
  EXPECT_EQ(choose(), first) << "the smaller id of equals";
  registry.Find(first)->Place(Spec(1, 8), {1}, /*announced_only=*/true);
  EXPECT_EQ(choose(), second);
  registry.Find(first)->Take({7, 1});
  EXPECT_EQ(choose(), first);
  registry.Disconnect(*registry.Find(first));
  EXPECT_EQ(choose(), second);
  registry.Remove(second);
  EXPECT_EQ(choose(), InstanceId{});
}

}  // namespace
}  // namespace skein::scheduler
