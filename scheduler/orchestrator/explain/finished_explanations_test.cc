#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/explain/explanation.h"

namespace skein::scheduler {
namespace {

constexpr InstanceId kPrefill{1}, kOtherPrefill{2}, kDecode{3};
constexpr Epoch kEpoch{5};

class FinishedExplanationsTest : public ::testing::Test {
 protected:
  // One that took 100 us, by a plan of one chunk, and is named "odd" or "even".
  static Explanation One(uint64_t serial) {
    Explanation one;
    one.id = {7, serial};
    one.names = {serial % 2 == 1 ? "odd" : "even"};
    one.model = "m";
    one.state = kCancelledByRouter;
    one.provisional = true;
    one.ended_us = 100;
    one.plans.push_back({.epoch = kEpoch, .ttft_s = 60e-6});
    one.plans[0].chunks.push_back({.tokens = 8, .instances = {kPrefill, kOtherPrefill}});
    return one;
  }
  static EndedRequest Ended(uint64_t serial, absl::Status status = absl::OkStatus()) {
    return {{7, serial}, kEpoch, FinishReason::kLength, std::move(status)};
  }
  std::vector<Explanation> Named(const std::string& name, size_t limit = 10) const {
    std::vector<Explanation> found;
    finished_.Find(name, now_, limit, &found);
    return found;
  }
  std::vector<uint64_t> Serials(const std::string& name, size_t limit = 10) const {
    std::vector<uint64_t> serials;
    for (const Explanation& one : Named(name, limit)) serials.push_back(one.id.serial);
    return serials;
  }
  void TearDown() override {
    EXPECT_TRUE(finished_.CheckInvariants().ok()) << finished_.CheckInvariants();
  }

