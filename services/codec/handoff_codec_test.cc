// The codec: announcements, and the calls by which KV comes to a decode instance.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/testing/good_messages.h"

namespace skein::services {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::GoodSpec;

TEST(HandoffCodec, AnAnnouncementSurvivesBothWays) {
  v1::AnnounceRequest reserve;
  reserve.set_spec(GoodSpec().SerializeAsString());
  reserve.set_epoch(3);
  reserve.add_writers(104);
  reserve.add_writers(106);
  reserve.add_excused(106);
  const auto decoded = FromProto(reserve);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  scheduler::AnnounceOrder order{Encode(*decoded->spec), decoded->epoch, decoded->writers};
  order.excused = decoded->excused;
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(order), reserve));
}

// Their KV goes to all ranks of the group.
TEST(HandoffCodec, AnAnnouncementForABoundGroupMayHaveWriters) {
  v1::AnnounceRequest announce;
  announce.set_spec(GoodSpec().SerializeAsString());
  announce.set_epoch(3);
  announce.add_writers(104);
  announce.set_formation(9);
  announce.set_suspect(true);
  const auto decoded = FromProto(announce);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->formation, 9u);
  EXPECT_TRUE(decoded->suspect);
  scheduler::AnnounceOrder order{Encode(*decoded->spec), decoded->epoch, decoded->writers};
  order.formation = decoded->formation;
  order.suspect = decoded->suspect;
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(order), announce));
}

TEST(HandoffCodec, AGrantOfABoundGroupNamesItsRanks) {
  scheduler::OpenTransferReply reply{
      .blocks = {{4}}, .layout = {2}, .memory = "zero", .lease_us = 5};
  reply.others = {{{{7}}, "one"}};
  v1::OpenTransferResponse encoded = ToProto(reply);
  const auto decoded = FromProto(encoded);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->blocks, reply.blocks);
  EXPECT_EQ(decoded->layout, reply.layout);
  EXPECT_EQ(decoded->others, reply.others);
  encoded.mutable_others(0)->add_blocks(-1);
  EXPECT_EQ(FromProto(encoded).status().message(), "others.blocks: -1 is not a block id");
}

TEST(HandoffCodec, AnAnnouncementThatSharesAPromptHasNoWriters) {
  v1::AnnounceRequest announce;
  announce.set_spec(GoodSpec().SerializeAsString());
  announce.set_epoch(3);
  *announce.mutable_prompt_of() = ToProto(scheduler::RequestId{7, 9});
  const auto decoded = FromProto(announce);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const scheduler::AnnounceOrder order{Encode(*decoded->spec), decoded->epoch, decoded->writers,
                                       decoded->prompt_of};
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(order), announce));
  announce.add_writers(104);
  const absl::Status refused = FromProto(announce).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("prompt_of"), std::string::npos) << refused;
}

TEST(HandoffCodec, ACommitSurvivesBothWays) {
  v1::CommitRequest commit;
  *commit.mutable_id() = GoodSpec().id();
  commit.set_epoch(3);
  commit.add_layer_bytes(64);
  commit.add_layer_bytes(64);
  commit.set_first_token(11);
  commit.set_first_sampled("sampled");
  commit.set_prompt_logprobs("scores");
  commit.set_prefill_instance(4);
  commit.mutable_times()->set_queue_us(1);
  commit.mutable_times()->set_prefill_us(2);
  commit.mutable_times()->set_handoff_us(3);
  const auto decoded = FromProto(commit);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), commit));
}

