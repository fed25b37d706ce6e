#include "services/codec/codec.h"

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "services/codec/answer.h"
#include "services/codec/durations.h"

namespace skein::services {
namespace {

using google::protobuf::util::MessageDifferencer;

v1::RequestSpec GoodSpec() {
  v1::RequestSpec spec;
  spec.mutable_id()->set_router(7);
  spec.mutable_id()->set_serial(9);
  spec.set_model("m");
  spec.set_prompt(PackTokens({1, 5, 9}));
  spec.set_max_tokens(4);
  spec.set_min_tokens(1);
  spec.add_stop_token_ids(2);
  spec.set_sampling("bytes");
  spec.set_want_prompt_logprobs(true);
  spec.set_priority(-2);
  spec.set_deadline_us(1000000);
  spec.add_names("cmpl-1");
  spec.mutable_prompt_of()->set_router(7);
  spec.mutable_prompt_of()->set_serial(8);
  return spec;
}

v1::RegisterRequest GoodRegistration() {
  v1::RegisterRequest r;
  r.set_role(v1::ROLE_DECODE);
  r.set_model("m");
  r.set_model_hash("abc");
  r.set_endpoint("127.0.0.1:1");
  r.set_incarnation(5);
  auto* kv = r.mutable_kv();
  kv->set_num_layers(2);
  kv->set_kv_heads(4);
  kv->set_head_dim(16);
  kv->set_block_tokens(16);
  kv->set_dtype(v1::DTYPE_BF16);
  kv->set_num_blocks(100);
  kv->set_format(3);
  r.mutable_layout()->set_tp(1);
  r.set_block_bytes(4096);
  r.set_max_positions(2048);
  r.set_admin_endpoint("127.0.0.1:2");
  r.set_host("h");
  r.set_node("n");
  r.set_pid(12);
  r.set_version("1");
  r.set_comm_address("c\0d");
  r.set_max_batch_tokens(512);
  r.set_max_requests(64);
  r.mutable_load()->mutable_blocks()->set_total(100);
  r.mutable_load()->mutable_blocks()->set_free(90);
  r.mutable_load()->set_invariants_ok(true);
  r.set_stream(9);
  return r;
}

v1::AssignRequest GoodPlan() {
  v1::AssignRequest assign;
  assign.set_spec(GoodSpec().SerializeAsString());
  assign.set_epoch(3);
  assign.set_sequence(8);
  for (uint64_t instance : {4, 6}) {
    v1::PlanMember* member = assign.add_members();
    member->set_instance(instance);
    member->set_incarnation(100 + instance);
    member->set_endpoint("h:" + std::to_string(instance));
    member->set_comm_address("a" + std::to_string(instance));
  }
  for (const std::vector<uint32_t>& members : {std::vector<uint32_t>{1}, {1, 0}}) {
    v1::PlanChunk* chunk = assign.add_chunks();
    chunk->set_tokens(16 * members.size());
    chunk->mutable_members()->Add(members.begin(), members.end());
    chunk->set_estimated_us(1000 * members.size());
  }
  assign.set_from_chunk(1);
  assign.mutable_placed()->set_epoch(3);
  assign.mutable_placed()->set_decode_instance(9);
  assign.mutable_placed()->set_decode_endpoint("h:9");
  return assign;
}

TEST(Codec, ARequestSurvivesBothWays) {
  const v1::RequestSpec spec = GoodSpec();
  const auto decoded = SpecFrom(spec.SerializeAsString());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ((*decoded)->prompt, (std::vector<int32_t>{1, 5, 9}));
  EXPECT_EQ(spec.prompt(), std::string("\1\0\0\0\5\0\0\0\11\0\0\0", 12)) << "little-endian";
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(**decoded), spec));
}

void ExpectHeadOfGoodSpec(const scheduler::RequestHead& head) {
  EXPECT_EQ(head.id, (scheduler::RequestId{7, 9}));
  EXPECT_EQ(head.model, "m");
  EXPECT_EQ(head.prompt_tokens, 3);
  EXPECT_EQ(head.max_tokens, 4);
  EXPECT_TRUE(head.want_prompt_logprobs);
  EXPECT_EQ(head.priority, -2);
  EXPECT_EQ(head.deadline_us, 1000000);
  EXPECT_EQ(head.names, std::vector<std::string>{"cmpl-1"});
  EXPECT_EQ(head.prompt_of, (scheduler::RequestId{7, 8}));
}

// What the orchestrator sends on is, byte for byte, what the router made, with fields that this
// build does not know.
TEST(Codec, AHeadHasWhatPlanningNeedsAndAllBytes) {
  const std::string encoded = GoodSpec().SerializeAsString() + "\xf2\x3f\x03new";
  const auto head = HeadFrom(encoded);
  ASSERT_TRUE(head.ok()) << head.status();
  ExpectHeadOfGoodSpec(**head);
  EXPECT_EQ(*(*head)->encoded, encoded);
  EXPECT_EQ(ToProto(scheduler::AssignOrder{*head, {3}, {8}}).spec(), encoded);
  EXPECT_EQ(ToProto(scheduler::AnnounceOrder{*head, {3}}).spec(), encoded);
  EXPECT_EQ(ToProto(scheduler::SubmitCalled{*head}).spec(), encoded);

  const scheduler::HeadPtr made = Encode(**SpecFrom(encoded));
  ExpectHeadOfGoodSpec(*made);
  v1::RequestSpec parsed;
  ASSERT_TRUE(parsed.ParseFromString(*made->encoded));
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, GoodSpec()));
}

TEST(Codec, ASubmissionSurvivesBothWays) {
  v1::SubmitRequest submit;
  submit.set_spec(GoodSpec().SerializeAsString());
  submit.set_plan_instances(4);
  submit.set_plan_tp(2);
  submit.set_accepted(true);
  submit.add_failed_engines(51);
  submit.set_moves(2);
  const auto decoded = FromProto(submit);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectHeadOfGoodSpec(*decoded->spec);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), submit));
}

TEST(Codec, AShapeThatCannotBeIsRefused) {
  v1::SubmitRequest submit;
  submit.set_spec(GoodSpec().SerializeAsString());
  const auto why = [&](uint32_t instances, uint32_t tp) {
    submit.set_plan_instances(instances);
    submit.set_plan_tp(tp);
    return std::string(FromProto(submit).status().message());
  };
  EXPECT_EQ(why(0, 0), "");
  EXPECT_EQ(why(8, 8), "");
  EXPECT_EQ(why(3, 1), "submit.plan_instances: 3 is not a power of two up to 1024");
  EXPECT_EQ(why(2048, 1), "submit.plan_instances: 2048 is not a power of two up to 1024");
  EXPECT_EQ(why(4, 3), "submit.plan_tp: 3 is not a power of two up to plan_instances, 4");
  EXPECT_EQ(why(0, 2), "submit.plan_tp: 2 is not a power of two up to plan_instances, 0");
}

TEST(Codec, ARegistrationSurvivesBothWays) {
  const auto decoded = FromProto(GoodRegistration());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->identity.shape.dtype, DType::kBF16);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), GoodRegistration()));
}

TEST(Codec, BytesOfABlockThatTheShapeDoesNotGiveAreRefused) {
  v1::RegisterRequest request = GoodRegistration();
  request.set_block_bytes(2048);
  EXPECT_EQ(FromProto(request).status(),
            absl::InvalidArgumentError("block_bytes: 2048 is not 4096, which the shape gives"));
  request.mutable_kv()->set_dtype(v1::DTYPE_F32);
  request.set_block_bytes(8192);
  EXPECT_TRUE(FromProto(request).ok());
}

TEST(Codec, AnAnnouncementSurvivesBothWays) {
  v1::AnnounceRequest reserve;
  reserve.set_spec(GoodSpec().SerializeAsString());
  reserve.set_epoch(3);
  reserve.add_writers(104);
  reserve.add_writers(106);
  const auto decoded = FromProto(reserve);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto order =
      scheduler::AnnounceOrder{Encode(*decoded->spec), decoded->epoch, decoded->writers};
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(order), reserve));
}

// Their KV goes to all ranks of the group.
TEST(Codec, AnAnnouncementForABoundGroupMayHaveWriters) {
  v1::AnnounceRequest announce;
  announce.set_spec(GoodSpec().SerializeAsString());
  announce.set_epoch(3);
  announce.add_writers(104);
  announce.set_formation(9);
  const auto decoded = FromProto(announce);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->formation, 9u);
  scheduler::AnnounceOrder order{Encode(*decoded->spec), decoded->epoch, decoded->writers};
  order.formation = decoded->formation;
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(order), announce));
}

TEST(Codec, AGrantOfABoundGroupNamesItsRanks) {
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

TEST(Codec, AnAnnouncementThatSharesAPromptHasNoWriters) {
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

TEST(Codec, ACommitSurvivesBothWays) {
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

TEST(Codec, ATokenStreamRequestSurvivesBothWays) {
  v1::TokenStreamRequest request;
  v1::TokenStreamRequest::Attach* attach = request.add_attach();
  *attach->mutable_id() = GoodSpec().id();
  attach->set_epoch(3);
  attach->set_credit(64);
  attach->set_traceparent("00-t");
  attach->set_ahead(true);
  v1::TokenStreamRequest::Credit* credit = request.add_credit();
  *credit->mutable_id() = GoodSpec().id();
  credit->set_epoch(3);
  credit->set_more(32);
  v1::TokenStreamRequest::Detach* detach = request.add_detach();
  *detach->mutable_id() = GoodSpec().id();
  detach->set_epoch(2);
  const auto decoded = FromProto(request);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), request));
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(v1::TokenStreamRequest()).status()));
}

v1::TokenBatch GoodBatch() {
  v1::TokenBatch batch;
  v1::TokenBatch::Sequence* first = batch.add_sequences();
  *first->mutable_id() = GoodSpec().id();
  first->set_epoch(3);
  for (const int32_t token : {7, 0, 9}) first->add_tokens(token);
  for (const char* sampled : {"a", "", "c"}) first->add_sampled(sampled);
  first->set_prompt_logprobs("scores");
  first->mutable_times()->set_queue_us(1);
  v1::TokenBatch::Sequence* second = batch.add_sequences();
  *second->mutable_id() = GoodSpec().id();
  second->set_epoch(4);
  second->set_first_index(17);
  second->add_tokens(5);
  second->mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
  second->mutable_finished()->set_output_tokens(19);
  second->mutable_finished()->set_stop_token(2);
  return batch;
}

TEST(Codec, ATokenBatchSurvivesBothWays) {
  const auto decoded = FromProto(GoodBatch());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), GoodBatch()));
}

TEST(Codec, AMalformedTokenBatchIsRefusedByName) {
  const auto named = [](const std::function<void(v1::TokenBatch::Sequence*)>& spoil) {
    v1::TokenBatch batch = GoodBatch();
    spoil(batch.mutable_sequences(1));
    const absl::Status status = FromProto(batch).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    const std::string message(status.message());
    return message.substr(0, message.find(':'));
  };
  EXPECT_EQ(named([](auto* s) { s->clear_id(); }), "id.router");
  EXPECT_EQ(named([](auto* s) { s->clear_epoch(); }), "epoch");
  EXPECT_EQ(named([](auto* s) { s->set_first_index(~0ull); }), "first_index");
  EXPECT_EQ(named([](auto* s) { s->add_tokens(-1); }), "tokens");
  EXPECT_EQ(named([](auto* s) { s->add_sampled(""), s->add_sampled(""); }), "sampled");
  EXPECT_EQ(named([](auto* s) { s->mutable_finished()->set_output_tokens(~0ull); }),
            "finished.output_tokens");
}

TEST(Codec, ADurationThatNoClockMeasuresIsRefusedByName) {
  v1::PrefillTimes times;
  times.set_prefill_us(uint64_t{1} << 51);
  EXPECT_TRUE(absl::StrContains(FromProto(times).status().message(), "times.prefill_us"));
  v1::PlanUpdate update;
  update.set_epoch(3);
  update.mutable_planned()->set_decided_us(uint64_t{1} << 51);
  EXPECT_TRUE(absl::StrContains(FromProto(update).status().message(), "planned.decided_us"));
}

