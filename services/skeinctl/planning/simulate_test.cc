#include "services/skeinctl/planning/simulate.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/profile_rate.h"
#include "services/skeinctl/planning/sim_inputs.h"
#include "services/skeinctl/planning/svg_plot.h"

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
      result.tbt_p99_s = 0.009;
      result.requests = 3;
      rows.push_back({policy, rate, result});
    }
  }
  return rows;
}

template <typename Flags>
int Exit(int (*run)(const Flags&), const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"command"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return MakeCommand("command", run).run(static_cast<int>(argv.size()), argv.data());
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

// Each column shows its own field, and the table's headings match.
TEST(Simulate, ColumnsHaveTheNumbersOfTheirNames) {
  scheduler::SimulationResult result;
  result.ttft_p50_s = 11;
  result.ttft_p99_s = 12;
  result.ttft_mean_s = 13;
  result.queue_mean_s = 14;
  result.tbt_p50_s = 15;
  result.tbt_p99_s = 16;
  result.requests_per_s = 17;
  result.throughput_tokens_per_s = 18;
  result.utilisation = 0.19;
  result.idle_s = 20;
  result.decode_utilisation = 0.21;
  result.requests = 22;
  result.chunks = 23;
  const std::vector<SimulationRow> rows = {{"tetris", 3, result}};
  const std::map<std::string, double> expected = {
      {"rate", 3},           {"ttft_p50_s", 11},     {"ttft_p99_s", 12},
      {"ttft_mean_s", 13},   {"queue_mean_s", 14},   {"tbt_p50_s", 15},
      {"tbt_p99_s", 16},     {"requests_per_s", 17}, {"throughput_tokens_per_s", 18},
      {"utilisation", 0.19}, {"idle_s", 20},         {"decode_utilisation", 0.21},
      {"requests", 22},      {"chunks", 23}};
  const auto json = nlohmann::json::parse(SimulationJsonLines(rows));
  std::istringstream csv(SimulationCsv(rows));
  std::string names, cells;
  std::getline(csv, names);
  std::getline(csv, cells);
  const std::vector<std::string> name = absl::StrSplit(names, ',');
  const std::vector<std::string> cell = absl::StrSplit(cells, ',');
  ASSERT_EQ(name.size(), expected.size() + 1);
  ASSERT_EQ(cell.size(), name.size());
  for (size_t i = 1; i < name.size(); ++i) {  // the first is the policy
    ASSERT_TRUE(expected.contains(name[i])) << name[i];
    EXPECT_EQ(std::stod(cell[i]), expected.at(name[i])) << name[i];
    EXPECT_EQ(json[name[i]], expected.at(name[i])) << name[i];
  }
  std::istringstream table(SimulationTable(rows));
  std::string line;
  for (int i = 0; i < 3; ++i) std::getline(table, line);
  const std::vector<std::string> shown = absl::StrSplit(line, ' ', absl::SkipEmpty());
  EXPECT_EQ(shown, (std::vector<std::string>{"tetris", "3.00", "11.0", "12.0", "15.0", "16.0",
                                             "18.0", "19.0", "14.0", "20.0", "23"}));
}

TEST(Simulate, TableAndCsvHaveARowEach) {
  const std::string csv = SimulationCsv(Rows());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5) << csv;
  const std::string table = SimulationTable(Rows());
  size_t rows = 0;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    rows += line.rfind("tetris ", 0) == 0 || line.rfind("single ", 0) == 0 ? 1 : 0;
  }
  EXPECT_EQ(rows, 4u) << table;
}

TEST(Simulate, TableHasUnitsThatFitAndALegend) {
  const std::string table = SimulationTable(Rows());
  std::istringstream lines(table);
  std::string head, units, first;
  std::getline(lines, head);
  std::getline(lines, units);
  std::getline(lines, first);
  EXPECT_EQ(units.substr(0, 51), "               1/s          s          s         ms");
  EXPECT_EQ(first.substr(0, 51), "tetris        1.00      0.200      0.500       7.00");
  for (const char* heading : {"\nBUSY ", "\nQUEUE ", "\nIDLE ", "\nTTFT ", "\nTBT "}) {
    EXPECT_NE(table.find(heading), std::string::npos) << heading;
  }
}

