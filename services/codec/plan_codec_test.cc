// The codec: plans, and what comes of them.
#include <cstdint>
#include <functional>
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
using testing::GoodPlan;
using testing::GoodSpec;

TEST(PlanCodec, ADurationThatNoClockMeasuresIsRefusedByName) {
  v1::PrefillTimes times;
  times.set_prefill_us(uint64_t{1} << 51);
  EXPECT_TRUE(absl::StrContains(FromProto(times).status().message(), "times.prefill_us"));
  v1::PlanUpdate update;
  update.set_epoch(3);
  update.mutable_planned()->set_decided_us(uint64_t{1} << 51);
  EXPECT_TRUE(absl::StrContains(FromProto(update).status().message(), "planned.decided_us"));
}

// As the orchestrator would send it.
scheduler::AssignOrder OrderOf(const scheduler::AssignRequest& request) {
  return {Encode(*request.spec), request.epoch,      request.sequence, request.members,
          request.chunks,        request.from_chunk, request.placed,   request.suspect};
}

TEST(PlanCodec, APlanSurvivesBothWays) {
  const auto decoded = FromProto(GoodPlan());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->chunks.size(), 2u);
  EXPECT_EQ(decoded->chunks[1].members, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(decoded->chunks[0].tp, 1u) << "0: each alone";
  EXPECT_EQ(decoded->chunks[1].tp, 2u);
  EXPECT_EQ(decoded->placed->decode.value, 9u);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(OrderOf(*decoded)), GoodPlan()));
}

TEST(PlanCodec, APlainAssignHasNoMembers) {
  v1::AssignRequest plain;
  plain.set_spec(GoodSpec().SerializeAsString());
  plain.set_epoch(3);
  plain.set_sequence(8);
  plain.set_suspect(true);
  const auto decoded = FromProto(plain);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->members.empty());
  EXPECT_FALSE(decoded->placed.has_value());
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(OrderOf(*decoded)), plain));
}

TEST(PlanCodec, AMalformedPlanIsRefusedByName) {
  const struct {
    const char* named;
    std::function<void(v1::AssignRequest*)> spoil;
  } cases[] = {
      {"sequence", [](auto* a) { a->set_sequence(0); }},
      {"from_chunk", [](auto* a) { a->set_from_chunk(3); }},
      {"members.instance", [](auto* a) { a->mutable_members(0)->set_instance(0); }},
      {"chunks", [](auto* a) { a->clear_chunks(); }},
      {"chunks", [](auto* a) { a->clear_members(); }},
      {"chunks.tokens", [](auto* a) { a->mutable_chunks(0)->set_tokens(0); }},
      {"chunks.tokens", [](auto* a) { a->mutable_chunks(0)->set_tokens(~0ull); }},
      {"chunks.members", [](auto* a) { a->mutable_chunks(0)->clear_members(); }},
      {"chunks.members", [](auto* a) { a->mutable_chunks(0)->set_members(0, 2); }},
      {"chunks.members", [](auto* a) { a->mutable_chunks(1)->add_members(0); }},
      {"chunks.tp: 2 ", [](auto* a) { a->mutable_chunks(0)->set_tp(2); }},
      {"chunks.tp: 3 ", [](auto* a) { a->mutable_chunks(1)->set_tp(3); }},
      {"placed.decode_endpoint", [](auto* a) { a->mutable_placed()->clear_decode_endpoint(); }},
  };
  for (const auto& bad : cases) {
    v1::AssignRequest plan = GoodPlan();
    bad.spoil(&plan);
    const auto decoded = FromProto(plan);
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument) << bad.named;
    EXPECT_NE(std::string(decoded.status().message()).find(bad.named), std::string::npos)
        << decoded.status();
  }
}

