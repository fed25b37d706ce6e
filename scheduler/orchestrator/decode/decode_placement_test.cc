#include "scheduler/orchestrator/decode/decode_placement.h"

#include <gtest/gtest.h>

#include <memory>

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

class DecodePlacementTest : public ::testing::Test {
 protected:
  DecodePlacement::Choice Choose(int64_t tokens, bool asked = false) {
    const HeadPtr spec = Spec(99, tokens);
    std::vector<const Instance*> pool;
    for (const Instance& instance : instances_) pool.push_back(&instance);
    return DecodePlacement::Choose(
        {.spec = spec.get(), .tried = &tried_, .old = &old_, .asked = asked}, pool);
  }
  using Outcome = DecodePlacement::Outcome;
  using Standing = DecodePlacement::Standing;

  std::vector<Instance> instances_ = {DecodeInstance(1), DecodeInstance(2)};
  std::set<InstanceId> tried_;
  std::set<InstanceId> old_;
};

TEST_F(DecodePlacementTest, VirtualUsageSpreadsABurst) {
  std::vector<uint64_t> chosen;
  for (uint64_t serial = 1; serial <= 4; ++serial) {
    const auto choice = Choose(8);
    ASSERT_EQ(choice.outcome, Outcome::kPlaced);
    chosen.push_back(choice.instance.value);
    instances_[choice.instance.value - 1].Place(Spec(serial, 8), {serial}, true);
  }
  EXPECT_EQ(chosen, (std::vector<uint64_t>{1, 2, 1, 2}));
}

TEST_F(DecodePlacementTest, WhoAsksIsMeasuredAgainstThoseThatOpenNow) {
  for (Instance& instance : instances_) instance.Place(Spec(instance.id.value, 36), {1}, true);
  EXPECT_EQ(Choose(8).outcome, Outcome::kNoRoom);
  EXPECT_EQ(Choose(8, /*asked=*/true).outcome, Outcome::kPlaced);
  for (Instance& instance : instances_) instance.Opened({7, instance.id.value});
  EXPECT_EQ(Choose(8, /*asked=*/true).outcome, Outcome::kNoRoom)
      << "its blocks are taken, and the load that was reported does not know it";
  for (Instance& instance : instances_) {
    EXPECT_TRUE(instance.CheckUnreported().ok());
    instance.load.free_blocks = 1;
    instance.TakeHeld({.id = {7, instance.id.value}, .epoch = {1}, .opened = true});
    EXPECT_TRUE(instance.CheckUnreported().ok());
    EXPECT_EQ(instance.unreported, Unreported{});
  }
  EXPECT_EQ(Choose(4).outcome, Outcome::kPlaced) << "it counts once";
}

// It takes the rest as its tokens come.
TEST_F(DecodePlacementTest, ARequestNeedsRoomForItsPromptAndTheWholePoolForAllItsTokens) {
  auto spec = std::make_shared<RequestHead>(*Spec(99, 8));
  const std::vector<const Instance*> pool = {&instances_[0]};
  const auto choose = [&] {
    return DecodePlacement::Choose({.spec = spec.get(), .tried = &tried_, .old = &old_}, pool)
        .outcome;
  };
  spec->max_tokens = 32;
  instances_[0].load.free_blocks = 3;
  EXPECT_EQ(choose(), Outcome::kPlaced);
  instances_[0].load.free_blocks = 2;
  EXPECT_EQ(choose(), Outcome::kNoRoom) << "the first token after the prompt has no place";
  instances_[0].load.free_blocks = 10;
  spec->max_tokens = 33;
  EXPECT_EQ(choose(), Outcome::kNone);
}

TEST_F(DecodePlacementTest, BlocksThatAnInstanceKeepsForItsRequestsAreNotFree) {
  instances_[0].load.free_blocks = 9;
  instances_[0].load.claimed_blocks = 8;
  instances_[1].load.free_blocks = 5;
  instances_[1].load.claimed_blocks = 3;
  EXPECT_EQ(Choose(8).instance, InstanceId{2});
  EXPECT_EQ(Choose(12).outcome, Outcome::kNoRoom);
}