TEST(Simulate, DrawsTheFigures) {
  for (const std::string& svg : {TtftFigure(Rows(), "s"), TbtFigure(Rows(), "s"),
                                 DistributionFigure(Rows(), "s"), ChunkingFigure(Rows(), "s")}) {
    EXPECT_NE(svg.find("<polyline"), std::string::npos);
    EXPECT_NE(svg.find("?</title>"), std::string::npos);
  }
  EXPECT_EQ(ChunkingFigure({}, ""), "");
}

// The figures' numbers, computed by hand: two rates, times in one unit.
TEST(Simulate, FiguresDrawTheirNumbers) {
  std::vector<SimulationRow> rows = Rows();
  for (SimulationRow& row : rows) {
    const double factor = row.policy == "single" ? 3 : 1;
    row.result.ttft_s = {0.001 * factor, 0.002 * factor, 0.003 * factor, 0.004 * factor};
    row.result.ttft_p50_s = 0.002 * factor * row.rate;
    row.result.ttft_p99_s = 0.004 * factor * row.rate;
  }
  const auto over_rate = [](const char* title, double of_tetris_ms) {
    return Plot{.title = title,
                .x_label = "offered load, requests/s",
                .y_label = "time to first token, ms",
                .y_scale = Scale::kLogIfWide,
                .series = {{"tetris", {{1, of_tetris_ms}, {2, 2 * of_tetris_ms}}},
                           {"single", {{1, 3 * of_tetris_ms}, {2, 6 * of_tetris_ms}}}}};
  };
  EXPECT_EQ(TtftFigure(rows, "s"),
            FigureSvg({"How long until the first token?",
                       "s",
                       {over_rate("median (P50)", 2), over_rate("99th percentile (P99)", 4)},
                       2}));
  rows[0].result.ttft_s = {1, 2};                           // of the lower rate: not drawn
  std::rotate(rows.begin(), rows.begin() + 2, rows.end());  // the lower rate last
  const Plot spread{.x_label = "time to first token, ms",
                    .y_label = "requests that have it by then, %",
                    .x_scale = Scale::kLogIfWide,
                    .series = {{"tetris", {{1, 25}, {2, 50}, {3, 75}, {4, 100}}},
                               {"single", {{3, 25}, {6, 50}, {9, 75}, {12, 100}}}}};
  EXPECT_EQ(DistributionFigure(rows, "s"),
            FigureSvg({"How is the time to first token spread?", "s, 2 requests/s", {spread}, 1}));
  const Plot ratio{
      .x_label = "offered load, requests/s",
      .y_label = "time to first token, single over tetris",
      .y_scale = Scale::kLinear,
      .y_reference = 1,
      .series = {{"median (P50)", {{1, 3}, {2, 3}}}, {"99th percentile (P99)", {{1, 3}, {2, 3}}}}};
  EXPECT_EQ(ChunkingFigure(rows, "s"),
            FigureSvg({"How much slower is one chunk a prompt?", "s", {ratio}, 1}));
}

// One rate gives curves with one point.
TEST(Simulate, DrawsPointsForOneRate) {
  std::vector<SimulationRow> rows = Rows();
  rows.resize(2);
  for (const std::string& svg :
       {TtftFigure(rows, ""), TbtFigure(rows, ""), ChunkingFigure(rows, "")}) {
    size_t points = 0;
    for (size_t at = svg.find("\"point\""); at != std::string::npos;
         at = svg.find("\"point\"", at + 1)) {
      ++points;
    }
    // Two in the legend, and two in each panel.
    EXPECT_GE(points, 4u) << svg;
  }
}