TEST(Codec, ALeaseOfNothingOrOfMoreThanADayIsRefusedByFieldAndValue) {
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
TEST(Codec, AMalformedAnswerIsThePeersFault) {
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

// As the orchestrator would send it.
scheduler::AssignOrder OrderOf(const scheduler::AssignRequest& request) {
  return {Encode(*request.spec), request.epoch,      request.sequence, request.members,
          request.chunks,        request.from_chunk, request.placed,   request.suspect};
}

TEST(Codec, APlanSurvivesBothWays) {
  const auto decoded = FromProto(GoodPlan());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->chunks.size(), 2u);
  EXPECT_EQ(decoded->chunks[1].members, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(decoded->placed->decode.value, 9u);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(OrderOf(*decoded)), GoodPlan()));
}

TEST(Codec, APlainAssignHasNoMembers) {
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

TEST(Codec, AMalformedPlanIsRefusedByName) {
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

TEST(Codec, StartAndCancelSurviveBothWays) {
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
  cancel.clear_epoch();
  EXPECT_FALSE(FromProto(cancel).ok());
}

TEST(Codec, WhatComesOfAPlanSurvivesBothWays) {
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

TEST(Codec, AWorkersStateIsToldWithItsRegistration) {
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
      {}, {4}, 1000, {{{7, 1}, {3}}}, {5, {9}}, {"a", std::string("b\0c", 3)}}));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->cancel.at(0).epoch.value, 3u);
  EXPECT_EQ(welcome->generation, hello->seen);
  EXPECT_EQ(welcome->peers, (std::vector<std::string>{"a", std::string("b\0c", 3)}));
  EXPECT_EQ(FromProto(ToProto(scheduler::PeerOrder{"x"}))->comm_address, "x");
  EXPECT_FALSE(FromProto(v1::PeerOrder()).ok());
}

TEST(Codec, OrdersOfAFormationAndWhatIsToldOfItComeAsTheyWereSent) {
  const auto prepare = FromProto(ToProto(scheduler::PrepareFormation{5, 7, 2, 2, 1'000'000}));
  ASSERT_TRUE(prepare.ok()) << prepare.status();
  EXPECT_EQ(prepare->epoch, 5u);
  EXPECT_EQ(prepare->generation, 7u);
  EXPECT_EQ(prepare->first, 2);
  EXPECT_EQ(prepare->size, 2);
  EXPECT_EQ(prepare->keep_us, 1'000'000);
  EXPECT_EQ(prepare->own, scheduler::OwnSequences::kShare);
  EXPECT_FALSE(prepare->own_pause_us.has_value());
  for (const auto own :
       {scheduler::OwnSequences::kSequential, scheduler::OwnSequences::kSoftPreempt,
        scheduler::OwnSequences::kHardPreempt}) {
    const scheduler::PrepareFormation order = {
        .epoch = 5, .generation = 7, .size = 2, .shift_tokens = 64, .own = own, .own_pause_us = 0};
    const auto decoded = FromProto(ToProto(order));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->own, own);
    EXPECT_EQ(decoded->shift_tokens, 64);
    EXPECT_EQ(decoded->own_pause_us, 0);
  }
  EXPECT_EQ(FromProto(ToProto(scheduler::CommitFormation{5}))->epoch, 5u);
  const absl::Status why = absl::UnavailableError("rank 1: it died");
  for (const auto how : {scheduler::Switch::kSequential, scheduler::Switch::kHard}) {
    const auto end = FromProto(ToProto(scheduler::EndFormation{5, how, why}));
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->how, how);
    EXPECT_EQ(end->why, why);
  }
  using Phase = scheduler::FormationTold::Phase;
  for (const auto phase : {Phase::kPrepared, Phase::kBound, Phase::kEnded}) {
    const auto told = FromProto(ToProto(scheduler::FormationTold{5, phase, why, 20, 10}));
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->phase, phase);
    EXPECT_EQ(told->why, why);
    EXPECT_EQ(told->cut_over_us, 20);
    EXPECT_EQ(told->drain_us, 10);
  }
}

// Through staging buffers KV comes to the lead alone, in its own layout.
TEST(Codec, AnExplanationNamesTheGroupWhereItComputesTheRequest) {
  scheduler::Explanation explanation;
  explanation.plans.push_back({.decode = {3}, .formation = 2, .formation_epoch = 7});
  EXPECT_EQ(ToProto(explanation).plans(0).formation_epoch(), 7u);
  EXPECT_EQ(ToProto(explanation).plans(0).formation_instances(), 2u);
  explanation.plans[0].handoffs.push_back({.prefill = {1}});
  EXPECT_EQ(ToProto(explanation).plans(0).formation_epoch(), 7u);
  explanation.plans[0].handoffs[0].path.staging_buffer = true;
  EXPECT_EQ(ToProto(explanation).plans(0).formation_epoch(), 0u);
  EXPECT_EQ(ToProto(explanation).plans(0).decode_instance(), 3u);
}

TEST(Codec, AMalformedOrderOfAFormationNamesItsField) {
  const auto field = [](const auto& edit) {
    v1::PrepareFormation bad = ToProto(scheduler::PrepareFormation{5, 7, 2, 2, 1'000'000});
    edit(bad);
    return std::string(FromProto(bad).status().message());
  };
  EXPECT_EQ(field([](auto& bad) { bad.set_epoch(0); }), "epoch: is 0");
  EXPECT_EQ(field([](auto& bad) { bad.set_generation(0); }), "generation: is 0");
  EXPECT_EQ(field([](auto& bad) { bad.set_size(1); }), "size: 1 is below 2");
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_first(~0u); }), "first: 4294967295"));
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_keep_us(~0ull); }), "keep_us: "));
  EXPECT_TRUE(
      absl::StrContains(field([](auto& bad) { bad.set_own_pause_us(~0ull); }), "own_pause_us: "));
  EXPECT_EQ(field([](auto& bad) { bad.set_own(static_cast<v1::PrepareFormation::Own>(9)); }),
            "own: 9 is unknown");
  v1::EndFormation end = ToProto(scheduler::EndFormation{.epoch = 5});
  end.set_how(static_cast<v1::EndFormation::Switch>(9));
  EXPECT_EQ(std::string(FromProto(end).status().message()), "how: 9 is unknown");
  v1::FormationTold told = ToProto(scheduler::FormationTold{.epoch = 5});
  told.set_phase(static_cast<v1::FormationTold::Phase>(9));
  EXPECT_EQ(std::string(FromProto(told).status().message()), "phase: 9 is unknown");
}

TEST(Codec, AGroupOrderKeepsItsMembersAndNamesABadField) {
  const scheduler::GroupOrder order{
      .generation = uint64_t{1} << 60, .index = 1, .members = {{{3}, "a"}, {{9}, "b\0c"}}};
  const auto decoded = FromProto(ToProto(order));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->generation, order.generation);
  EXPECT_EQ(decoded->index, 1u);
  ASSERT_EQ(decoded->members.size(), 2u);
  EXPECT_EQ(decoded->members[1].instance, scheduler::InstanceId{9});
  EXPECT_EQ(decoded->members[1].comm_address, order.members[1].comm_address);
  const auto field = [&order](const auto& edit) {
    v1::GroupOrder bad = ToProto(order);
    edit(bad);
    return std::string(FromProto(bad).status().message());
  };
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_generation(0); }), "generation"));
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_index(2); }), "index: 2 of 2"));
  const auto twice = [](auto& bad) { bad.mutable_members(1)->set_instance(3); };
  EXPECT_TRUE(absl::StrContains(field(twice), "members.instance"));
  const auto nowhere = [](auto& bad) { bad.mutable_members(0)->clear_comm_address(); };
  EXPECT_TRUE(absl::StrContains(field(nowhere), "members.comm_address"));
}

TEST(Codec, AWorkerWithoutANodeLabelIsOfItsHost) {
  v1::RegisterRequest registration = GoodRegistration();
  EXPECT_EQ(FromProto(registration)->identity.node, "n");
  registration.clear_node();
  EXPECT_EQ(FromProto(registration)->identity.node, "h");
}

