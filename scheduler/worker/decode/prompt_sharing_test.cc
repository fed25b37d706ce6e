#include "scheduler/worker/decode/prompt_sharing.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_parts.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

class PromptSharingTest : public testing::DecodePartsTest {
 protected:
  void AnnounceSharer(const SpecPtr& spec) {
    AnnounceCalled sharer = Announcement(spec);
    sharer.request.prompt_of = RequestId{7, 1};
    orders_.On(sharer);
  }
  // The first one's KV becomes whole, after the sharers were announced.
  void Share(const SpecPtr& first, const std::vector<SpecPtr>& sharers) {
    Announce(first);
    for (const SpecPtr& sharer : sharers) AnnounceSharer(sharer);
    DecodeSequence& sequence = MakeWhole(first);
    sharing_.ShareWithAll(sequence, {.has_token = true, .token = 40});
    sequences_.Run(sequence, "", {});
    sequences_.AddToken(sequence, 40, "");
    running_.Add(sequence, sequence.KnownTokens() - 1);
    Check();
  }
};

TEST_F(PromptSharingTest, AllBlocksButTheLastOfThePromptAreShared) {
  Share(Spec(1, 6), {Spec(2, 6), Spec(3, 6)});
  EXPECT_EQ(kv_in_.blocks().shared, 1);
  EXPECT_EQ(kv_in_.blocks().held, 1 + 3) << "each has its own second block";
  EXPECT_EQ(kv_in_.TableOf({7, 2})->at(0), kv_in_.TableOf({7, 1})->at(0));
  const std::vector<StepSequence> step = running_.NextStep();
  ASSERT_EQ(step.size(), 3u);
  for (const StepSequence& one : step) {
    if (one.id.serial == 1) continue;
    EXPECT_EQ(one.position, 4) << "from the block that it does not share";
    EXPECT_EQ(one.count, 2);
    EXPECT_TRUE(one.sample);
    EXPECT_EQ(one.token_index, 0) << "it samples its own first token";
  }
}

TEST_F(PromptSharingTest, AnotherPromptIsRefused) {
  auto other = Spec(2, 6);
  other->prompt.back() = 9;
  Share(Spec(1, 6), {other});
  EXPECT_EQ(sequences_.Find({7, 2}), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(Ended().at(2).status));
}

TEST_F(PromptSharingTest, WithoutRoomItIsPlannedElsewhere) {
  Share(Spec(1, 28), {Spec(2, 28)});
  EXPECT_EQ(kv_in_.blocks().shared, 0);
  EXPECT_TRUE(absl::IsUnavailable(Ended().at(2).status)) << "1 block wanted, all are kept";
}

TEST_F(PromptSharingTest, ASharedBlockIsFreeWhenAllHaveEnded) {
  Share(Spec(1, 6), {Spec(2, 6)});
  ends_.End(sequences_.at({7, 1}), FinishReason::kLength, absl::OkStatus());
  Check();
  EXPECT_TRUE(kv_in_.Has({7, 2})) << "it runs on";
  EXPECT_EQ(kv_in_.blocks().held, 2);
  ends_.End(sequences_.at({7, 2}), FinishReason::kLength, absl::OkStatus());
  EXPECT_EQ(kv_in_.blocks().held, 0);
}

}  // namespace
}  // namespace skein::scheduler
