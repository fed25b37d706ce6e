#include "services/node/command_template.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

TEST(CommandTemplate, SumsAreMadeOfTheNumbers) {
  const InstanceNumbers third{.i = 6, .j = 2};
  const auto of = [&third](const char* text) { return Expand(text, third).value(); };
  EXPECT_EQ(of("cuda:{i}"), "cuda:6");
  EXPECT_EQ(of("{7200+i}"), "7206");
  EXPECT_EQ(of("--data-port={7600+2*j}"), "--data-port=7604");
  EXPECT_EQ(of("{i}-{i+1+10*j}"), "6-27");
  EXPECT_EQ(of("{{i}} and no braces"), "{i} and no braces");
}

TEST(CommandTemplate, WhatIsNotUnderstoodIsNamed) {
  for (const char* bad :
       {"{", "}", "{}", "{k}", "{1-i}", "{i*2}", "{-1}", "{99999999999}", "{i", "a}"}) {
    const absl::Status status = Expand(bad, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_EQ(status.message().find("'" + std::string(bad) + "'"), 0u) << status;
  }
}

TEST(CommandTemplate, TheLastOfAFlagCounts) {
  EXPECT_EQ(FlagIn({"p", "--port", "1", "--port=2"}, "port"), "2");
  EXPECT_EQ(FlagIn({"p", "--port=2", "--port", "1"}, "port"), "1");
  EXPECT_EQ(FlagIn({"p", "--portal=2", "--port"}, "port"), "");
}

}  // namespace
}  // namespace skein::services
