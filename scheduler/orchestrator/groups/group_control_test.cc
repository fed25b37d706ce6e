#include "scheduler/orchestrator/groups/group_control.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace skein::scheduler::orchestrator {
namespace {

class GroupControlTest : public ::testing::Test {
 protected:
  InstanceId Come(uint64_t incarnation, Role role, const std::string& model,
                  const std::string& node, const std::string& comm_address = "",
                  const std::vector<InstanceId>& replaces = {}) {
    RegisterRequest hello;
    hello.identity.role = role;
    hello.identity.model = model;
    hello.identity.endpoint = "w:" + std::to_string(incarnation);
    hello.identity.incarnation = {incarnation};
    hello.identity.shape.num_layers = 1;
    hello.identity.total_blocks = 1;
    hello.identity.node = node;
    hello.identity.comm_address = comm_address;
    const InstanceId id = registry_.Register(hello, {incarnation}, now_)->id;
    groups_.Came(*registry_.Find(id), now_, replaces);
    Check();
    return id;
  }
  void Leave(InstanceId id) {
    registry_.Remove(id);
    groups_.Left(id, now_);
    Check();
  }
  // What is ordered when the members have settled: "generation: address…", the addressee's marked.
  std::vector<std::string> Settled() {
    now_ += GroupControl::kSettleUs;
    return Due();
  }
  std::vector<std::string> Due() {
    std::vector<std::string> lines;
    for (const auto& [to, order] : groups_.TakeDue(registry_, kFirst, now_)) {
      std::string line = std::to_string(order.generation - kFirst) + ":";
      for (size_t i = 0; i < order.members.size(); ++i) {
        line += (i == order.index ? " *" : " ") + order.members[i].comm_address;
        EXPECT_TRUE(i != order.index || order.members[i].instance == to);
      }
      lines.push_back(line);
    }
    Check();
    return lines;
  }
  void Report(InstanceId id, uint64_t made, uint64_t failed) {
    WorkerLoad load;
    load.groups_made = made == 0 ? 0 : made + kFirst - 1;
    load.groups_failed = failed == 0 ? 0 : failed + kFirst - 1;
    groups_.Reported(id, load, now_);
    Check();
  }
  void Check() const {
    EXPECT_TRUE(groups_.CheckInvariants(registry_).ok()) << groups_.CheckInvariants(registry_);
  }

  static constexpr uint64_t kFirst = 1000;
  using Lines = std::vector<std::string>;

  TimeUs now_ = 100;
  Registry registry_{1, kSecondUs};
  GroupControl groups_;
};

TEST_F(GroupControlTest, WhatHasLeftIsAbsentUntilOthersComeOrForATime) {
  const InstanceId first = Come(1, Role::kDecode, "m", "a"),
                   second = Come(2, Role::kDecode, "m", "a");
  Come(3, Role::kDecode, "m", "a");
  const GroupControl::Key key = *groups_.KeyOf(first);
  EXPECT_EQ(groups_.AbsentOf(key, now_), 0);
  Leave(first);
  now_ += kSecondUs;
  Leave(second);
  EXPECT_EQ(groups_.AbsentOf(key, now_), 2);
  Come(4, Role::kDecode, "m", "b");
  EXPECT_EQ(groups_.AbsentOf(key, now_), 2) << "it is of another node";
  Come(5, Role::kDecode, "m", "a");
  EXPECT_EQ(groups_.AbsentOf(key, now_), 1);
  EXPECT_EQ(groups_.AbsentOf(key, now_ + groups_.kept_us()), 1);
  EXPECT_EQ(groups_.AbsentOf(key, now_ + groups_.kept_us() + 1), 0);
}

// Another process at its address comes before it leaves.
TEST_F(GroupControlTest, WhatIsReplacedIsNotAbsent) {
  const InstanceId first = Come(1, Role::kDecode, "m", "a"),
                   second = Come(2, Role::kDecode, "m", "a");
  Come(3, Role::kDecode, "m", "a");
  const GroupControl::Key key = *groups_.KeyOf(first);
  Come(4, Role::kDecode, "m", "a", "", {first});
  Leave(first);
  EXPECT_EQ(groups_.AbsentOf(key, now_), 0);
  Leave(second);
  EXPECT_EQ(groups_.AbsentOf(key, now_), 1);
  const InstanceId last = Come(5, Role::kDecode, "m", "a", "", {{3}});
  Leave({3});
  EXPECT_EQ(groups_.AbsentOf(key, now_), 1) << "the second is not back";
  Come(6, Role::kDecode, "m", "b", "", {last});
  Leave(last);
  EXPECT_EQ(groups_.AbsentOf(key, now_), 1) << "at its address is an instance of another group";
}

TEST_F(GroupControlTest, OnlyDecodeInstancesThatTellANodeAreAbsent) {
  const InstanceId prefill = Come(1, Role::kPrefill, "m", "a");
  const InstanceId alone = Come(2, Role::kDecode, "m", "");
  for (const InstanceId one : {prefill, alone}) {
    const GroupControl::Key key = *groups_.KeyOf(one);
    Leave(one);
    EXPECT_EQ(groups_.AbsentOf(key, now_), 0);
  }
}

TEST_F(GroupControlTest, InstancesOfOneRoleModelAndNodeFormAGroup) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  const InstanceId two = Come(2, Role::kDecode, "m", "a");
  Come(3, Role::kDecode, "m", "b");
  Come(4, Role::kDecode, "other", "a");
  Come(5, Role::kPrefill, "m", "a");
  EXPECT_EQ(groups_.all().size(), 4u);
  ASSERT_NE(groups_.GroupOf(one), nullptr);
  EXPECT_EQ(groups_.GroupOf(one), groups_.GroupOf(two));
  EXPECT_EQ(groups_.GroupOf(one)->members, std::set<InstanceId>({one, two}));
  EXPECT_EQ(groups_.GroupOf({99}), nullptr);
}