  TimeUs now_ = 1000;
  FinishedExplanations finished_{3};
};

TEST_F(FinishedExplanationsTest, KeepsTheLatestAndFindsThemByIdAndByName) {
  for (uint64_t serial = 1; serial <= 5; ++serial) finished_.Add(now_, One(serial), {});
  EXPECT_EQ(finished_.size(), 3u);
  EXPECT_EQ(finished_.Find({7, 2}), nullptr);
  ASSERT_NE(finished_.Find({7, 3}), nullptr);
  EXPECT_EQ(Serials("odd"), (std::vector<uint64_t>{5, 3}));
  EXPECT_EQ(Serials("even"), (std::vector<uint64_t>{4}));
  EXPECT_EQ(Serials("odd", 1), (std::vector<uint64_t>{5}));
  EXPECT_EQ(Serials("7/4"), (std::vector<uint64_t>{4}));
  EXPECT_TRUE(Serials("7/1").empty());
  now_ += 50;
  EXPECT_EQ(Named("even").at(0).age_us, 150) << "since its submission";
}

TEST_F(FinishedExplanationsTest, ARequestOfTheSameIdHidesTheFormerOne) {
  finished_.Add(now_, One(1), {.epoch = kEpoch, .prefill = {}, .decode = kDecode});
  Explanation again = One(1);
  again.state = "failed";
  finished_.Add(now_, std::move(again), {});
  EXPECT_EQ(finished_.Find({7, 1})->state, "failed");
  EXPECT_EQ(Serials("odd").size(), 2u);
  finished_.Add(now_, One(2), {});
  finished_.Add(now_, One(4), {});  // the former one is forgotten
  EXPECT_EQ(finished_.Find({7, 1})->state, "failed");
}

TEST_F(FinishedExplanationsTest, TheDecodeInstanceTellsHowARequestEnded) {
  finished_.Add(now_, One(1), {.epoch = kEpoch, .prefill = {kPrefill}, .decode = kDecode});
  EndedRequest former = Ended(1);
  former.epoch = {4};
  finished_.TakeEnded(former, kDecode);
  EXPECT_TRUE(finished_.Find({7, 1})->provisional) << "that was another plan";
  EXPECT_TRUE(finished_.totals().empty());
  finished_.TakeEnded(Ended(1), kDecode);
  const Explanation& one = *finished_.Find({7, 1});
  EXPECT_FALSE(one.provisional);
  EXPECT_EQ(one.state, CompletedBy(FinishReason::kLength));
  EXPECT_EQ(one.prefilled_us, 100);
  EXPECT_EQ(finished_.totals().at("m").plans_by_chunks.at(1), 1u);
}

TEST_F(FinishedExplanationsTest, AllPartsOfThePromptMustBeCommitted) {
  finished_.Add(now_, One(1),
                {.epoch = kEpoch, .prefill = {kPrefill, kOtherPrefill}, .decode = {}});
  finished_.TakeEnded(Ended(1), kPrefill);
  finished_.TakeEnded(Ended(1), kPrefill);  // duplicate
  EXPECT_EQ(finished_.Find({7, 1})->prefilled_us, -1);
  finished_.TakeEnded(Ended(1), kOtherPrefill);
  EXPECT_EQ(finished_.Find({7, 1})->prefilled_us, 100);
  EXPECT_EQ(finished_.Find({7, 1})->state, kEndedByRouter);
}

TEST_F(FinishedExplanationsTest, APartThatIsNotCommittedLeavesTheFirstAnswer) {
  finished_.Add(now_, One(1),
                {.epoch = kEpoch, .prefill = {kPrefill, kOtherPrefill}, .decode = {}});
  finished_.TakeEnded(Ended(1, absl::CancelledError("x")), kPrefill);
  finished_.TakeEnded(Ended(1), kPrefill);
  finished_.TakeEnded(Ended(1), kOtherPrefill);
  EXPECT_EQ(finished_.Find({7, 1})->state, kCancelledByRouter);
  EXPECT_EQ(finished_.Find({7, 1})->prefilled_us, -1);
  EXPECT_TRUE(finished_.totals().empty());
}

TEST_F(FinishedExplanationsTest, TheRoutersReportCountsAPlanAndAFailureOnce) {
  finished_.Add(now_, One(1), {});
  finished_.Add(now_, One(2), {});
  const RouterEnd completed{
      .id = {7, 1}, .how = RouterEnd::How::kMaxTokens, .output_tokens = 4, .first_token_us = 80};
  EXPECT_FALSE(finished_.TakeRouterEnd(completed));
  EXPECT_FALSE(finished_.TakeRouterEnd(completed));
  EXPECT_EQ(finished_.Find({7, 1})->prefilled_us, 80);
  const PlanTotals& totals = finished_.totals().at("m");
  EXPECT_EQ(totals.plans_by_chunks.at(1), 1u);
  EXPECT_EQ(totals.chunks_by_shape.at({2, 1}), 1u);
  EXPECT_NEAR(totals.estimated_s, 60e-6, 1e-12);
  EXPECT_NEAR(totals.actual_s, 80e-6, 1e-12);
  EXPECT_NEAR(totals.error_s, 20e-6, 1e-12);

  const RouterEnd failed{.id = {7, 2}, .how = RouterEnd::How::kFailed, .why = "engine"};
  EXPECT_TRUE(finished_.TakeRouterEnd(failed));
  EXPECT_FALSE(finished_.TakeRouterEnd(failed));
  const RouterEnd unknown{.id = {7, 9}, .how = RouterEnd::How::kFailed, .why = "engine"};
  EXPECT_FALSE(finished_.TakeRouterEnd(unknown));
}

TEST(NoFinishedExplanationsTest, NothingIsKeptWithALimitOfZero) {
  FinishedExplanations none(0);
  Explanation one;
  one.id = {7, 1};
  none.Add(0, one, {.epoch = kEpoch, .prefill = {}, .decode = kDecode});
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(none.Find({7, 1}), nullptr);
  EXPECT_TRUE(none.CheckInvariants().ok()) << none.CheckInvariants();
}

}  // namespace
}  // namespace skein::scheduler
