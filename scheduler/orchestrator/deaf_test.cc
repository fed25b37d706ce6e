// An orchestrator to which nothing comes any more while the streams of its workers and routers
// stand: it says so, once for each time of silence, and only then.
#include <memory>
#include <vector>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kLease = 3 * kSecondUs;
constexpr TimeUs kDeaf = kLease / 3;
constexpr TimeUs kTick = kLease / 16;  // how late a tick may find it out

class DeafTest : public OrchestratorCoreTest {
 protected:
  DeafTest() {
    prefill_ = Up(Role::kPrefill, 1);
    decode_ = Up(Role::kDecode, 2);
    RouterConnects(7);
  }
  std::vector<HearsNobody> SaysUntil(TimeUs end) { return Of<HearsNobody>(Until(end)); }

  InstanceId prefill_, decode_;
};

TEST_F(DeafTest, AllFallSilentAtOnceAndTheirStreamsStand) {
  EXPECT_TRUE(SaysUntil(now_ + kDeaf - kTick).empty());
  EXPECT_EQ(SaysUntil(now_ + 2 * kTick).size(), 1u);
  EXPECT_TRUE(SaysUntil(now_ + kDeaf - 2 * kTick).empty()) << "it was said";
}

TEST_F(DeafTest, OneThatSpeaksIsEnough) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(SaysUntil(now_ + kDeaf / 2).empty());
    Do(RouterReported{router_stream_, {}});
  }
  for (int i = 0; i < 5; ++i) {
    decode_ = Up(Role::kDecode, 2);
    EXPECT_TRUE(SaysUntil(now_ + kDeaf / 2).empty());
  }
}

TEST_F(DeafTest, AnOperatorsOrderIsNotTheirWord) {
  for (int i = 0; i < 4; ++i) {
    Until(now_ + kDeaf / 4 - kTick / 4);
    Do(DrainCalled{Call(), {.instance = decode_, .undo = true}});
  }
  EXPECT_EQ(SaysUntil(now_ + 4 * kTick).size(), 1u);
}

// Processes that end close their streams: then nobody is left to be heard.
TEST_F(DeafTest, NobodyIsThereAnyMore) {
  core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = kGeneration});
  const TimeUs begin = now_;
  EXPECT_TRUE(SaysUntil(begin + 10 * kLease).empty()) << "nobody has come";
  RouterConnects(7);
  const CallId seven = router_stream_;
  EXPECT_TRUE(SaysUntil(now_ + kDeaf + kTick).empty()) << "one alone";
  RouterConnects(8);
  Do(RouterDisconnected{seven});
  EXPECT_TRUE(SaysUntil(now_ + 10 * kLease).empty());
}

TEST_F(DeafTest, AStandstillOfItsOwnIsNoSilence) {
  now_ += 100 * kLease;
  EXPECT_TRUE(Of<HearsNobody>(Do(OrchestratorTick{})).empty());
  EXPECT_TRUE(SaysUntil(now_ + kDeaf / 2).empty());
  EXPECT_EQ(SaysUntil(now_ + kDeaf).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