TEST_F(GroupControlTest, AnInstanceThatTellsNoNodeIsAGroupAlone) {
  const InstanceId one = Come(1, Role::kDecode, "m", "");
  const InstanceId two = Come(2, Role::kDecode, "m", "");
  EXPECT_NE(groups_.GroupOf(one), groups_.GroupOf(two));
}

TEST_F(GroupControlTest, AGroupHasANameThatFindsIt) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  const InstanceId two = Come(2, Role::kPrefill, "m", "a");
  const InstanceId three = Come(3, Role::kDecode, "m", "");
  EXPECT_EQ(GroupControl::NameOf(*groups_.KeyOf(one)), "m@a");
  EXPECT_EQ(GroupControl::NameOf(*groups_.KeyOf(two)), "m@a/prefill");
  EXPECT_EQ(GroupControl::NameOf(*groups_.KeyOf(three)), "m@instance-3");
  for (const InstanceId instance : {one, two, three}) {
    EXPECT_EQ(groups_.Named(GroupControl::NameOf(*groups_.KeyOf(instance))),
              *groups_.KeyOf(instance));
  }
  EXPECT_EQ(groups_.Named("m@b"), std::nullopt);
  EXPECT_EQ(groups_.KeyOf({9}), nullptr);
}

TEST_F(GroupControlTest, AGroupIsThereSinceItBegan) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  now_ = 500;
  const InstanceId two = Come(2, Role::kDecode, "m", "a");
  EXPECT_EQ(groups_.GroupOf(two)->since_us, 100);
  Leave(one);
  EXPECT_EQ(groups_.GroupOf(two)->since_us, 100) << "it works as before";
}

TEST_F(GroupControlTest, AGroupEndsWithItsLastMember) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  Leave(one);
  EXPECT_TRUE(groups_.all().empty());
  Leave(one);
  now_ = 900;
  const InstanceId again = Come(2, Role::kDecode, "m", "a");
  EXPECT_EQ(groups_.GroupOf(again)->since_us, 900);
}

TEST_F(GroupControlTest, AnInstanceThatRegistersAgainChangesNothing) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  now_ = 500;
  EXPECT_EQ(Come(1, Role::kDecode, "m", "a"), one);
  EXPECT_EQ(groups_.GroupOf(one)->since_us, 100);
}

TEST_F(GroupControlTest, DecodeInstancesOfANodeMakeCommunicatorsOnceTheyHaveSettled) {
  Come(1, Role::kDecode, "m", "a", "x");
  now_ += GroupControl::kSettleUs / 2;
  Come(2, Role::kDecode, "m", "a", "y");
  Come(3, Role::kDecode, "m", "b", "z");
  Come(4, Role::kPrefill, "m", "a", "p");
  Come(5, Role::kPrefill, "m", "a", "q");
  now_ += GroupControl::kSettleUs / 2;
  EXPECT_EQ(Due(), Lines()) << "the second came later";
  now_ += GroupControl::kSettleUs / 2;
  EXPECT_EQ(groups_.NextDue(), now_);
  EXPECT_EQ(Due(), (Lines{"0: *x y", "0: x *y"})) << "one of a node needs none";
  EXPECT_EQ(groups_.NextDue(), kNever);
  EXPECT_EQ(Settled(), Lines());
}