// A distribution is non-decreasing: both the shares and, from left to right, the times.
TEST(Simulate, DistributionNeverFalls) {
  scheduler::ArrivalOptions arrivals;
  arrivals.requests_per_s = 3;
  arrivals.requests = 600;
  const auto requests = GenerateWorkload(*scheduler::LengthDistribution::OfPaper("short"),
                                         scheduler::LengthDistribution::Outputs(), arrivals);
  const Profile profile = *LoadProfile("llama3-8b-a100");
  std::vector<SimulationRow> rows;
  for (const char* policy : {"tetris", "greedy"}) {
    rows.push_back({policy, 3,
                    Simulate(*scheduler::Policy::Parse(policy), requests, *profile.latency, {16, 8},
                             {}, {.instances = 2})});
  }
  const std::string svg = DistributionFigure(rows, "");
  size_t curves = 0;
  for (size_t at = svg.find("points=\""); at != std::string::npos; at = svg.find("points=\"", at)) {
    at += 8;
    std::istringstream points(svg.substr(at, svg.find('"', at) - at));
    double x = 0, y = 0, last_x = 0, last_y = 1e9;
    size_t count = 0;
    for (char comma; points >> x >> comma >> y; last_x = x, last_y = y, ++count) {
      EXPECT_GE(x, last_x);
      EXPECT_LE(y, last_y);  // pixels grow downwards
    }
    EXPECT_GE(count, 300u);
    ++curves;
  }
  EXPECT_EQ(curves, 2u);
}

TEST(Simulate, NamesWrongInputAndExitsWith2) {
  const std::vector<std::vector<std::string>> cases = {
      {"--rate", "-1"},
      {"--rate", "nan"},
      {"--rate", "1,x"},
      {"--rate", "1", "--policies", "best"},
      {"--rate", "1", "--policies", "fixed3"},
      {"--rate", "1", "--policies", "pipeline17"},
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
    EXPECT_EQ(Exit(RunSimulate, arguments), 2)
        << (arguments.empty() ? "" : arguments[arguments.size() - 1]);
  }
  EXPECT_EQ(Exit(RunProfileRate, {"--rate", "0"}), 2);
}

// 70B on instances of four devices: two a node, eight decode instances, as Tetris's testbed has.
TEST(Simulate, RunsBaselinesOfOtherSystemsAndInstancesOfSeveralDevices) {
  EXPECT_EQ(Exit(RunSimulate, {"--rate", "0.1", "--requests", "50", "--instances", "8", "--profile",
                               "llama3-70b-a100-tp4", "--improvement-rate", "0.2", "--policies",
                               "tetris,pipeline8,pipeline4dynamic,loongserve"}),
            0);
  SimFlags flags;
  flags.profile = "llama3-70b-a100-tp4";
  flags.instances = 8;
  EXPECT_EQ(SimInputs::Load(flags)->cluster().node_size, 2);
  flags.node_size = 4;
  EXPECT_EQ(SimInputs::Load(flags)->cluster().node_size, 4);
  flags = {};
  EXPECT_EQ(SimInputs::Load(flags)->cluster().node_size, 8);
}

TEST(Simulate, RunsAndWrites) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/out";
  EXPECT_EQ(Exit(RunSimulate,
                 {"--rate", "1,2", "--requests", "50", "--policies", "tetris,single,greedy,fixed8",
                  "--improvement-rate", "0.2", "--out", folder}),
            0);
  for (const char* name :
       {"results.csv", "ttft.svg", "tbt.svg", "distribution.svg", "chunking.svg"}) {
    FILE* file = std::fopen((folder + "/" + name).c_str(), "r");
    EXPECT_NE(file, nullptr) << name;
    if (file != nullptr) std::fclose(file);
  }
}

TEST(Simulate, HasRatesThatSuitTheCluster) {
  const auto lengths = *scheduler::LengthDistribution::OfPaper("short");
  const Profile profile = *LoadProfile("llama3-8b-a100");
  const std::vector<double> rates = DefaultRates(lengths, *profile.latency, {16, 8});
  ASSERT_EQ(rates.size(), 3u);
  EXPECT_NEAR(rates[1] / rates[0], 2, 0.1);
  EXPECT_NEAR(rates[2] / rates[0], 3, 0.1);
  // Twice the instances serve twice the load.
  EXPECT_NEAR(DefaultRates(lengths, *profile.latency, {32, 8})[0] / rates[0], 2, 0.1);
  SimFlags flags;
  EXPECT_EQ(SimInputs::Load(flags)->rates(), rates);
  flags.rate = "7";
  EXPECT_EQ(SimInputs::Load(flags)->rates(), std::vector<double>{7});
}