TEST(HandoffCodec, ALeaseOfNothingOrOfMoreThanADayIsRefusedByFieldAndValue) {
  const auto refused = [](const auto& make, uint64_t lease_us) {
    const absl::Status status = FromProto(make(lease_us)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << lease_us;
    EXPECT_TRUE(absl::StartsWith(
        status.message(), absl::StrCat("lease_us: ", lease_us, lease_us == 0 ? " us: " : " us ")))
        << status;
  };
  const auto check = [&](const auto& make) {
    const auto good = FromProto(make(3'000'000));
    ASSERT_TRUE(good.ok()) << good.status();
    EXPECT_EQ(good->lease_us, 3'000'000);
    EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*good), make(3'000'000)));
    EXPECT_TRUE(FromProto(make(uint64_t{kLeaseMaxUs})).ok());
    for (const uint64_t bad :
         {uint64_t{0}, uint64_t{kLeaseMaxUs} + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
      refused(make, bad);
    }
  };
  check([](uint64_t lease_us) {
    v1::RegisterResponse response;
    response.set_instance(4);
    response.set_lease_us(lease_us);
    response.mutable_generation()->set_number(3);
    return response;
  });
  check([](uint64_t lease_us) {
    v1::RouterWelcome welcome;
    welcome.mutable_generation()->set_number(3);
    welcome.set_lease_us(lease_us);
    return welcome;
  });
  check([](uint64_t lease_us) {
    v1::OpenTransferResponse response;
    response.set_memory("m");
    response.set_lease_us(lease_us);
    response.mutable_layout()->set_tp(1);
    return response;
  });
  check([](uint64_t lease_us) {
    v1::RenewResponse response;
    response.set_lease_us(lease_us);
    return response;
  });
}

// INVALID_ARGUMENT would blame the client.
TEST(HandoffCodec, AMalformedAnswerIsThePeersFault) {
  v1::RenewResponse renewed;
  EXPECT_EQ(
      AnswerOf("decode-worker", absl::OkStatus(), renewed).status,
      absl::InternalError("the decode-worker's answer is malformed: lease_us: 0 us: a lease must "
                          "be from 1 to 86400000000 us"));
  EXPECT_EQ(AnswerOf("decode-worker", absl::NotFoundError("x"), renewed).status,
            absl::NotFoundError("x"));
  renewed.set_lease_us(5);
  EXPECT_EQ(AnswerOf("decode-worker", absl::OkStatus(), renewed).lease_us, 5);
}

TEST(HandoffCodec, TheTalkAboutAStagingBufferSurvivesBothWays) {
  const scheduler::RequestId id{7, 9};
  const auto granted =
      FromProto(ToProto(scheduler::OpenTransferReply{.lease_us = 5, .staging_slots = 3}));
  EXPECT_EQ(granted->staging_slots, 3);
  EXPECT_EQ(granted->layout, KvLayout{1});
  const auto ask = FromProto(ToProto(scheduler::AcquireStagingBufferRequest{id, {3}, {4}, 2}));
  EXPECT_EQ(ask->prefill.value, 4u);
  EXPECT_EQ(ask->ask, 2u);
  EXPECT_EQ(FromProto(ToProto(scheduler::ReleaseStagingBufferRequest{id, {3}, {4}, 2}))->ask, 2u);
  const std::vector<StagedBlock> blocks = {{1, 0, 9}, {2, 1, 0}};
  const auto part = FromProto(ToProto(scheduler::TakePartRequest{id, {3}, {4}, 6, blocks, {2}}));
  EXPECT_EQ(part->part, 6u);
  EXPECT_EQ(part->blocks, blocks);
  EXPECT_EQ(part->layout.tp, 2);
  v1::TakePartRequest without = ToProto(*part);
  without.clear_layout();
  EXPECT_EQ(FromProto(without).status().message(), "layout.tp: 0 is not between 1 and 1048576");
  EXPECT_FALSE(FromProto(ToProto(scheduler::AcquireStagingBufferRequest{id, {3}, {4}, 0})).ok());
  EXPECT_FALSE(FromProto(ToProto(scheduler::TakePartRequest{id, {3}, {4}, 0, blocks})).ok());
}

TEST(HandoffCodec, AWriterIsNamed) {
  const scheduler::RequestId id{7, 9};
  EXPECT_EQ(FromProto(ToProto(scheduler::RenewRequest{id, {3}, {4}}))->prefill.value, 4u);
  const auto abort =
      FromProto(ToProto(scheduler::AbortRequest{id, {3}, absl::UnavailableError("x"), {4}, {5}}));
  EXPECT_EQ(abort->prefill.value, 4u);
  EXPECT_EQ(abort->incarnation.value, 5u);
}

}  // namespace
}  // namespace skein::services
