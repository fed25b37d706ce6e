#include "services/skeinctl/planning/aggregated.h"

#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/simulate.h"

namespace skein::services {
namespace {

int Exit(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"simulate", "--aggregated"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const Command command = MakeCommand<SimulateFlags>("simulate", RunSimulate);
  return command.run(static_cast<int>(argv.size()), argv.data());
}

TEST(Aggregated, PrintsALineForEachPolicy) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Exit({"--policy", "dp,auto", "--requests", "200", "--format", "json"}), 0);
  std::istringstream lines(testing::internal::GetCapturedStdout());
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["policy"], "dp");
  EXPECT_EQ(rows[0]["own_steps"], 1);
  EXPECT_EQ(rows[1]["policy"], "auto");
  EXPECT_LT(rows[1]["quiet_ttft_mean_s"], rows[0]["quiet_ttft_mean_s"]);
}

TEST(Aggregated, TheTableNamesTheLoadAndTheUnits) {
  AggregatedRow row = {"tp", {}};
  row.result.quiet.ttft_mean_s = 0.212;
  row.result.peak_output_per_s = 3169;
  row.result.step_share = {0, 0.75, 0.25};
  const std::string table = AggregatedTable({.requests = 9, .seed = 4}, {row});
  EXPECT_NE(table.find("9 requests, seed 4"), std::string::npos) << table;
  EXPECT_NE(table.find("prompts of 1000-7000"), std::string::npos) << table;
  EXPECT_NE(table.find("      212"), std::string::npos) << table;
  EXPECT_NE(table.find("     3169"), std::string::npos) << table;
  EXPECT_NE(table.find("     75.0     25.0"), std::string::npos) << table;
}

TEST(Aggregated, WrongInputIsAUsageError) {
  EXPECT_EQ(Exit({"--policy", "pp"}), kUsage);
  EXPECT_EQ(Exit({"--profile", "/nonexistent"}), kUsage);
  EXPECT_EQ(Exit({"--devices", "6"}), kUsage);
  EXPECT_EQ(Exit({"--release-sequences", "1"}), kUsage);
  EXPECT_EQ(Exit({"--prompt-tokens-min", "6000"}), kUsage);
}

}  // namespace
}  // namespace skein::services