TEST(Simulate, WritesEveryChunk) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/chunks.csv";
  ASSERT_EQ(Exit(RunSimulate,
                 {"--rate", "3", "--requests", "40", "--policies", "fixed8", "--chunks", path}),
            0);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line,
            "policy,rate,seed,request,arrival_s,prompt_tokens,chunk_tokens,start_s,end_s,"
            "instances,tp");
  int lines = 0;
  while (std::getline(file, line)) {
    EXPECT_EQ(line.rfind("fixed8,3,1," + std::to_string(lines++) + ",", 0), 0u) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), ' '), 7) << line;
  }
  EXPECT_EQ(lines, 40);
}

// A profile with tensor shapes tells which chunks ran in which; without them nothing of it shows.
TEST(Simulate, CountsTheChunksOfEachShape) {
  std::vector<SimulationRow> rows = Rows();
  EXPECT_EQ(SimulationTable(rows).find("SP x TP"), std::string::npos);
  rows[0].result.shapes = {{{1, 1}, 20}, {{2, 4}, 5}};
  EXPECT_NE(SimulationTable(rows).find("1 x 1: 20, 2 x 4: 5\n"), std::string::npos);
  const std::string lines = SimulationJsonLines(rows);
  const auto json = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(json["chunks_by_sp_tp"], nlohmann::json::parse(R"({"1x1": 20, "2x4": 5})"));
}

TEST(Simulate, TakesTensorShapesFromTheProfileOrAPin) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  Profile profile = *LoadProfile("llama3-8b-a100");
  scheduler::SpCoefficients k = profile.latency->CoefficientsAt(profile.latency->IndexOf(8));
  std::map<int, scheduler::SpCoefficients> sizes = {{1, k}, {8, k}};
  k.a_s /= 2;
  profile.latency = *scheduler::LatencyModel::Make(sizes, {{8, 4, k}, {8, 8, k}});
  std::ofstream(folder + "/tensor.json") << ProfileJson(profile);
  const auto tps = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--profile",  folder + "/tensor.json",
                                          "--rate",     "1",
                                          "--requests", "20",
                                          "--policies", "fixed8",
                                          "--chunks",   folder + "/tensor.csv"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Exit(RunSimulate, arguments), 0);
    std::ifstream file(folder + "/tensor.csv");
    std::string line;
    std::getline(file, line);
    std::set<std::string> found;
    while (std::getline(file, line)) found.insert(line.substr(line.rfind(',') + 1));
    return found;
  };
  using Tps = std::set<std::string>;
  EXPECT_EQ(tps({}), Tps{"4"}) << "the smallest of equal ones";
  EXPECT_EQ(tps({"--prefill-tp", "1"}), Tps{"1"});
  EXPECT_EQ(tps({"--prefill-tp", "8"}), Tps{"8"});
  EXPECT_EQ(tps({"--node-size", "2"}), Tps{"1"}) << "nodes of two have no group of four";
  EXPECT_EQ(tps({"--node-size", "2", "--prefill-tp", "8"}), Tps{"2"});
}

TEST(Simulate, APinnedTpThatTheProfileLacksIsNamed) {
  Profile profile = *LoadProfile("llama3-8b-a100");
  const scheduler::SpCoefficients k{0.1, 1e-5, 0, 0};
  profile.latency =
      *scheduler::LatencyModel::Make({{1, k}, {2, k}, {8, k}, {64, k}}, {{8, 4, k}, {8, 8, k}});
  SimFlags flags;
  flags.profile = std::string(std::getenv("TEST_TMPDIR")) + "/pinned.json";
  std::ofstream(flags.profile) << ProfileJson(profile);
  const auto warning = [&](const char* tp) {
    flags.prefill_tp = tp;
    return SimInputs::Load(flags)->warning();
  };
  EXPECT_EQ(warning("auto"), "");
  EXPECT_EQ(warning("1"), "");
  EXPECT_EQ(warning("8"),
            "warning: --prefill-tp: the profile has no tensor rows of 2 instances with tp 2; such "
            "chunks take the time of tp 1\n");
  EXPECT_NE(warning("2").find("of 2 instances with tp 2, 8 instances with tp 2; such"),
            std::string::npos);
}

// ---- formations of decode instances ----

