#include "bench/formations/request_lengths.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace skein::bench {
namespace {

int64_t MeanPrompt(const LengthQuantiles& lengths, std::vector<scheduler::GroupRequest> requests) {
  MixLengths(lengths, lengths, 5, &requests);
  int64_t sum = 0;
  for (const scheduler::GroupRequest& request : requests) {
    EXPECT_GE(request.prompt_tokens, lengths.prompt.front());
    EXPECT_LE(request.prompt_tokens, lengths.prompt.back());
    EXPECT_GE(request.output_tokens, 1);
    EXPECT_LE(request.output_tokens, lengths.output.back());
    sum += request.prompt_tokens;
  }
  return sum / static_cast<int64_t>(requests.size());
}

// The means of the published requests are 113, 12,035 and 1,155 tokens of prompts. Straight lines
// between deciles make long tails heavier.
TEST(RequestLengths, HaveThePublishedQuantiles) {
  const std::vector<scheduler::GroupRequest> requests(20'000);
  EXPECT_NEAR(MeanPrompt(HumanEvalLengths(), requests), 118, 5);
  EXPECT_NEAR(MeanPrompt(MooncakeLengths(), requests), 14'900, 700);
  EXPECT_NEAR(MeanPrompt(AzureLengths(), requests), 1'600, 100);
  for (const LengthQuantiles* lengths :
       {&HumanEvalLengths(), &MooncakeLengths(), &AzureLengths()}) {
    EXPECT_TRUE(std::is_sorted(lengths->prompt.begin(), lengths->prompt.end()));
    EXPECT_TRUE(std::is_sorted(lengths->output.begin(), lengths->output.end()));
  }
}

TEST(RequestLengths, AMixHasHalfOfEach) {
  std::vector<scheduler::GroupRequest> requests(2'000);
  MixLengths(HumanEvalLengths(), MooncakeLengths(), 1, &requests);
  const auto is_long = [](const scheduler::GroupRequest& one) { return one.prompt_tokens > 400; };
  EXPECT_NEAR(std::count_if(requests.begin(), requests.end(), is_long), 1'000, 100);
  std::vector<scheduler::GroupRequest> again(2'000);
  MixLengths(HumanEvalLengths(), MooncakeLengths(), 1, &again);
  EXPECT_EQ(again[1'999].prompt_tokens, requests[1'999].prompt_tokens);
}

}  // namespace
}  // namespace skein::bench
