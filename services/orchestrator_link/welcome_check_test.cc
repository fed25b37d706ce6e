#include "services/orchestrator_link/welcome_check.h"

#include <gtest/gtest.h>

#include <string>

namespace skein::services {
namespace {

constexpr uint64_t kSession = scheduler::FirstNumberOf(3) + 7;

TEST(WelcomeCheckTest, TheFirstMessageAloneIsTheWelcome) {
  WelcomeCheck check;
  EXPECT_TRUE(absl::IsInvalidArgument(check.Take(std::nullopt, kSession)));
  EXPECT_FALSE(check.welcomed());
  EXPECT_TRUE(check.Take(3, kSession).ok());
  EXPECT_TRUE(check.welcomed());
  EXPECT_TRUE(check.Take(std::nullopt, kSession).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(check.Take(3, kSession)));
}

TEST(WelcomeCheckTest, TheSessionIsOfTheWelcomesGeneration) {
  WelcomeCheck check;
  const absl::Status refused = check.Take(4, kSession);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_TRUE(std::string(refused.message()).find("is not of generation 4") != std::string::npos);
  EXPECT_FALSE(check.welcomed());
}

}  // namespace
}  // namespace skein::services