// A profile with gains, a trace, and how to simulate it.
std::vector<std::string> FormationArguments(const std::string& formations) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  Profile profile = *LoadProfile("llama3-8b-a100");
  profile.formations = {.gains = {{2, 1.6}, {8, 2.5}}};
  std::ofstream(folder + "/gains.json") << ProfileJson(profile);
  std::ofstream trace(folder + "/trace.csv");
  trace << "arrival_s,prompt_tokens,output_tokens\n";
  for (int i = 0; i < 20; ++i) trace << i * 5 << ",2000," << (i == 7 ? 1 : 101) << "\n";
  return {"--profile",
          folder + "/gains.json",
          "--trace",
          folder + "/trace.csv",
          "--policies",
          "fixed8",
          "--decode-instances",
          "8",
          "--decode-step-us",
          "9000",
          "--decode-sequence-us",
          "1000",
          "--decode-kv-token-us",
          "0",
          "--decode-formations",
          formations};
}

TEST(Simulate, ComparesFormationsOfDecodeInstances) {
  std::vector<std::string> arguments =
      FormationArguments("independent,bound(2),bound(8),hybrid,auto");
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/decoded.csv";
  for (const char* more : {"--format", "json", "--decode-requests", path.c_str()}) {
    arguments.emplace_back(more);
  }
  testing::internal::CaptureStdout();
  ASSERT_EQ(Exit(RunSimulate, arguments), 0);
  std::istringstream lines(testing::internal::GetCapturedStdout());
  std::map<std::string, nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    rows[row["formation"]] = row;
  }
  ASSERT_EQ(rows.size(), 5u);
  const auto tpot_ms = [&](const char* formation) {
    return rows[formation]["tpot_p50_s"].get<double>() * 1e3;
  };
  EXPECT_NEAR(tpot_ms("independent"), 10, 0.01);
  EXPECT_NEAR(tpot_ms("bound(2)"), 10 / 1.6, 0.01);
  EXPECT_NEAR(tpot_ms("bound(8)"), 4, 0.01);
  EXPECT_NEAR(tpot_ms("auto"), 4, 0.01);
  EXPECT_EQ(rows["independent"]["own_steps"], 1);
  EXPECT_EQ(rows["bound(8)"]["tp_steps"], 1);
  EXPECT_EQ(rows["hybrid"]["tp_steps"], 1) << "one at a time, each at the first instance";
  EXPECT_EQ(rows["auto"]["switches"], 1);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line,
            "policy,rate,seed,formation,request,first_token_s,decode_start_s,second_token_s,"
            "last_token_s,instance,instances");
  int lines_of_it = 0, without_decode = 0;
  while (std::getline(file, line)) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 10) << line;
    ++lines_of_it;
    without_decode += line.find(",,") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(lines_of_it, 5 * 20);
  EXPECT_EQ(without_decode, 5) << "a request of one token takes no decode step";
}

TEST(Simulate, FormationsThatCannotBeAreRefused) {
  for (const auto& [formations, error] :
       {std::pair("bound(3)", "--decode-formations: 'bound(3)' is not independent, bound(2)"),
        std::pair("shift", "--decode-formations: shift needs a profile whose formations name"),
        std::pair("bound(8)", "--decode-formations: bound(8) needs more")}) {
    std::vector<std::string> arguments = FormationArguments(formations);
    arguments.insert(arguments.end(), {"--decode-node-size", "4"});
    testing::internal::CaptureStderr();
    EXPECT_EQ(Exit(RunSimulate, arguments), 2);
    EXPECT_NE(testing::internal::GetCapturedStderr().find(error), std::string::npos);
  }
}

// A table in the profile is used as it is; nothing is tuned.
TEST(Simulate, TakesRollingFromTheProfile) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  Profile profile = *LoadProfile("llama3-8b-a100");
  scheduler::RollingTuning tuning;
  tuning.commit = {scheduler::CommitMode::Kind::kFixed, 0, 8};
  profile.rolling = scheduler::RollingTable::Constant(tuning);
  std::ofstream(folder + "/profile.json") << ProfileJson(profile);
  const auto chunks_of = [&](const char* policy) {
    const std::string path = folder + "/" + policy + ".csv";
    EXPECT_EQ(Exit(RunSimulate, {"--rate", "3", "--requests", "40", "--policies", policy,
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
