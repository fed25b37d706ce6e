#include "scheduler/router/cell_sessions.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace skein::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 3 * kSecondUs;

class CellSessionsTest : public ::testing::Test {
 protected:
  CellSessionsTest() { cells_.Join({.router = 7, .endpoint = "r:1"}, now_); }
  void TearDown() override { Check(); }

  void Check() { EXPECT_TRUE(cells_.CheckInvariants().ok()) << cells_.CheckInvariants(); }
  // What is due now, by cell; of each cell at most one.
  std::map<size_t, SessionEffect> Due() {
    std::map<size_t, SessionEffect> effects;
    for (const size_t cell : cells_.TakeDue(now_)) {
      const auto due = [this, cell] {
        return cells_.Due(
            cell, now_, [] { return RouterLoad{}; }, [] { return std::vector<RouterRequest>{}; });
      };
      if (auto effect = due()) effects.emplace(cell, *std::move(effect));
      EXPECT_FALSE(due().has_value());
    }
    Check();
    return effects;
  }
  template <class Effect>
  static bool Has(const std::map<size_t, SessionEffect>& effects, size_t cell) {
    const auto it = effects.find(cell);
    return it != effects.end() && std::holds_alternative<Effect>(it->second);
  }
  // REQUIRES that its stream may be opened now.
  void Welcome(size_t cell, CellLoads models) {
    Due();
    EXPECT_TRUE(cells_.OnWelcomed(cell,
                                  {.status = absl::OkStatus(),
                                   .generation = {1, {10 + cell}},
                                   .lease_us = kLeaseUs,
                                   .cell = {.models = std::move(models)}},
                                  now_));
    Check();
  }
  void Break(size_t cell) {
    cells_.OnBroken(cell, absl::UnavailableError("connection lost"), now_);
    Check();
  }
  std::optional<size_t> Choose(const std::string& model, const std::set<size_t>& left = {}) {
    return cells_.Choose(model, /*affinity=*/0, left);
  }

  TimeUs now_ = 0;
  CellSessions cells_{2, SessionConfig{}};
};

TEST_F(CellSessionsTest, EachCellIsReadyFromItsOwnWelcomeOn) {
  const auto opened = Due();
  EXPECT_TRUE(Has<OpenLink>(opened, 0) && Has<OpenLink>(opened, 1));
  EXPECT_FALSE(cells_.ready(1));
  EXPECT_TRUE(cells_.lost(1)) << "it was never there";
  Welcome(1, {{"m", {10, 0}}});
  EXPECT_TRUE(cells_.ready(1));
  EXPECT_FALSE(cells_.lost(1));
  EXPECT_FALSE(cells_.ready(0));
}

TEST_F(CellSessionsTest, ACellIsLostALeaseAfterItsStreamBrokeWhateverIsTried) {
  Welcome(0, {{"m", {10, 0}}});
  Break(0);
  EXPECT_FALSE(cells_.ready(0));
  EXPECT_EQ(cells_.broken(0), absl::UnavailableError("connection lost"));
  int attempts = 0;
  std::optional<size_t> lost;
  while (!lost.has_value()) {
    EXPECT_FALSE(cells_.lost(0));
    ASSERT_LE(cells_.NextDeadline(), kLeaseUs);
    now_ = std::max(now_, cells_.NextDeadline());
    lost = cells_.TakeLost(now_);
    if (!Has<OpenLink>(Due(), 0)) continue;
    ++attempts;
    Break(0);
  }
  EXPECT_EQ(*lost, 0u);
  EXPECT_EQ(now_, kLeaseUs);
  EXPECT_GT(attempts, 3);
  EXPECT_TRUE(cells_.lost(0));
  EXPECT_EQ(cells_.TakeLost(now_), std::nullopt) << "it is told once";
}

