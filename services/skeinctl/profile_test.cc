#include "services/skeinctl/profile.h"

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

TEST(Profile, CsvIsWhatFitReads) {
  const auto read = ParseSamples(SamplesCsv({{1, 512, 64, 0.125}, {2, 0, 16, 3e-4}}));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].history_tokens, 512);
  EXPECT_EQ((*read)[1].seconds, 3e-4);
}

}  // namespace
}  // namespace skein::services
