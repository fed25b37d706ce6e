// The codec: what workers tell of themselves.
#include <cstdint>
#include <string>
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
using testing::GoodSpec;

TEST(WorkerCodec, ARegistrationSurvivesBothWays) {
  const auto decoded = FromProto(GoodRegistration());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->identity.shape.dtype, DType::kBF16);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), GoodRegistration()));
}

TEST(WorkerCodec, BytesOfABlockThatTheShapeDoesNotGiveAreRefused) {
  v1::RegisterRequest request = GoodRegistration();
  request.set_block_bytes(2048);
  EXPECT_EQ(FromProto(request).status(),
            absl::InvalidArgumentError("block_bytes: 2048 is not 4096, which the shape gives"));
  request.mutable_kv()->set_dtype(v1::DTYPE_F32);
  request.set_block_bytes(8192);
  EXPECT_TRUE(FromProto(request).ok());
}

TEST(WorkerCodec, AWorkersStateIsToldWithItsRegistration) {
  auto hello = FromProto(GoodRegistration());
  ASSERT_TRUE(hello.ok()) << hello.status();
  hello->held = {{{7, 1}, {3}, true, 2, 500, 4}};
  hello->ended = {{.id = {7, 2}, .epoch = {4}, .status = absl::UnavailableError("x")}};
  hello->seen = {5, {9}};
  const auto decoded = FromProto(ToProto(*hello));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->held.at(0).chunk_running_us, 500);
  EXPECT_EQ(decoded->held.at(0).chunks_known, 4u);
  EXPECT_TRUE(decoded->held.at(0).opened);
  EXPECT_EQ(decoded->ended.at(0).status, hello->ended[0].status);
  EXPECT_EQ(decoded->seen, hello->seen);
  const auto welcome = FromProto(ToProto(scheduler::RegisterReply{
      {}, {4}, 1000, {{{7, 1}, {3}}}, {5, {9}}, {"a", std::string("b\0c", 3)}, {}, "key"}));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->cancel.at(0).epoch.value, 3u);
  EXPECT_EQ(welcome->generation, hello->seen);
  EXPECT_EQ(welcome->permit_key, "key");
  EXPECT_EQ(welcome->peers, (std::vector<std::string>{"a", std::string("b\0c", 3)}));
  EXPECT_EQ(FromProto(ToProto(scheduler::PeerOrder{"x"}))->comm_address, "x");
  EXPECT_FALSE(FromProto(v1::PeerOrder()).ok());
}

TEST(WorkerCodec, AWorkerWithoutANodeLabelIsOfItsHost) {
  v1::RegisterRequest registration = GoodRegistration();
  EXPECT_EQ(FromProto(registration)->identity.node, "n");
  registration.clear_node();
  EXPECT_EQ(FromProto(registration)->identity.node, "h");
}

TEST(WorkerCodec, TheBuildsOfBothSidesAreTold) {
  v1::RegisterRequest registration = GoodRegistration();
  EXPECT_EQ(FromProto(registration)->identity.build, (scheduler::PeerBuild{"1", {}}))
      << "0.3.0 tells no protocol";
  EXPECT_EQ(FromProto(registration)->identity.kv_digest, 0u);
  registration.mutable_protocol()->set_oldest(2);
  registration.mutable_protocol()->set_newest(3);
  registration.set_kv_digest(77);
  const auto decoded = FromProto(registration);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->identity.build, (scheduler::PeerBuild{"1", {2, 3}}));
  EXPECT_EQ(decoded->identity.kv_digest, 77u);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), registration));
  registration.mutable_protocol()->set_oldest(4);
  EXPECT_EQ(FromProto(registration).status(),
            absl::InvalidArgumentError("protocol.oldest: 4 is above the newest, 3"));
  scheduler::RegisterReply reply{{}, {4}, 1000, {}, {5, {9}}};
  reply.build = {"2", {0, 1}};
  EXPECT_EQ(FromProto(ToProto(reply))->build, reply.build);
}

TEST(WorkerCodec, AGenerationHasANextOne) {
  v1::RouterWelcome welcome;
  welcome.set_lease_us(1000);
  EXPECT_TRUE(absl::StrContains(FromProto(welcome).status().message(), "generation.number: is 0"));
  v1::RouterHello hello;
  hello.mutable_identity()->set_router(7);
  hello.mutable_identity()->set_endpoint("r:80");
  hello.set_stream(1);
  v1::RegisterRequest registration = GoodRegistration();
  const auto set = [&](uint64_t number) {
    welcome.mutable_generation()->set_number(number);
    hello.mutable_seen()->set_number(number);
    registration.mutable_seen()->set_number(number);
  };
  set(scheduler::kGenerationMax - 1);
  EXPECT_TRUE(FromProto(welcome).ok());
  EXPECT_TRUE(FromProto(hello).ok()) << "the orchestrator of that generation takes it";
  EXPECT_TRUE(FromProto(registration).ok());
  set(scheduler::kGenerationMax);
  for (const absl::Status& refused :
       {FromProto(welcome).status(), FromProto(hello).status(), FromProto(registration).status()}) {
    EXPECT_TRUE(absl::StrContains(refused.message(), "exceeds the limit")) << refused;
  }
}

