#include "services/skeinctl/simulate.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

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

TEST(Simulate, WritesEveryChunk) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/chunks.csv";
  ASSERT_EQ(Exit(SimulateCommand,
                 {"--rate", "3", "--requests", "40", "--policies", "fixed8", "--chunks", path}),
            0);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line,
            "policy,rate,seed,request,arrival_s,prompt_tokens,chunk_tokens,start_s,end_s,"
            "instances");
  int lines = 0;
  while (std::getline(file, line)) {
    EXPECT_EQ(line.rfind("fixed8,3,1," + std::to_string(lines++) + ",", 0), 0u) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), ' '), 7) << line;
  }
  EXPECT_EQ(lines, 40);
}

// A table in the profile is taken as it is: nothing is tuned.
TEST(Simulate, TakesRollingFromTheProfile) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  Profile profile = *LoadProfile("llama3-8b-a100");
  scheduler::RollingTuning tuning;
  tuning.commit = {scheduler::CommitMode::Kind::kFixed, 0, 8};
  profile.rolling = scheduler::RollingTable::Constant(tuning);
  std::ofstream(folder + "/profile.json") << ProfileJson(profile);
  const auto chunks_of = [&](const char* policy) {
    const std::string path = folder + "/" + policy + ".csv";
    EXPECT_EQ(Exit(SimulateCommand, {"--rate", "3", "--requests", "40", "--policies", policy,
                                     "--profile", folder + "/profile.json", "--chunks", path}),
              0);
    std::ifstream file(path);
    std::vector<std::string> lines;  // without the policy's name
    for (std::string line; std::getline(file, line);) lines.push_back(line.substr(line.find(',')));
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const auto rolling = chunks_of("rolling");
  EXPECT_EQ(rolling.size(), 41u);
  EXPECT_EQ(rolling, chunks_of("fixed8"));
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
