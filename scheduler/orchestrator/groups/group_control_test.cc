#include "scheduler/orchestrator/groups/group_control.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace skein::scheduler::orchestrator {
namespace {

class GroupControlTest : public ::testing::Test {
 protected:
  InstanceId Come(uint64_t incarnation, Role role, const std::string& model,
                  const std::string& node) {
    RegisterRequest hello;
    hello.identity.role = role;
    hello.identity.model = model;
    hello.identity.endpoint = "w:" + std::to_string(incarnation);
    hello.identity.incarnation = {incarnation};
    hello.identity.shape.num_layers = 1;
    hello.identity.total_blocks = 1;
    hello.identity.node = node;
    const InstanceId id = registry_.Register(hello, {incarnation}, now_)->id;
    groups_.Came(*registry_.Find(id), now_);
    Check();
    return id;
  }
  void Leave(InstanceId id) {
    registry_.Remove(id);
    groups_.Left(id);
    Check();
  }
  void Check() const {
    EXPECT_TRUE(groups_.CheckInvariants(registry_).ok()) << groups_.CheckInvariants(registry_);
  }

  TimeUs now_ = 100;
  Registry registry_{1, kSecondUs};
  GroupControl groups_;
};

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

TEST_F(GroupControlTest, AGroupIsIndependentSinceItBegan) {
  const InstanceId one = Come(1, Role::kDecode, "m", "a");
  now_ = 500;
  const InstanceId two = Come(2, Role::kDecode, "m", "a");
  EXPECT_EQ(groups_.GroupOf(two)->formation, Formation::kIndependent);
  EXPECT_EQ(NameOf(groups_.GroupOf(two)->formation), "independent");
  EXPECT_EQ(groups_.GroupOf(two)->since_us, 100);
  EXPECT_FALSE(groups_.GroupOf(two)->why.empty());
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

}  // namespace
}  // namespace skein::scheduler::orchestrator