TEST_F(DecodePlacementTest, AnInstanceThatIsFullOfAnnouncedRequestsHasRoomForOneThatAsks) {
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

TEST_F(DecodePlacementTest, AnInstanceThatIsManyTimesSlowerIsTheLastChoice) {
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

TEST_F(DecodePlacementTest, TriedOnesAreLeftOutAndOldOnesComeLast) {
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

TEST_F(DecodePlacementTest, APlanWaitsForOlderOnesThatHaveNotOpened) {
  DecodePlacement placement;
  placement.AddUnopened({1}, {10});
  placement.AddUnopened({2}, {20});
  placement.AddUnopened({1}, {20});
  EXPECT_FALSE(placement.MustWait({1}, {10}));
  EXPECT_TRUE(placement.MustWait({1}, {20}));
  EXPECT_FALSE(placement.MustWait({2}, {20}));
  EXPECT_FALSE(placement.MustWait({3}, {20}));
  placement.RemoveUnopened({1}, {10});
  placement.RemoveUnopened({1}, {10});
  EXPECT_FALSE(placement.MustWait({1}, {20}));
  placement.RemoveUnopened({1}, {20});
  placement.RemoveUnopened({2}, {20});
  EXPECT_TRUE(placement.unopened().empty());
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST_F(DecodePlacementTest, ALineKeepsItsOrderAndAPlaceInIt) {
  DecodePlacement placement;
  const uint64_t first = placement.NextNumber();
  const uint64_t second = placement.NextNumber();
  placement.Wait("m", second, {7, 2});
  placement.Wait("m", first, {7, 1});
  placement.Wait("other", placement.NextNumber(), {7, 3});
  EXPECT_EQ(placement.waiting(), 3u);
  placement.SetAsking("m", second, true);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 2}));
  placement.SetAsking("m", first, true);
  EXPECT_EQ(placement.StandingOf("m", first, {7, 1}), Standing::kReady);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 1}));
  placement.Leave("m", first);
  placement.Leave("m", first);
  EXPECT_EQ(placement.StandingOf("m", first, {7, 1}), Standing::kAbsent);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 2}));
  placement.Wait("m", first, {7, 1});  // refused once more
  placement.SetAsking("m", first, true);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 1}));
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST_F(DecodePlacementTest, ALineIsLookedAtOnlyWhenItMayMove) {
  DecodePlacement placement;
  placement.NoteChange("m");
  EXPECT_TRUE(placement.TakeChanged().empty()) << "nobody waits";
  const uint64_t number = placement.NextNumber();
  placement.Wait("m", number, {7, 1});
  EXPECT_TRUE(placement.TakeChanged().empty()) << "its lead does not ask";
  placement.SetAsking("m", number, true);
  EXPECT_EQ(placement.TakeChanged(), std::vector<std::string>{"m"});
  EXPECT_TRUE(placement.TakeChanged().empty());
  placement.NoteChange("m");
  EXPECT_EQ(placement.TakeChanged(), std::vector<std::string>{"m"});
  placement.SetAsking("m", number, false);
  placement.NoteChange("m");
  EXPECT_TRUE(placement.TakeChanged().empty());
}

// What an event looks at does not grow with the line: each plan that opens lets one go on.
TEST_F(DecodePlacementTest, OfALongLineOnlyThoseThatMayGoOnAreTried) {
  DecodePlacement placement;
  constexpr uint64_t kPlans = 1000;
  placement.AddUnopened({1}, {1});  // the oldest, which does not wait
  for (uint64_t plan = 2; plan <= kPlans; ++plan) {
    placement.AddUnopened({1}, {plan});
    const uint64_t number = placement.NextNumber();
    placement.Wait("m", number, {7, plan});
    placement.SetAsking("m", number, true);
    EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, plan}));
    ASSERT_TRUE(placement.MustWait({1}, {plan}));
    placement.Block("m", number, {plan});
  }
  int tried = 0;
  for (uint64_t plan = 1; plan < kPlans; ++plan) {
    placement.RemoveUnopened({1}, {plan});
    while (const auto ready = placement.FirstReady("m")) {
      EXPECT_EQ(ready, (RequestId{7, plan + 1}));
      ++tried;
      placement.Leave("m", plan);  // its number
    }
  }
  EXPECT_EQ(tried, static_cast<int>(kPlans) - 1);
  EXPECT_EQ(placement.waiting(), 0u);
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST_F(DecodePlacementTest, WhoIsBlockedStaysSoOnlyAsLongAsItsLeadAsks) {
  DecodePlacement placement;
  placement.AddUnopened({1}, {10});
  placement.AddUnopened({1}, {20});
  const uint64_t number = placement.NextNumber();
  placement.Wait("m", number, {7, 1});
  placement.SetAsking("m", number, true);
  placement.Block("m", number, {20});
  placement.SetAsking("m", number, true);  // once more
  EXPECT_EQ(placement.StandingOf("m", number, {7, 1}), Standing::kBlocked);
  placement.SetAsking("m", number, false);
  EXPECT_EQ(placement.StandingOf("m", number, {7, 1}), Standing::kNotAsking);
  placement.RemoveUnopened({1}, {10});
  EXPECT_FALSE(placement.FirstReady("m").has_value());
  placement.SetAsking("m", number, true);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 1}));
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler
