// An address that tries keys is slowed down, and no other.
#include "scheduler/tenants/guess_guard.h"

#include <gtest/gtest.h>

namespace skein::scheduler::tenants {
namespace {

constexpr TimeUs kStart = 1'000'000'000;

TEST(GuessGuardTest, AfterTheFreeTriesEachWrongKeyHoldsTheAddressForTwiceAsLong) {
  GuessGuard guard;
  TimeUs now = kStart;
  for (int i = 0; i < GuessGuard::kFreeTries; ++i) {
    EXPECT_EQ(guard.HeldFor("a", "k", now), 0);
    guard.Wrong("a", now);
  }
  EXPECT_EQ(guard.HeldFor("a", "k", now), 0);
  for (const TimeUs wanted : {1, 2, 4, 8, 16, 32, 60, 60}) {
    guard.Wrong("a", now);
    EXPECT_EQ(guard.HeldFor("a", "k", now), wanted * 1'000'000);
    EXPECT_EQ(guard.HeldFor("b", "k", now), 0) << "another address";
    now += wanted * 1'000'000;
    EXPECT_EQ(guard.HeldFor("a", "k", now), 0) << "when it is over";
  }
}

TEST(GuessGuardTest, AGuesserThatNeverStopsTriesFewKeys) {
  GuessGuard guard;
  int looked_at = 0;
  const TimeUs hour = 3'600'000'000;
  for (TimeUs now = kStart; now < kStart + hour; now += 100'000) {
    if (guard.HeldFor("a", "k", now) > 0) continue;
    ++looked_at;
    guard.Wrong("a", now);
  }
  EXPECT_LE(looked_at, GuessGuard::kFreeTries + 7 + 60);
}

TEST(GuessGuardTest, KeysThatWereRightFromTheAddressGoOn) {
  GuessGuard guard;
  guard.Right("a", "known");
  for (int i = 0; i <= GuessGuard::kFreeTries; ++i) guard.Wrong("a", kStart);
  EXPECT_EQ(guard.HeldFor("a", "known", kStart), 0);
  EXPECT_GT(guard.HeldFor("a", "other", kStart), 0);
  guard.Right("b", "other");
  EXPECT_GT(guard.HeldFor("a", "other", kStart), 0) << "right from another address";
}

TEST(GuessGuardTest, AnAddressIsForgottenAfterAQuietTime) {
  GuessGuard guard;
  for (int i = 0; i <= GuessGuard::kFreeTries; ++i) guard.Wrong("a", kStart);
  const TimeUs later = kStart + GuessGuard::kForgetUs;
  guard.Wrong("a", later);
  EXPECT_EQ(guard.HeldFor("a", "k", later), 0);
}

TEST(GuessGuardTest, AFloodFromManyAddressesTakesNoFurtherMemory) {
  GuessGuard guard;
  const size_t many = 3 * GuessGuard::kAddressesMax;
  for (size_t i = 0; i < many; ++i) {
    guard.Wrong(std::to_string(i), kStart + static_cast<TimeUs>(i));
    guard.Right(std::to_string(i), "key");
  }
  EXPECT_EQ(guard.addresses(), GuessGuard::kAddressesMax);
  EXPECT_LE(guard.pairs(), GuessGuard::kPairsMax);
}

}  // namespace
}  // namespace skein::scheduler::tenants