TEST(WorkerCodec, AReportTellsTheChunks) {
  scheduler::ReportRequest report{
      .instance = {1}, .incarnation = {2}, .load = {}, .held = {}, .ended = {}};
  report.held = {{{7, 9}, {3}, true, 2, 1500, 3, 4}, {{7, 10}, {4}}};
  report.load.claimed_blocks = 17;
  report.load.groups_made = uint64_t{1} << 60;
  report.load.groups_failed = 18;
  report.gone = {{.id = {7, 13}, .epoch = {7}}};
  report.full = true;
  report.held_digest = UINT64_MAX - 1;
  report.load.step_age_us = 2500;
  report.load.step_estimate_us = 100;
  report.load.mean_step_us = 19;
  report.load.steps = 20;
  report.ended = {{.id = {7, 11},
                   .epoch = {5},
                   .status = absl::UnavailableError("the engine failed"),
                   .engine_failed = true,
                   .handoff = {"host-staged", "tcp (not cuda-ipc: no)", true, 3, true},
                   .ring = scheduler::RingPath{true, "ipc: no"},
                   .ring_broken = true},
                  {.id = {7, 12}, .epoch = {6}, .unclaimed = true}};
  const auto decoded = FromProto(ToProto(report));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->held[0].chunks_done, 2u);
  EXPECT_EQ(decoded->held[0].chunks_known, 3u);
  EXPECT_EQ(decoded->held[0].preemptions, 4u);
  EXPECT_EQ(decoded->load.claimed_blocks, 17);
  EXPECT_EQ(decoded->load.groups_made, report.load.groups_made);
  EXPECT_EQ(decoded->load.groups_failed, 18u);
  EXPECT_EQ(decoded->gone.at(0).epoch.value, 7u);
  EXPECT_TRUE(decoded->full);
  EXPECT_EQ(decoded->held_digest, UINT64_MAX - 1);
  EXPECT_TRUE(FromProto(ToProto(scheduler::ReportReply{.want_full = true}))->want_full);
  EXPECT_EQ(FromProto(ToProto(scheduler::ReportReply{.elsewhere = {3, 40, 5}}))->elsewhere,
            (scheduler::PoolRoom{3, 40, 5}));
  EXPECT_FALSE(FromProto(ToProto(scheduler::DrainOrder{false}))->drain);
  EXPECT_TRUE(FromProto(ToProto(scheduler::OrderRouterDrain{{7}, true}))->drain);
  EXPECT_FALSE(FromProto(ToProto(scheduler::OrderRouterDrain{{7}, false}))->drain);
  EXPECT_EQ(decoded->held[0].chunk_running_us, 1500);
  EXPECT_EQ(decoded->held[1].chunk_running_us, -1);
  EXPECT_EQ(decoded->load.step_age_us, 2500);
  EXPECT_EQ(decoded->load.step_estimate_us, 100);
  EXPECT_EQ(decoded->load.mean_step_us, 19);
  EXPECT_EQ(decoded->load.steps, 20);
  EXPECT_TRUE(decoded->ended[0].engine_failed);
  EXPECT_EQ(decoded->ended[0].handoff, report.ended[0].handoff);
  EXPECT_EQ(decoded->ended[1].handoff, scheduler::HandoffPath{});
  EXPECT_EQ(decoded->ended[0].ring, report.ended[0].ring);
  EXPECT_EQ(decoded->ended[1].ring, std::nullopt);
  EXPECT_TRUE(decoded->ended[0].ring_broken);
  EXPECT_FALSE(decoded->ended[1].ring_broken);
  EXPECT_FALSE(decoded->ended[1].engine_failed);
  EXPECT_FALSE(decoded->ended[0].unclaimed);
  EXPECT_TRUE(decoded->ended[1].unclaimed);
}

TEST(WorkerCodec, FailedEnginesThatCannotBeAreRefused) {
  v1::SubmitRequest submit;
  submit.set_spec(GoodSpec().SerializeAsString());
  for (uint64_t engine = 1; engine <= 17; ++engine) submit.add_failed_engines(engine);
  v1::PlanUpdate update;
  update.mutable_planned();
  update.add_failed_engines(0);
  for (const absl::Status& status : {FromProto(submit).status(), FromProto(update).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), "failed_engines")) << status;
  }
}

}  // namespace
}  // namespace skein::services
