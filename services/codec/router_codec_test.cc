// The codec: what routers and the orchestrator tell each other.
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/codec/testing/good_messages.h"

namespace skein::services {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::GoodRegistration;

TEST(RouterCodec, ARoutersStateIsToldWithItsHello) {
  v1::RouterIdentity details;
  details.set_admin_endpoint("r:81");
  details.set_pid(5);
  scheduler::RouterHello hello;
  hello.identity = {7, "r:80", "h", details.SerializeAsString()};
  hello.seen = {5, {9}};
  hello.load = {.queued = 1,
                .running = 2,
                .draining = true,
                .uptime_us = 3,
                .heard = {{4}, {5}},
                .not_heard = {{6}}};
  hello.requests = {{.id = {7, 1}, .epoch = {4}, .placed = true, .decode = {6}, .streams = true}};
  hello.ended = {{{7, 2}, scheduler::RouterEnd::How::kFailed, "lost", 3, 4}};
  hello.stream = 3;
  const v1::RouterHello wire = ToProto(hello);
  const auto decoded = FromProto(wire);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), wire));
  EXPECT_EQ(decoded->identity.details, hello.identity.details);
  EXPECT_EQ(decoded->requests.at(0).decode, scheduler::InstanceId{6});
  EXPECT_TRUE(decoded->requests.at(0).streams);
  EXPECT_EQ(decoded->ended.at(0).why, "lost");
  EXPECT_EQ(decoded->stream, 3u);
  EXPECT_EQ(decoded->load.uptime_us, 3);
  EXPECT_EQ(decoded->load.heard, hello.load.heard);
  EXPECT_EQ(decoded->load.not_heard, hello.load.not_heard);
  const scheduler::CellReport cell{.models = {{"m", {10, 4}}, {"n", {7, 0}}}, .routers = 3};
  const auto welcome =
      FromProto(ToProto(scheduler::RouterWelcome{{}, {5, {9}}, 1000, {{7, 1}}, cell}));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->unknown, (std::vector<scheduler::RequestId>{{7, 1}}));
  EXPECT_EQ(welcome->generation, hello.seen);
  EXPECT_EQ(welcome->cell, cell);
}

TEST(RouterCodec, TheBuildsOfBothSidesAreTold) {
  scheduler::RouterHello hello;
  hello.identity = {7, "r:80", "h", "", {"0.4.0", {0, 1}}};
  hello.stream = 1;
  const auto decoded = FromProto(ToProto(hello));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->identity.build, hello.identity.build);
  scheduler::RouterWelcome welcome{{}, {5, {9}}, 1000, {}, {}, {"0.4.0", {0, 1}}};
  EXPECT_EQ(FromProto(ToProto(welcome))->build, welcome.build);
}

TEST(RouterCodec, AHelloNumbersItsStream) {
  v1::RegisterRequest registration = GoodRegistration();
  EXPECT_EQ(FromProto(registration)->stream, 9u);
  registration.clear_stream();
  EXPECT_EQ(FromProto(registration).status().message(), "stream: is 0");
  v1::RouterHello hello;
  hello.mutable_identity()->set_router(7);
  hello.mutable_identity()->set_endpoint("r:80");
  EXPECT_EQ(FromProto(hello).status().message(), "stream: is 0");
}

TEST(RouterCodec, WhatACellCanTakeHasLimits) {
  v1::CellReport report;
  v1::CellReport::Model* model = report.add_models();
  EXPECT_TRUE(absl::StrContains(FromProto(report).status().message(), "model: is empty"));
  model->set_model("m");
  model->set_held(UINT64_MAX);
  EXPECT_TRUE(absl::StrContains(FromProto(report).status().message(), "cell.models.held"));
  model->set_held(0);
  report.set_routers(UINT64_MAX);
  EXPECT_TRUE(absl::StrContains(FromProto(report).status().message(), "cell.routers"));
}

TEST(RouterCodec, WhatARouterHearsHasIds) {
  v1::RouterLoad load;
  load.add_heard(3);
  load.add_heard(0);
  EXPECT_TRUE(absl::StrContains(FromProto(load).status().message(), "heard: names incarnation 0"));
  load.clear_heard();
  load.add_not_heard(0);
  EXPECT_TRUE(
      absl::StrContains(FromProto(load).status().message(), "not_heard: names incarnation 0"));
  load.clear_not_heard();
  for (uint64_t process = 1; process <= 65'537; ++process) load.add_heard(process);
  EXPECT_TRUE(absl::StrContains(FromProto(load).status().message(), "heard: 65537"))
      << load.heard_size();
}

TEST(RouterCodec, ARouterSpeaksOfItsOwnRequestsOnly) {
  v1::RouterHello hello;
  hello.mutable_identity()->set_router(7);
  hello.mutable_identity()->set_endpoint("r:80");
  hello.add_requests()->mutable_id()->set_router(8);
  hello.mutable_requests(0)->mutable_id()->set_serial(1);
  EXPECT_TRUE(absl::StrContains(FromProto(hello).status().message(), "id.router: 8 is not 7"));
}

}  // namespace
}  // namespace skein::services