TEST(Codec, ARoutersStateIsToldWithItsHello) {
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

TEST(Codec, AHelloNumbersItsStream) {
  v1::RegisterRequest registration = GoodRegistration();
  EXPECT_EQ(FromProto(registration)->stream, 9u);
  registration.clear_stream();
  EXPECT_EQ(FromProto(registration).status().message(), "stream: is 0");
  v1::RouterHello hello;
  hello.mutable_identity()->set_router(7);
  hello.mutable_identity()->set_endpoint("r:80");
  EXPECT_EQ(FromProto(hello).status().message(), "stream: is 0");
}

TEST(Codec, WhatACellCanTakeHasLimits) {
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

TEST(Codec, WhatARouterHearsHasIds) {
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

TEST(Codec, ARouterSpeaksOfItsOwnRequestsOnly) {
  v1::RouterHello hello;
  hello.mutable_identity()->set_router(7);
  hello.mutable_identity()->set_endpoint("r:80");
  hello.add_requests()->mutable_id()->set_router(8);
  hello.mutable_requests(0)->mutable_id()->set_serial(1);
  EXPECT_TRUE(absl::StrContains(FromProto(hello).status().message(), "id.router: 8 is not 7"));
}

TEST(Codec, AGenerationHasANextOne) {
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

TEST(Codec, TheTalkAboutAStagingBufferSurvivesBothWays) {
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

TEST(Codec, AWriterIsNamed) {
  const scheduler::RequestId id{7, 9};
  EXPECT_EQ(FromProto(ToProto(scheduler::RenewRequest{id, {3}, {4}}))->prefill.value, 4u);
  const auto abort =
      FromProto(ToProto(scheduler::AbortRequest{id, {3}, absl::UnavailableError("x"), {4}, {5}}));
  EXPECT_EQ(abort->prefill.value, 4u);
  EXPECT_EQ(abort->incarnation.value, 5u);
}

TEST(Codec, AReportTellsTheChunks) {
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
  report.ended = {{.id = {7, 11},
                   .epoch = {5},
                   .status = absl::UnavailableError("the engine failed"),
                   .engine_failed = true,
                   .handoff = {"host-staged", "tcp (not cuda-ipc: no)", true, 3, true},
                   .ring = scheduler::RingPath{true, "ipc: no"}},
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
  EXPECT_FALSE(FromProto(ToProto(scheduler::DrainOrder{false}))->drain);
  EXPECT_TRUE(FromProto(ToProto(scheduler::OrderRouterDrain{{7}, true}))->drain);
  EXPECT_FALSE(FromProto(ToProto(scheduler::OrderRouterDrain{{7}, false}))->drain);
  EXPECT_EQ(decoded->held[0].chunk_running_us, 1500);
  EXPECT_EQ(decoded->held[1].chunk_running_us, -1);
  EXPECT_EQ(decoded->load.step_age_us, 2500);
  EXPECT_EQ(decoded->load.step_estimate_us, 100);
  EXPECT_TRUE(decoded->ended[0].engine_failed);
  EXPECT_EQ(decoded->ended[0].handoff, report.ended[0].handoff);
  EXPECT_EQ(decoded->ended[1].handoff, scheduler::HandoffPath{});
  EXPECT_EQ(decoded->ended[0].ring, report.ended[0].ring);
  EXPECT_EQ(decoded->ended[1].ring, std::nullopt);
  EXPECT_FALSE(decoded->ended[1].engine_failed);
  EXPECT_FALSE(decoded->ended[0].unclaimed);
  EXPECT_TRUE(decoded->ended[1].unclaimed);
}

TEST(Codec, FailedEnginesThatCannotBeAreRefused) {
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

TEST(Codec, EachPlanUpdateSurvivesBothWays) {
  for (const scheduler::PlanUpdate& update :
       {scheduler::PlanUpdate(scheduler::Planned{{3}, {4}, 1500, {{51}}}),
        scheduler::PlanUpdate(scheduler::Planned{{3}, {4}, 1500, {{51}}, {5}, "h:1", {6}}),
        scheduler::PlanUpdate(scheduler::Placed{{3}, {4}, "h:1", {6}}),
        scheduler::PlanUpdate(scheduler::Accepted{{{51}, {52}}}),
        scheduler::PlanUpdate(scheduler::PlanEnded{}),
        scheduler::PlanUpdate(scheduler::Failed{absl::UnavailableError("x")})}) {
    const auto decoded = FromProto(ToProto(update));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->index(), update.index());
    EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), ToProto(update)));
  }
}

TEST(Codec, ADecodePlaceWithoutAnEndpointOrAProcessIsRefused) {
  v1::PlanUpdate planned;
  planned.mutable_planned()->mutable_announced()->set_decode_instance(5);
  EXPECT_EQ(FromProto(planned).status(),
            absl::InvalidArgumentError("planned.announced.decode_endpoint: is empty"));
  v1::PlanUpdate placed;
  placed.mutable_placed()->set_decode_endpoint("h:1");
  EXPECT_EQ(FromProto(placed).status(),
            absl::InvalidArgumentError("placed.decode_incarnation: is 0"));
}

// By the orchestrator, and by the workers.
void ExpectRefused(const std::string& encoded, const std::string& named) {
  v1::SubmitRequest submit;
  submit.set_spec(encoded);
  v1::AssignRequest assign = GoodPlan();
  assign.set_spec(encoded);
  v1::AnnounceRequest announce;
  announce.set_spec(encoded);
  announce.set_epoch(3);
  for (const absl::Status& status :
       {FromProto(submit).status(), FromProto(assign).status(), FromProto(announce).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_NE(std::string(status.message()).find(named), std::string::npos) << status;
  }
}

struct BadSpec {
  const char* named;
  std::function<void(v1::RequestSpec*)> spoil;
};

TEST(Codec, AMalformedRequestIsRefusedByName) {
  const BadSpec cases[] = {
      {"id.router", [](auto* s) { s->mutable_id()->set_router(0); }},
      {"id.serial", [](auto* s) { s->mutable_id()->set_serial(0); }},
      {"model", [](auto* s) { s->clear_model(); }},
      {"prompt", [](auto* s) { s->clear_prompt(); }},
      {"prompt", [](auto* s) { s->set_prompt("12345"); }},
      {"max_tokens", [](auto* s) { s->set_max_tokens(4000000000u); }},
      {"deadline_us", [](auto* s) { s->set_deadline_us(~0ull); }},
      {"prompt_of: id.serial", [](auto* s) { s->mutable_prompt_of()->clear_serial(); }},
      {"names", [](auto* s) { s->add_names(std::string(300, 'n')); }},
      {"names",
       [](auto* s) {
         s->mutable_names()->Add("a"), s->add_names("b"), s->add_names("c"), s->add_names("d");
       }},
  };
  for (const BadSpec& bad : cases) {
    v1::RequestSpec spec = GoodSpec();
    bad.spoil(&spec);
    ExpectRefused(spec.SerializeAsString(), bad.named);
  }
  ExpectRefused("\x0f", "spec: is not a serialised RequestSpec");
}

// Flips random bits in good messages. Whatever still parses is accepted or refused and never
// crashes.
template <typename Message>
void FlipBytes(const Message& good, int rounds) {
  std::mt19937_64 random(1);
  const std::string bytes = good.SerializeAsString();
  for (int i = 0; i < rounds; ++i) {
    std::string spoiled = bytes;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      spoiled[random() % spoiled.size()] = static_cast<char>(random());
    }
    Message message;
    if (!message.ParseFromString(spoiled)) continue;
    const auto decoded = FromProto(message);
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(Codec, SpoiledMessagesAreAcceptedOrRefused) {
  v1::SubmitRequest submit;
  submit.set_spec(GoodSpec().SerializeAsString());
  FlipBytes(submit, 2000);
  FlipBytes(GoodRegistration(), 2000);
  FlipBytes(GoodPlan(), 2000);
  FlipBytes(GoodBatch(), 2000);
}

}  // namespace
}  // namespace skein::services
