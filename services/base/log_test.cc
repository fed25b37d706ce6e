#include "services/base/log.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

TEST(Log, ALineIsOneJsonObjectWhateverItHolds) {
  const std::string line = FormatLogLine(
      "t", "router", Level::kWarning, "a \"quoted\"\nmessage\x01",
      {{"n", 3}, {"ratio", 0.5}, {"nan", std::nan("")}, {"ok", true}, {"raw", Raw{"[1,2]"}}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["msg"], "a \"quoted\"\nmessage\x01");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["n"], 3);
  EXPECT_TRUE(json["nan"].is_null());
  EXPECT_EQ(json["raw"][1], 2);
}

}  // namespace
}  // namespace skein::services