TEST(PlanCodec, StartAndCancelSurviveBothWays) {
  v1::StartRequest start;
  *start.mutable_id() = GoodSpec().id();
  start.set_epoch(3);
  *start.mutable_placed() = GoodPlan().placed();
  ASSERT_TRUE(FromProto(start).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*FromProto(start)), start));
  start.clear_placed();
  EXPECT_FALSE(FromProto(start).ok());

  v1::CancelRequest cancel;
  *cancel.mutable_id() = GoodSpec().id();
  cancel.set_epoch(3);
  cancel.set_why("w");
  ASSERT_TRUE(FromProto(cancel).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*FromProto(cancel)), cancel));
  cancel.set_unless_claimed(true);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*FromProto(cancel)), cancel));
  cancel.clear_epoch();
  EXPECT_FALSE(FromProto(cancel).ok());
}

TEST(PlanCodec, WhatComesOfAPlanSurvivesBothWays) {
  const scheduler::RequestId id{7, 9};
  const absl::Status full = absl::ResourceExhaustedError("queue full");
  const auto assigned = FromProto(ToProto(scheduler::AssignReplied{{}, id, {3}, {full}, {8}}));
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  EXPECT_EQ(assigned->sequence.value, 8u);
  EXPECT_EQ(assigned->reply.status, full);
  const auto opened = FromProto(ToProto(scheduler::TransferOpened{{}, id, {3}}));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->id, id);
  EXPECT_EQ(opened->epoch.value, 3u);
  const auto asked = FromProto(ToProto(scheduler::PlaceDecodeRequest{.instance = {4},
                                                                     .incarnation = {5},
                                                                     .id = id,
                                                                     .epoch = {3},
                                                                     .refused_by = {6},
                                                                     .why = full}));
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->refused_by.value, 6u);
  EXPECT_EQ(asked->why, full);
  const scheduler::PlaceDecodeRequest first{
      .instance = {4}, .incarnation = {5}, .id = id, .epoch = {3}};
  EXPECT_TRUE(FromProto(ToProto(first))->why.ok());
  v1::PlaceDecodeRequest odd = ToProto(first);
  odd.set_refused_by(6);
  EXPECT_EQ(FromProto(odd).status().message(), "failure: requires refused_by");
  const auto placed = FromProto(
      ToProto(scheduler::AnswerPlaceDecode{{}, id, {3}, {{}, scheduler::Placed{{3}, {4}, "h:1"}}}));
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->reply.placed.endpoint, "h:1");
  EXPECT_EQ(FromProto(ToProto(scheduler::AnswerPlaceDecode{{}, id, {3}, {full}}))->reply.status,
            full);
}

TEST(PlanCodec, EachPlanUpdateSurvivesBothWays) {
  for (const scheduler::PlanUpdate& update :
       {scheduler::PlanUpdate(scheduler::Planned{{3}, {4}, 1500, {{51}}}),
        scheduler::PlanUpdate(scheduler::Planned{{3}, {4}, 1500, {{51}}, {5}, "h:1", {6}}),
        scheduler::PlanUpdate(scheduler::Placed{{3}, {4}, "h:1", {6}}),
        scheduler::PlanUpdate(scheduler::Accepted{{{51}, {52}}}),
        scheduler::PlanUpdate(scheduler::PlanEnded{}),
        scheduler::PlanUpdate(scheduler::Failed{absl::UnavailableError("x")}),
        scheduler::PlanUpdate(
            scheduler::Failed{absl::InternalError("x"), {{51}, {52}}, /*condemned=*/true})}) {
    const auto decoded = FromProto(ToProto(update));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->index(), update.index());
    EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), ToProto(update)));
  }
}

TEST(PlanCodec, ADecodePlaceWithoutAnEndpointOrAProcessIsRefused) {
  v1::PlanUpdate planned;
  planned.mutable_planned()->mutable_announced()->set_decode_instance(5);
  EXPECT_EQ(FromProto(planned).status(),
            absl::InvalidArgumentError("planned.announced.decode_endpoint: is empty"));
  v1::PlanUpdate placed;
  placed.mutable_placed()->set_decode_endpoint("h:1");
  EXPECT_EQ(FromProto(placed).status(),
            absl::InvalidArgumentError("placed.decode_incarnation: is 0"));
}

}  // namespace
}  // namespace skein::services
