#include "services/log/log_limit.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

constexpr int64_t kSecond = 1'000'000;

std::string Told(LogLimit* limit, int64_t now_us) {
  std::string text;
  for (const LogLimit::LeftOut& one : limit->TakeLeftOut(now_us)) {
    text += one.kind + " " + std::to_string(one.lines) + ";";
  }
  return text;
}

TEST(LogLimit, EachKindHasItsLinesASecondAndTheRestAreCounted) {
  LogLimit limit(3);
  int64_t now = 5 * kSecond;
  int written = 0;
  for (int i = 0; i < 100; ++i) written += limit.Admit("401", now + i) ? 1 : 0;
  EXPECT_EQ(written, 3);
  EXPECT_TRUE(limit.Admit("400", now));
  EXPECT_EQ(Told(&limit, now + 200), "");  // the second is not over
  now += kSecond;
  EXPECT_EQ(Told(&limit, now), "401 97;");
  EXPECT_EQ(Told(&limit, now), "");
  EXPECT_TRUE(limit.Admit("401", now));
}

TEST(LogLimit, AFloodThatGoesOnIsToldEverySecond) {
  LogLimit limit(2);
  int64_t told = 0, written = 0;
  for (int64_t now = kSecond; now < 4 * kSecond; now += 1000) {
    for (const LogLimit::LeftOut& one : limit.TakeLeftOut(now)) told += one.lines;
    written += limit.Admit("400", now) ? 1 : 0;
  }
  EXPECT_EQ(written, 6);
  EXPECT_EQ(told, 2 * 998);
  EXPECT_EQ(Told(&limit, INT64_MAX), "400 998;");
}

}  // namespace
}  // namespace skein::services
