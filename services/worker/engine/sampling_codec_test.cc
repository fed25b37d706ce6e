#include "services/worker/engine/sampling_codec.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabulary = 4;

struct Asked {
  scheduler::RequestSpec spec;
  v1::SamplingParams sampling;

  Asked() {
    spec.prompt = {0, 3};
    spec.max_tokens = 5;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
  }
};

template <typename Edit>
std::string Refusal(Edit edit) {
  Asked asked;
  edit(asked);
  asked.spec.sampling = asked.sampling.SerializeAsString();
  const absl::Status status = CheckSpec(asked.spec, kVocabulary);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(CheckSpecTest, NamesIdsOutsideTheVocabulary) {
  EXPECT_EQ(Refusal([](Asked&) {}), "");
  EXPECT_EQ(Refusal([](Asked& a) { a.spec.prompt[1] = 4; }), "prompt[1] = 4: must be from 0 to 3");
  EXPECT_THAT(Refusal([](Asked& a) { a.spec.prompt[0] = -1; }), HasSubstr("prompt[0] = -1"));
  const auto biased = [](Asked& a) {
    v1::LogitBias* bias = a.sampling.add_logit_bias();
    bias->set_token(4);
    bias->set_bias(1);
  };
  EXPECT_THAT(Refusal(biased), HasSubstr("logit_bias"));
}

TEST(CheckSpecTest, NamesWhatNobodyOnTheWayParses) {
  EXPECT_EQ(Refusal([](Asked& a) { a.spec.min_tokens = 6; }),
            "min_tokens: 6 is above max_tokens 5");
  EXPECT_EQ(Refusal([](Asked& a) {
              a.spec.stop_token_ids = {2, -1};
            }),
            "stop_token_ids[1]: -1 is not a token id");
}

TEST(CheckSpecTest, NamesSamplingParametersThatAreOutOfRange) {
  const auto edited = [](auto edit) { return Refusal([&](Asked& a) { edit(a.sampling); }); };
  EXPECT_THAT(edited([](auto& s) { s.set_temperature(-1); }), HasSubstr("sampling.temperature"));
  EXPECT_THAT(edited([](auto& s) { s.set_temperature(NAN); }), HasSubstr("sampling.temperature"));
  EXPECT_THAT(edited([](auto& s) { s.set_top_p(0); }), HasSubstr("sampling.top_p"));
  EXPECT_THAT(edited([](auto& s) { s.set_min_p(2); }), HasSubstr("sampling.min_p"));
  EXPECT_THAT(edited([](auto& s) { s.set_top_k(-1); }), HasSubstr("sampling.top_k"));
  EXPECT_THAT(edited([](auto& s) { s.set_repetition_penalty(0); }),
              HasSubstr("sampling.repetition_penalty"));
  EXPECT_THAT(edited([](auto& s) { s.add_logit_bias()->set_bias(INFINITY); }),
              HasSubstr("sampling.logit_bias"));
  scheduler::RequestSpec spec = Asked().spec;
  spec.sampling = "\x0f";
  EXPECT_THAT(CheckSpec(spec, kVocabulary).message(), HasSubstr("sampling: "));
}

TEST(CheckSpecTest, RefusesWhatLeavesNoTokenToSample) {
  const auto all_stop = [](Asked& a) {
    a.spec.stop_token_ids = {0, 1, 2, 3};
    a.spec.min_tokens = 1;
  };
  EXPECT_THAT(Refusal(all_stop), HasSubstr("leave no token to sample"));
  EXPECT_EQ(Refusal([&](Asked& a) {
              all_stop(a);
              a.spec.stop_token_ids.pop_back();
            }),
            "");
  EXPECT_EQ(Refusal([&](Asked& a) {
              all_stop(a);
              a.spec.min_tokens = 0;
            }),
            "");
  EXPECT_EQ(Refusal([&](Asked& a) {
              all_stop(a);
              a.spec.min_tokens = a.spec.max_tokens = 0;
            }),
            "")
      << "nothing is sampled";
}

}  // namespace
}  // namespace skein::services
