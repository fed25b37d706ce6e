#include "services/skeinctl/planning/profile_samples.h"

#include "gtest/gtest.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

TEST(Profile, LengthsSpreadOverTheirLogarithm) {
  EXPECT_EQ(PromptLengths(10, 1000, 3), (std::vector<int64_t>{10, 100, 1000}));
  EXPECT_EQ(PromptLengths(2, 4, 9), (std::vector<int64_t>{2, 3, 4}));
}

TEST(Profile, MediansAreOfEachChunkApart) {
  const auto medians = Medians({{1, 0, 8, 3.0}, {1, 0, 8, 1.0}, {1, 8, 8, 9.0}, {1, 0, 8, 2.0}});
  ASSERT_EQ(medians.size(), 2u);
  EXPECT_EQ(medians[0].seconds, 2.0);
  EXPECT_EQ(medians[1].history_tokens, 8);
}

constexpr scheduler::PrefillShape kOne{.instances = 1}, kTwo{.instances = 2},
    kTwoInTp{.instances = 2, .tp = 2};

TEST(ProfileSamples, UsesWholePromptsAndNamesTheRest) {
  ProfileSamples samples;
  samples.Add(100, {{kOne, 0, 64, 0.1}, {kOne, 64, 36, 0.1}});
  samples.Add(50, {{kOne, 0, 50, 0.1}});
  EXPECT_TRUE(samples.complete());
  EXPECT_EQ(samples.Unused(), "");
  EXPECT_EQ(samples.samples().size(), 3u);
  samples.Add(343, {{kTwo, 0, 343, 0.1}});
  samples.Add(343, {});
  samples.Add(900, {{kOne, 0, 512, 0.5}});
  samples.Add(50, {{kOne, 0, 50, 0.1}, {kOne, 0, 7, 0.1}});
  EXPECT_EQ(samples.samples().size(), 3u);
  EXPECT_FALSE(samples.complete());
  EXPECT_EQ(samples.Unused(),
            "not used, computed by two or more instances: prompts of 343 (2 times), 900 (1 times) "
            "tokens\n"
            "not used, other requests ran meanwhile: prompts of 50 (1 times) tokens\n"
            "not measured: 2 of 4 lengths: 343, 900 tokens\n");
}

TEST(ProfileSamples, OfAShapeAreThoseThatWereComputedInIt) {
  ProfileSamples samples(kTwoInTp);
  samples.Add(100, {{kTwoInTp, 0, 64, 0.1}, {kTwoInTp, 64, 36, 0.3}});
  samples.Add(80, {{kTwo, 0, 80, 0.1}});
  samples.Add(80, {{kTwoInTp, 0, 80, 0.1}, {kOne, 0, 16, 0.1}});
  ASSERT_EQ(samples.samples().size(), 2u);
  EXPECT_EQ(samples.samples()[1].sp, 2) << "instances";
  EXPECT_EQ(samples.samples()[1].history_tokens, 64);
  EXPECT_EQ(samples.samples()[1].seconds, 0.3);
  EXPECT_EQ(samples.Unused(),
            "2 instances as SP 1 x TP 2: not used, computed in another shape: prompts of 80 (1 "
            "times) tokens\n"
            "2 instances as SP 1 x TP 2: not used, other requests ran meanwhile: prompts of 80 (1 "
            "times) tokens\n"
            "2 instances as SP 1 x TP 2: not measured: 1 of 2 lengths: 80 tokens\n");
}

TEST(Profile, CsvIsWhatFitReads) {
  const auto read = ParseSamples(SamplesCsv({{1, 512, 64, 0.125}, {2, 0, 16, 3e-4}}));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].history_tokens, 512);
  EXPECT_EQ((*read)[1].seconds, 3e-4);
}

}  // namespace
}  // namespace skein::services
