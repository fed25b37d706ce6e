#include "services/codec/codec.h"

#include <cmath>
#include <functional>
#include <random>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

using google::protobuf::util::MessageDifferencer;

v1::SamplingParams GoodSampling() {
  v1::SamplingParams s;
  s.set_temperature(0.7f);
  s.set_top_p(0.9f);
  s.set_repetition_penalty(1.1f);
  s.set_seed(42);
  s.set_top_logprobs(-1);
  auto* bias = s.add_logit_bias();
  bias->set_token(3);
  bias->set_bias(-2);
  return s;
}

v1::RequestSpec GoodSpec() {
  v1::RequestSpec spec;
  spec.mutable_id()->set_router(7);
  spec.mutable_id()->set_serial(9);
  spec.set_model("m");
  for (int token : {1, 5, 9}) spec.add_prompt(token);
  spec.set_max_tokens(4);
  spec.set_min_tokens(1);
  spec.add_stop_token_ids(2);
  *spec.mutable_sampling() = GoodSampling();
  spec.set_want_prompt_logprobs(true);
  spec.set_priority(-1);
  spec.set_deadline_us(1000000);
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
  r.mutable_layout()->set_tp(1);
  r.set_block_bytes(4096);
  r.set_max_positions(2048);
  r.set_admin_endpoint("127.0.0.1:2");
  r.set_host("h");
  r.set_pid(12);
  r.set_version("1");
  return r;
}

TEST(Codec, ARequestSurvivesBothWays) {
  const v1::RequestSpec spec = GoodSpec();
  const auto decoded = FromProto(spec);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(**decoded), spec));
}

TEST(Codec, ARegistrationSurvivesBothWays) {
  const auto decoded = FromProto(GoodRegistration());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->identity.shape.dtype, "bf16");
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), GoodRegistration()));
}

TEST(Codec, ACommitSurvivesBothWays) {
  v1::CommitRequest commit;
  *commit.mutable_id() = GoodSpec().id();
  commit.set_epoch(3);
  commit.add_layer_bytes(64);
  commit.add_layer_bytes(64);
  commit.mutable_first()->set_token(11);
  commit.mutable_first()->set_logprob(-0.5f);
  commit.mutable_first()->add_top()->set_token(11);
  commit.add_prompt_logprobs()->set_token(5);
  const auto decoded = FromProto(commit);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(*decoded), commit));
}

TEST(Codec, EachPlanUpdateSurvivesBothWays) {
  for (const scheduler::PlanUpdate& update :
       {scheduler::PlanUpdate(scheduler::Planned{{3}, {4}}),
        scheduler::PlanUpdate(scheduler::Placed{{3}, {4}, "h:1"}),
        scheduler::PlanUpdate(scheduler::Failed{absl::UnavailableError("x")})}) {
    const auto decoded = FromProto(ToProto(update));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->index(), update.index());
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
      {"prompt[1]", [](auto* s) { s->set_prompt(1, -4); }},
      {"max_tokens", [](auto* s) { s->set_max_tokens(4000000000u); }},
      {"min_tokens", [](auto* s) { s->set_min_tokens(99); }},
      {"stop_token_ids[0]", [](auto* s) { s->set_stop_token_ids(0, -1); }},
      {"deadline_us", [](auto* s) { s->set_deadline_us(~0ull); }},
      {"sampling.temperature", [](auto* s) { s->mutable_sampling()->set_temperature(-1); }},
      {"sampling.temperature", [](auto* s) { s->mutable_sampling()->set_temperature(NAN); }},
      {"sampling.top_p", [](auto* s) { s->mutable_sampling()->set_top_p(0); }},
      {"sampling.min_p", [](auto* s) { s->mutable_sampling()->set_min_p(2); }},
      {"sampling.top_k", [](auto* s) { s->mutable_sampling()->set_top_k(-1); }},
      {"sampling.repetition_penalty",
       [](auto* s) { s->mutable_sampling()->set_repetition_penalty(0); }},
      {"sampling.logit_bias",
       [](auto* s) { s->mutable_sampling()->mutable_logit_bias(0)->set_bias(INFINITY); }},
  };
  for (const BadSpec& bad : cases) {
    v1::RequestSpec spec = GoodSpec();
    bad.spoil(&spec);
    const auto decoded = FromProto(spec);
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument) << bad.named;
    EXPECT_NE(std::string(decoded.status().message()).find(bad.named), std::string::npos)
        << decoded.status();
  }
}

// Random bytes flipped in good messages: whatever still parses is accepted or refused, never a
// crash.
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
  FlipBytes(GoodSpec(), 2000);
  FlipBytes(GoodRegistration(), 2000);
}

}  // namespace
}  // namespace skein::services
