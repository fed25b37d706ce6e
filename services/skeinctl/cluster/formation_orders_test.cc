#include "services/skeinctl/cluster/formation_orders.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

v1::StatusResponse Status() {
  v1::StatusResponse status;
  for (uint64_t i = 1; i <= 2; ++i) {
    v1::InstanceStatus* instance = status.add_instances();
    instance->set_instance(100 + i);
    instance->mutable_registration()->set_role(v1::ROLE_DECODE);
    instance->mutable_registration()->set_host("h");
    instance->mutable_registration()->set_pid(i);
    instance->mutable_registration()->set_endpoint("w:" + std::to_string(i));
  }
  status.add_routers()->mutable_identity()->set_endpoint("r:80");
  status.mutable_routers(0)->mutable_identity()->set_router(7);
  return status;
}

const ProcessNames kNames({.processes = {{"decode-1", "decode", 2, "", ""}}}, "h");

absl::StatusOr<v1::ChangeFormationRequest> Order(const FormationOrderFlags& flags) {
  return OrderOf(v1::ChangeFormationRequest::ACT_BIND, flags, Status(), kNames);
}

TEST(FormationOrders, InstancesAreNamedAsStatusShowsThem) {
  BindFlags flags;
  flags.instances = {"w:1", "decode-1", "101"};
  flags.hard = true;
  const auto order = Order(flags);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->act(), v1::ChangeFormationRequest::ACT_BIND);
  EXPECT_EQ(std::vector<uint64_t>(order->instances().begin(), order->instances().end()),
            (std::vector<uint64_t>{101, 102, 101}));
  EXPECT_EQ(order->how(), v1::EndFormation::HARD);
}

TEST(FormationOrders, AGroupGoesAsItIs) {
  BindFlags flags;
  flags.group = "m@a";
  flags.size = 4;
  const auto order = Order(flags);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->group(), "m@a");
  EXPECT_EQ(order->size(), 4u);
  EXPECT_EQ(order->instances_size(), 0);
  EXPECT_EQ(order->how(), v1::EndFormation::SEQUENTIAL);
}

TEST(FormationOrders, HowOwnRequestsFareIsOrdered) {
  BindFlags flags;
  flags.group = "m@a";
  EXPECT_EQ(Order(flags)->own(), v1::PrepareFormation::SHARE);
  flags.own = "sequential";
  EXPECT_EQ(Order(flags)->own(), v1::PrepareFormation::SEQUENTIAL);
  flags.own = "soft";
  EXPECT_EQ(Order(flags)->own(), v1::PrepareFormation::SOFT_PREEMPT);
  flags.own = "hard";
  EXPECT_EQ(Order(flags)->own(), v1::PrepareFormation::HARD_PREEMPT);
}

TEST(FormationOrders, WhatIsNoInstanceIsNamed) {
  BindFlags flags;
  flags.instances = {"101", "decode-9"};
  EXPECT_EQ(Order(flags).status().code(), absl::StatusCode::kNotFound);
  flags.instances = {"router"};
  EXPECT_EQ(Order(flags).status().message(), "INSTANCE: 'router' is a router");
}

std::string Problem(std::vector<const char*> arguments) {
  BindFlags flags;
  FlagSet set;
  flags.Register(&set);
  arguments.insert(arguments.begin(), "bind");
  return std::string(set.Parse(static_cast<int>(arguments.size()), arguments.data(), {}).message());
}

TEST(FormationOrders, InstancesOrAGroupAreGiven) {
  EXPECT_EQ(Problem({"1", "2"}), "");
  EXPECT_EQ(Problem({"--group", "m@a", "--size", "2"}), "");
  EXPECT_EQ(Problem({"1", "2", "--own", "hard"}), "");
  EXPECT_NE(Problem({"1", "2", "--own", "gently"}), "");
  EXPECT_EQ(Problem({}), "INSTANCE or --group is required");
  EXPECT_EQ(Problem({"1", "--group", "m@a"}), "give INSTANCE or --group, not both");
  EXPECT_EQ(Problem({"1", "2", "--size", "2"}),
            "--size: only with --group; INSTANCE says how many");
}

TEST(FormationOrders, EachFormationHasALine) {
  v1::ChangeFormationResponse response;
  EXPECT_EQ(DoneText(response), "nothing to change\n");
  response.add_done("bound(2) of 1, 2 in 3.1 ms");
  response.add_done("bound(2) of 3, 4 in 2.9 ms");
  EXPECT_EQ(DoneText(response), "bound(2) of 1, 2 in 3.1 ms\nbound(2) of 3, 4 in 2.9 ms\n");
}

}  // namespace
}  // namespace skein::services