TEST_F(GroupControlTest, WithoutAnAddressThereIsNothingToOrder) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  Come(2, Role::kDecode, "m", "a");
  EXPECT_EQ(groups_.NextDue(), kNever);
  Leave(one);
  EXPECT_EQ(groups_.NextDue(), kNever);
}

TEST_F(GroupControlTest, WhenMembersComeOrGoAnotherGenerationIsOrdered) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a", "x");
  const InstanceId two = Come(2, Role::kDecode, "m", "a", "y");
  EXPECT_EQ(groups_.OrderOf(one).generation, 0u);
  EXPECT_EQ(Settled(), (Lines{"0: *x y", "0: x *y"}));
  EXPECT_EQ(groups_.OrderOf(two).index, 1u);
  Come(3, Role::kDecode, "m", "a", "z");
  EXPECT_EQ(Settled(), (Lines{"1: *x y z", "1: x *y z", "1: x y *z"}));
  Leave(one);
  EXPECT_EQ(Settled(), (Lines{"2: *y z", "2: y *z"}));
  Leave(two);
  EXPECT_EQ(Settled(), (Lines{"3: *z"})) << "it lets go of what it has";
  Come(4, Role::kDecode, "m", "a", "w");
  EXPECT_EQ(Settled(), (Lines{"4: *z w", "4: z *w"}));
}

TEST_F(GroupControlTest, WhatFailedIsOrderedAnewAfterAPauseThatGrows) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a", "x");
  const InstanceId two = Come(2, Role::kDecode, "m", "a", "y");
  ASSERT_EQ(Settled().size(), 2u);
  Report(one, 1, 0);
  EXPECT_EQ(groups_.GroupOf(one)->ready, std::set<InstanceId>{one});
  Report(two, 0, 1);
  Report(one, 1, 1);
  EXPECT_EQ(groups_.NextDue(), now_ + GroupControl::kRetryMinUs);
  EXPECT_TRUE(groups_.GroupOf(one)->ready.empty());
  now_ = groups_.NextDue();
  EXPECT_EQ(Due(), (Lines{"1: *x y", "1: x *y"}));
  Report(two, 0, 1);
  EXPECT_EQ(groups_.NextDue(), kNever) << "that was the generation before";
  Report(two, 0, 2);
  EXPECT_EQ(groups_.NextDue(), now_ + 2 * GroupControl::kRetryMinUs);
  now_ = groups_.NextDue();
  ASSERT_EQ(Due().size(), 2u);
  Report(one, 3, 2);
  Report(two, 3, 2);
  Report(one, 3, 3);  // it broke in a step
  EXPECT_EQ(groups_.NextDue(), now_ + GroupControl::kRetryMinUs) << "it had worked";
}

// Its members may have heard another orchestrator, whose generations are above those told here.
TEST_F(GroupControlTest, AHigherGenerationOfTheOrchestratorOrdersGroupsAgain) {
  Come(1, Role::kDecode, "m", "a", "x");
  Come(2, Role::kDecode, "m", "a", "y");
  Come(3, Role::kDecode, "m", "b", "z");
  ASSERT_EQ(Settled(), (Lines{"0: *x y", "0: x *y"}));
  EXPECT_EQ(groups_.NextDue(), kNever);
  groups_.OrderAgain(now_);
  Check();
  EXPECT_EQ(Settled(), (Lines{"1: *x y", "1: x *y"}));
}

TEST_F(GroupControlTest, AnInstanceThatNobodyToldOfViolatesTheInvariants) {
  Come(1, Role::kDecode, "m", "a");
  RegisterRequest hello;
  hello.identity.model = "m";
  hello.identity.endpoint = "w:2";
  hello.identity.incarnation = {2};
  hello.identity.shape.num_layers = 1;
  hello.identity.total_blocks = 1;
  ASSERT_TRUE(registry_.Register(hello, {2}, now_).ok());
  EXPECT_FALSE(groups_.CheckInvariants(registry_).ok());
}

// The last of several leaves, another comes: the order of the one alone is no order of this one.
TEST_F(GroupControlTest, AnOrderForgetsTheOneThatWasAlone) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a", "x");
  const InstanceId two = Come(2, Role::kDecode, "m", "a", "y");
  EXPECT_EQ(Settled().size(), 2u);
  Leave(one);
  EXPECT_EQ(Settled().size(), 1u);
  Come(3, Role::kDecode, "m", "a", "z");
  Leave(two);
  EXPECT_EQ(Settled(), Lines{});
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
