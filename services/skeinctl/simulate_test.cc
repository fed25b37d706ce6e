#include "services/skeinctl/simulate.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/profile_rate.h"
#include "services/skeinctl/sim_inputs.h"

namespace skein::services {
namespace {

std::vector<SimulationRow> Rows() {
  std::vector<SimulationRow> rows;
  for (const double rate : {1.0, 2.0}) {
    for (const char* policy : {"tetris", "single"}) {
      scheduler::SimulationResult result;
      result.ttft_s = {0.1, 0.2, 0.5};
      result.ttft_p50_s = 0.2;
      result.ttft_p99_s = 0.5 * rate;
      result.tbt_p50_s = 0.007;
      result.requests = 3;
      rows.push_back({policy, rate, result});
    }
  }
  return rows;
}

int Exit(int (*command)(int, char**), std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "command");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return command(static_cast<int>(argv.size()), argv.data());
}

TEST(Simulate, JsonHasTheFieldsThatScriptsRead) {
  const std::string lines = SimulationJsonLines(Rows());
  const auto json = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  for (const char* field : {"policy", "rate", "ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s",
                            "throughput_tokens_per_s", "utilisation", "seed"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["ttft_p50_s"], 0.2);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
}

TEST(Simulate, TableAndCsvHaveARowEach) {
  for (const std::string& text : {SimulationTable(Rows()), SimulationCsv(Rows())}) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  }
}

TEST(Simulate, DrawsTheFigures) {
  for (const std::string& svg :
       {LatencyFigure(Rows()), DistributionFigure(Rows()), ChunkingFigure(Rows())}) {
    EXPECT_NE(svg.find("<polyline"), std::string::npos);
  }
  EXPECT_EQ(ChunkingFigure({}), "");
}

TEST(Simulate, NamesWrongInputAndExitsWith2) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"--rate", "-1"},
      {"--rate", "nan"},
      {"--rate", "1,x"},
      {"--rate", "1", "--policies", "best"},
      {"--rate", "1", "--policies", "fixed3"},
      {"--rate", "1", "--instances", "0"},
      {"--rate", "1", "--instances", "4"},
      {"--rate", "1", "--trace", "/nonexistent"},
      {"--rate", "1", "--profile", "/nonexistent"},
      {"--rate", "1", "--improvement-rate", "1"},
      {"--rate", "1", "--format", "xml"},
      {"--rate", "1", "--decode-blocks", "10"},
      {"--rate", "1", "--unknown", "1"},
      {"--rate", "1", "--seeds", "2"},
  };
  for (const auto& arguments : cases) {
    EXPECT_EQ(Exit(SimulateCommand, arguments), 2)
        << (arguments.empty() ? "" : arguments[arguments.size() - 1]);
  }
  EXPECT_EQ(Exit(ProfileRateCommand, {"--rate", "0"}), 2);
  EXPECT_EQ(Exit(ProfileRateCommand, {}), 2);
}

TEST(Simulate, RunsAndWrites) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/out";
  EXPECT_EQ(Exit(SimulateCommand,
                 {"--rate", "1,2", "--requests", "50", "--policies", "tetris,single,greedy,fixed8",
                  "--improvement-rate", "0.2", "--out", folder}),
            0);
  for (const char* name : {"results.csv", "latency.svg", "distribution.svg", "chunking.svg"}) {
    FILE* file = std::fopen((folder + "/" + name).c_str(), "r");
    EXPECT_NE(file, nullptr) << name;
    if (file != nullptr) std::fclose(file);
  }
}

TEST(ProfileRate, DrawsEveryFixedRate) {
  const auto rates = scheduler::ImprovementRateTable::Make({{1, 0.05}, {2, 0.35}});
  scheduler::Profile profile;
  profile.tuning.improvement_rates = *rates;
  for (const double load : {1.0, 2.0}) {
    for (const double rate : scheduler::ImprovementRateCandidates()) {
      profile.trials.push_back({load, rate, {1, 1 + rate, 2}});
    }
  }
  EXPECT_NE(ImprovementRateFigure(profile).find("0.75"), std::string::npos);
  const std::string rows = ImprovementRateRows(profile);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 3) << rows;
}

}  // namespace
}  // namespace skein::services
