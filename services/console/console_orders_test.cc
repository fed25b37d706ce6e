#include "services/console/console_orders.h"

#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

TEST(ConsoleOrders, Drain) {
  const auto order = ParseConsoleOrder(R"({"order":"drain","instance":3,"cell":1})");
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->cell, 1U);
  const auto& call = std::get<v1::DrainRequest>(order->call);
  EXPECT_EQ(call.instance(), 3U);
  EXPECT_FALSE(call.undo());
  const auto large = ParseConsoleOrder(R"({"order":"drain","instance":"9007199254740993"})");
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(std::get<v1::DrainRequest>(large->call).instance(), 9007199254740993U);
  const auto undo = ParseConsoleOrder(R"({"order":"serve","router":"18446744073709551615"})");
  ASSERT_TRUE(undo.ok()) << undo.status();
  EXPECT_EQ(std::get<v1::DrainRequest>(undo->call).router(), ~uint64_t{0});
  EXPECT_TRUE(std::get<v1::DrainRequest>(undo->call).undo());
}

TEST(ConsoleOrders, Formations) {
  const auto bind = ParseConsoleOrder(R"({"order":"bind","instances":[4,"9007199254740993"]})");
  ASSERT_TRUE(bind.ok()) << bind.status();
  const auto& call = std::get<v1::ChangeFormationRequest>(bind->call);
  EXPECT_EQ(call.act(), v1::ChangeFormationRequest::ACT_BIND);
  ASSERT_EQ(call.instances_size(), 2);
  EXPECT_EQ(call.instances(0), 4U);
  EXPECT_EQ(call.instances(1), 9007199254740993U);
  const auto share = ParseConsoleOrder(R"({"order":"share","group":"m@n","size":2})");
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(std::get<v1::ChangeFormationRequest>(share->call).group(), "m@n");
  EXPECT_EQ(std::get<v1::ChangeFormationRequest>(share->call).size(), 2U);
}

TEST(ConsoleOrders, WhatIsWrongIsNamed) {
  for (const auto& [body, named] : {std::pair<const char*, const char*>{"", "body"},
                                    {"[]", "body"},
                                    {R"({"order":"explode"})", "'order'"},
                                    {R"({"order":7})", "'order'"},
                                    {R"({"order":"drain"})", "'instance'"},
                                    {R"({"order":"drain","instance":-1})", "'instance'"},
                                    {R"({"order":"drain","instance":1,"router":"2"})", "'router'"},
                                    {R"({"order":"drain","router":2})", "'router'"},
                                    {R"({"order":"drain","instance":1,"force":1})", "'force'"},
                                    {R"({"order":"drain","instance":1,"group":"g"})", "'group'"},
                                    {R"({"order":"bind","cell":"0"})", "'cell'"},
                                    {R"({"order":"drain","instance":"x"})", "'instance'"},
                                    {R"({"order":"bind","instances":["1x"]})", "'instances'"},
                                    {R"({"order":"bind","instances":[-1]})", "'instances'"},
                                    {R"({"order":"bind","instances":[]})", "'instances'"},
                                    {R"({"order":"bind","group":1})", "'group'"},
                                    {R"({"order":"bind","group":"g","size":1e9})", "'size'"}}) {
    const auto order = ParseConsoleOrder(body);
    ASSERT_FALSE(order.ok()) << body;
    EXPECT_EQ(order.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(order.status().message()).find(named), std::string::npos)
        << body << ": " << order.status();
  }
}

}  // namespace
}  // namespace skein::services
