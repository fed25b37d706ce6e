// The codec: requests, as routers submit them and as all others pass them on.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/codec/testing/good_messages.h"

namespace skein::services {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::GoodPlan;
using testing::GoodSpec;

TEST(RequestCodec, ARequestSurvivesBothWays) {
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
  EXPECT_EQ(head.tenant, "red");
  EXPECT_EQ(head.tenant_weight, 2);
  EXPECT_EQ(head.ttft_goal_us, 500'000);
  EXPECT_EQ(head.tpot_goal_us, 20'000);
  EXPECT_EQ(head.traceparent, GoodSpec().traceparent());
}

TEST(RequestCodec, ARequestOfAnOlderRouterBelongsToNobody) {
  v1::RequestSpec spec = GoodSpec();
  spec.clear_tenant();
  spec.clear_tenant_weight();
  const auto head = HeadFrom(spec.SerializeAsString());
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ((*head)->tenant, "");
  EXPECT_EQ((*head)->tenant_weight, 1);
}

// What the orchestrator sends on is, byte for byte, what the router made, with fields that this
// build does not know.
TEST(RequestCodec, AHeadHasWhatPlanningNeedsAndAllBytes) {
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

// It is the request of before under another id, behind what was sent of its answer.
TEST(RequestCodec, AFurtherAttemptGoesOnBehindWhatWasSent) {
  v1::RequestSpec good = GoodSpec();
  good.set_max_tokens(9);
  good.set_min_tokens(5);
  const scheduler::HeadPtr asked = *HeadFrom(good.SerializeAsString());
  const scheduler::SpecPtr before = *SpecFrom(*asked->encoded);
  const scheduler::RequestId id = asked->id.Attempt(2);
  const std::vector<int32_t> sent = {7, 8, 9};
  const scheduler::HeadPtr head = EncodeAttempt(*asked, id, sent);
  for (const scheduler::HeadPtr& one : {head, *HeadFrom(*head->encoded)}) {
    EXPECT_EQ(one->id, id);
    EXPECT_EQ(one->prompt_tokens, asked->prompt_tokens + 3);
    EXPECT_EQ(one->max_tokens, 6);
    EXPECT_FALSE(one->want_prompt_logprobs);
    EXPECT_FALSE(one->prompt_of.has_value());
    EXPECT_EQ(one->names, asked->names);
  }
  const auto spec = SpecFrom(*head->encoded);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ((*spec)->id, id);
  std::vector<int32_t> prompt = before->prompt;
  prompt.insert(prompt.end(), sent.begin(), sent.end());
  EXPECT_EQ((*spec)->prompt, prompt);
  EXPECT_EQ((*spec)->sent_tokens, 3);
  EXPECT_EQ((*spec)->max_tokens, 6);
  EXPECT_EQ((*spec)->min_tokens, 2);
  EXPECT_EQ((*spec)->sampling, before->sampling);
  EXPECT_FALSE((*spec)->want_prompt_logprobs);
  const scheduler::SpecPtr again = *SpecFrom(*Encode(**spec)->encoded);
  EXPECT_EQ(again->prompt, prompt);
  EXPECT_EQ(again->sent_tokens, 3);
  EXPECT_EQ(again->min_tokens, 2);

  scheduler::RequestHead later = *asked;
  later.deadline_us = 7'000;
  EXPECT_EQ((*SpecFrom(*EncodeAttempt(later, id, sent)->encoded))->deadline_us, 7'000);
  EXPECT_EQ(EncodeAttempt(later, id, sent)->deadline_us, 7'000);

  const scheduler::HeadPtr from_the_start = EncodeAttempt(*asked, id, {});
  EXPECT_EQ(from_the_start->max_tokens, 9);
  EXPECT_EQ(from_the_start->want_prompt_logprobs, asked->want_prompt_logprobs);
}

TEST(RequestCodec, NoAttemptIsBehindAWholeAnswer) {
  v1::RequestSpec spec = GoodSpec();
  spec.set_max_tokens(2);
  spec.set_sent(PackTokens({7, 8}));
  EXPECT_EQ(HeadFrom(spec.SerializeAsString()).status(),
            absl::InvalidArgumentError("sent: 2 tokens, and max_tokens is 2"));
  spec.set_sent("abc");
  EXPECT_EQ(SpecFrom(spec.SerializeAsString()).status(),
            absl::InvalidArgumentError("sent: 3 bytes are not whole tokens"));
}

TEST(RequestCodec, ASubmissionSurvivesBothWays) {
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

TEST(RequestCodec, AShapeThatCannotBeIsRefused) {
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

TEST(RequestCodec, AMalformedRequestIsRefusedByName) {
  const BadSpec cases[] = {
      {"id.router", [](auto* s) { s->mutable_id()->set_router(0); }},
      {"id.serial", [](auto* s) { s->mutable_id()->set_serial(0); }},
      {"model", [](auto* s) { s->clear_model(); }},
      {"prompt", [](auto* s) { s->clear_prompt(); }},
      {"prompt", [](auto* s) { s->set_prompt("12345"); }},
      {"max_tokens", [](auto* s) { s->set_max_tokens(4000000000u); }},
      {"deadline_us", [](auto* s) { s->set_deadline_us(~0ull); }},
      {"prompt_of: id.serial", [](auto* s) { s->mutable_prompt_of()->clear_serial(); }},
      {"ttft_goal_us", [](auto* s) { s->set_ttft_goal_us(~0ull); }},
      {"tpot_goal_us", [](auto* s) { s->set_tpot_goal_us(~0ull); }},
      {"tenant", [](auto* s) { s->set_tenant(std::string(300, 'n')); }},
      {"tenant_weight", [](auto* s) { s->set_tenant_weight(4000000000u); }},
      {"traceparent", [](auto* s) { s->set_traceparent(std::string(65, '0')); }},
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

}  // namespace
}  // namespace skein::services