TEST_F(CellSessionsTest, ACellThatComesBackWithinItsLeaseIsNotLost) {
  Welcome(0, {{"m", {10, 0}}});
  Break(0);
  now_ += kSecondUs;
  Welcome(0, {{"m", {10, 0}}});
  EXPECT_EQ(cells_.TakeLost(now_ + kLeaseUs), std::nullopt);
  EXPECT_FALSE(cells_.lost(0));
}

TEST_F(CellSessionsTest, ARequestGoesWhereItsModelHasRoom) {
  EXPECT_EQ(Choose("m"), std::nullopt) << "no cell is ready";
  Welcome(0, {{"m", {10, 10}}, {"other", {10, 0}}});
  Welcome(1, {{"m", {10, 0}}});
  EXPECT_EQ(Choose("m"), 1u);
  EXPECT_EQ(Choose("other"), 0u);
  EXPECT_EQ(Choose("m", {1}), 0u) << "it left the other one";
  EXPECT_EQ(Choose("m", {0, 1}), std::nullopt);
  cells_.OnRefused(1, "m");
  cells_.OnReportTaken(0, {.models = {{"m", {10, 0}}}}, now_);
  EXPECT_EQ(Choose("m"), 0u);
}

TEST_F(CellSessionsTest, AModelThatNoReadyCellServesIsForAReadyCellToRefuseUnlessItMayComeBack) {
  Welcome(0, {{"other", {10, 0}}});
  Welcome(1, {{"m", {10, 0}}});
  EXPECT_EQ(Choose("unknown"), 0u);
  EXPECT_EQ(Choose("unknown", {0}), 1u);
  Break(1);
  EXPECT_EQ(Choose("m"), std::nullopt) << "the cell that served it may come back";
  EXPECT_EQ(Choose("m", {1}), 0u) << "it was there already";
  EXPECT_EQ(Choose("unknown"), 0u);
  now_ += kSecondUs;
  Welcome(1, {{"m", {0, 0}}});  // it has no instances of it any more
  EXPECT_EQ(Choose("m"), 0u);
}

TEST_F(CellSessionsTest, ALateReportOfABrokenStreamChangesNothing) {
  Welcome(0, {{"m", {10, 0}}});
  Break(0);
  cells_.OnReportTaken(0, {.models = {{"m", {10, 0}}, {"other", {10, 0}}}}, now_);
  Check();
  EXPECT_EQ(Choose("m"), std::nullopt);
  EXPECT_FALSE(cells_.ready(0));
}

TEST_F(CellSessionsTest, ACellThatWasLeftIsNotLost) {
  Welcome(0, {{"m", {10, 0}}});
  cells_.Leave(now_);
  auto due = Due();
  EXPECT_TRUE(Has<SendRouterGoodbye>(due, 0));
  cells_.OnGoodbyeTaken(0, now_);
  Check();
  EXPECT_FALSE(cells_.ready(0));
  EXPECT_EQ(Choose("m"), std::nullopt);
  due = Due();
  EXPECT_TRUE(Has<RouterHasLeft>(due, 0));
  EXPECT_EQ(cells_.TakeLost(now_ + 2 * kLeaseUs), std::nullopt);
}

TEST_F(CellSessionsTest, ASilentOrchestratorsStreamIsClosedAndItsCellIsLost) {
  Welcome(0, {{"m", {10, 0}}});
  bool closed = false;
  while (!closed && now_ < kLeaseUs) {
    now_ = cells_.NextDeadline();
    closed = Has<CloseLink>(Due(), 0);
  }
  EXPECT_TRUE(closed) << "its report was not answered";
  EXPECT_FALSE(cells_.ready(0));
  EXPECT_EQ(Choose("m"), std::nullopt);
  EXPECT_EQ(cells_.TakeLost(now_ + kLeaseUs - 1), std::nullopt);
  EXPECT_EQ(cells_.TakeLost(now_ + kLeaseUs), 0u);
}

}  // namespace
}  // namespace skein::scheduler
