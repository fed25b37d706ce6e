#include "services/orchestrator/retuner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "nlohmann/json.hpp"
#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/simulator/retune.h"
#include "scheduler/simulator/workload.h"
#include "services/orchestrator/orchestrator_shell.h"

namespace skein::services {
namespace {

using scheduler::ImprovementRateTable;
using scheduler::PlanningTables;

constexpr std::chrono::duration<double> kNever(1e9);
constexpr double kFromProfile = 0.25;

std::shared_ptr<const scheduler::PlanningConfig> Planning() {
  return std::make_shared<scheduler::PlanningConfig>(scheduler::PlanningConfig{
      .latency = scheduler::Llama3_8bA100(),
      .tables = {.improvement_rates = ImprovementRateTable::Constant(kFromProfile)}});
}

// Prompts of the paper's long trace, at 2 a second from `begin_us` on.
void Show(const std::string& model, int64_t prompts, Retuner* retuner, int64_t begin_us = 0) {
  const auto lengths = *scheduler::LengthDistribution::OfPaper("long");
  scheduler::Random random(5);
  for (int64_t i = 0; i < prompts; ++i) {
    retuner->Saw(model, lengths.Sample(&random), begin_us + i * 500'000);
  }
}

struct Applied {
  std::string model;
  ImprovementRateTable rates;
};

class RetunerTest : public ::testing::Test {
 protected:
  Retuner::Hooks Hooks() {
    return {.instances = [this] { return instances_; },
            .apply =
                [this](const std::string& model, const PlanningTables& tables) {
                  applied_.push_back({model, tables.improvement_rates});
                }};
  }
  std::string Metric(const std::string& line) const {
    const std::string text = metrics_.Render();
    const size_t at = text.find(line + " ");
    if (at == std::string::npos) return "";
    const size_t value = at + line.size() + 1;
    return text.substr(value, text.find('\n', value) - value);
  }
  nlohmann::json ModelOf(const Retuner& retuner, const std::string& name) const {
    const auto page = nlohmann::json::parse(retuner.Json());
    for (const auto& model : page["models"]) {
      if (model["model"] == name) return model;
    }
    return {};
  }

  Metrics metrics_;
  std::map<std::string, int64_t> instances_ = {{"m", 64}, {"n", 8}};
  std::vector<Applied> applied_;
};

TEST(WhyNotRetuned, NamesTheFlag) {
  OrchestratorOptions options;
  EXPECT_NE(WhyNotRetuned(options).find("--profile"), std::string::npos);
  options.profile = "llama3-8b-a100";
  EXPECT_EQ(WhyNotRetuned(options), "");
  options.policy = "rolling";
  EXPECT_NE(WhyNotRetuned(options).find("--policy rolling"), std::string::npos);
  options.policy = "single";
  options.improvement_rate = "0.1";
  EXPECT_NE(WhyNotRetuned(options).find("--improvement-rate is 0.1"), std::string::npos);
  options.improvement_rate = "auto";
  options.retune_hours = 0;
  EXPECT_EQ(WhyNotRetuned(options), "--retune-hours is 0");
}

TEST_F(RetunerTest, EachModelGetsATableOfItsOwn) {
  Retuner retuner(kNever, "", Planning(), Hooks(), &metrics_);
  Show("m", 3000, &retuner);
  Show("n", 1000, &retuner);
  retuner.TuneAll();
  ASSERT_EQ(applied_.size(), 2u);
  EXPECT_EQ(applied_[0].model, "m");
  EXPECT_EQ(applied_[1].model, "n");
  // The same prompts, at the same load, on an eighth of the instances: each gets fewer of them.
  EXPECT_LT(applied_[0].rates.RateAt(2), applied_[1].rates.RateAt(2));
  const nlohmann::json shown = ModelOf(retuner, "m");
  EXPECT_EQ(shown["tuned"]["outcome"], "applied");
  EXPECT_EQ(shown["tuned"]["prompts"], 3000);
  EXPECT_EQ(shown["tuned"]["instances"], 64);
  EXPECT_EQ(shown["prompts"], 0) << "the next table is made from later prompts";
  ASSERT_EQ(shown["rates"].size(), applied_[0].rates.rows().size());
  EXPECT_EQ(shown["rates"][0]["improvement_rate"], applied_[0].rates.rows()[0].improvement_rate);
  retuner.Refresh({"m", "n", "never asked for"});
  EXPECT_EQ(Metric("skein_retune_prompts{model_name=\"m\"}"), "3000");
  EXPECT_EQ(Metric("skein_retune_prompts{model_name=\"never asked for\"}"), "0");
  EXPECT_EQ(Metric("skein_retunes_total{outcome=\"applied\"}"), "2");
  EXPECT_NEAR(
      std::stod(Metric("skein_retune_rate_change{model_name=\"m\"}")),
      scheduler::LargestChange(ImprovementRateTable::Constant(kFromProfile), applied_[0].rates),
      1e-9);
  EXPECT_GT(std::stod(Metric("skein_retune_time_seconds{model_name=\"n\"}")), 1.6e9);

  // From the same prompts the same table: the core is not told.
  Show("m", 3000, &retuner, 3'000'000'000);
  retuner.TuneAll();
  EXPECT_EQ(applied_.size(), 2u);
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["outcome"], "unchanged");
}

TEST_F(RetunerTest, TooFewPromptsAreKeptAndTheTableStays) {
  Retuner retuner(kNever, "", Planning(), Hooks(), &metrics_);
  Show("m", scheduler::kRetunePromptsMin - 1, &retuner);
  retuner.TuneAll();
  EXPECT_TRUE(applied_.empty());
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["outcome"], "too_few_prompts");
  EXPECT_EQ(ModelOf(retuner, "m")["prompts"], scheduler::kRetunePromptsMin - 1);
  EXPECT_EQ(ModelOf(retuner, "m")["rates"][0]["improvement_rate"], kFromProfile);
  Show("m", 1, &retuner, 1'000'000'000);
  retuner.TuneAll();
  EXPECT_EQ(applied_.size(), 1u);
}

TEST_F(RetunerTest, AModelWithoutInstancesWaits) {
  Retuner retuner(kNever, "", Planning(), Hooks(), &metrics_);
  instances_.clear();
  Show("m", 2000, &retuner);
  retuner.TuneAll();
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["outcome"], "no_instances");
  EXPECT_TRUE(applied_.empty());
  instances_["m"] = 16;
  retuner.TuneAll();
  EXPECT_EQ(applied_.size(), 1u);
}

// After SIGHUP all models have the file's tables, also those to come, until they are tuned again.
TEST_F(RetunerTest, TablesThatWereReadAnewCountForAll) {
  Retuner retuner(kNever, "", Planning(), Hooks(), &metrics_);
  Show("m", 2000, &retuner);
  retuner.TuneAll();
  retuner.Reloaded({.improvement_rates = ImprovementRateTable::Constant(0.9)});
  ASSERT_EQ(applied_.size(), 2u);
  EXPECT_EQ(applied_[1].model, "");
  Show("n", 1, &retuner);
  for (const char* model : {"m", "n"}) {
    EXPECT_EQ(ModelOf(retuner, model)["rates"][0]["improvement_rate"], 0.9) << model;
  }
}

// A reload during the simulation: the file's tables count, all of them, and the prompts are kept.
TEST_F(RetunerTest, TablesThatAreReadAnewDuringATuningStay) {
  Retuner* running = nullptr;
  int reloads = 1;
  Retuner::Hooks hooks = Hooks();
  hooks.tune = [&](const auto&... arguments) {
    if (reloads-- > 0) {
      running->Reloaded({.improvement_rates = ImprovementRateTable::Constant(0.9),
                         .rolling = scheduler::RollingTable::Constant({.price = 0.5})});
    }
    return scheduler::RetuneRates(arguments...);
  };
  std::vector<PlanningTables> applied;
  hooks.apply = [&](const std::string&, const PlanningTables& tables) {
    applied.push_back(tables);
  };
  Retuner retuner(kNever, "", Planning(), hooks, &metrics_);
  running = &retuner;
  Show("m", 2000, &retuner);
  retuner.TuneAll();
  ASSERT_EQ(applied.size(), 1u) << "the file's";
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["outcome"], "reloaded");
  EXPECT_EQ(ModelOf(retuner, "m")["rates"][0]["improvement_rate"], 0.9);
  EXPECT_EQ(ModelOf(retuner, "m")["prompts"], 2000);
  retuner.TuneAll();
  ASSERT_EQ(applied.size(), 2u) << "undisturbed";
  EXPECT_EQ(applied[1].rolling.rows()[0].tuning.price, 0.5) << "only the rates are tuned";
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["outcome"], "applied");
}

// Prompts that come during the simulation are those that the next table is made from.
TEST_F(RetunerTest, PromptsThatComeDuringATuningCountForTheNext) {
  Retuner* running = nullptr;
  int64_t to_come = 700;
  int64_t begin_us = 3'000'000'000;
  Retuner::Hooks hooks = Hooks();
  hooks.tune = [&](const auto&... arguments) {
    Show("m", to_come, running, begin_us);
    begin_us *= 2;
    return scheduler::RetuneRates(arguments...);
  };
  Retuner retuner(kNever, "", Planning(), hooks, &metrics_);
  running = &retuner;
  Show("m", 2000, &retuner);
  retuner.TuneAll();
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["prompts"], 2000);
  EXPECT_EQ(ModelOf(retuner, "m")["prompts"], 700);
  // These are too few: with those that come now they are kept.
  to_come = 200;
  retuner.TuneAll();
  EXPECT_EQ(ModelOf(retuner, "m")["tuned"]["outcome"], "too_few_prompts");
  EXPECT_EQ(ModelOf(retuner, "m")["prompts"], 900);
}

TEST_F(RetunerTest, WithAReasonNotToItOnlyShowsTheTables) {
  Retuner retuner(std::chrono::duration<double>(0), "--retune-hours is 0", Planning(), Hooks(),
                  &metrics_);
  retuner.Start();
  Show("m", 2000, &retuner);
  retuner.TuneAll();
  EXPECT_TRUE(applied_.empty());
  EXPECT_EQ(nlohmann::json::parse(retuner.Json())["why_not"], "--retune-hours is 0");
  EXPECT_EQ(ModelOf(retuner, "m")["rates"].size(), 1u);
  Retuner unplanned(kNever, "without --profile", nullptr, Hooks(), &metrics_);
  unplanned.Saw("m", 5, 0);
  unplanned.TuneAll();
  EXPECT_TRUE(nlohmann::json::parse(unplanned.Json())["policy"].is_null());
}

TEST_F(RetunerTest, FollowsABoundedNumberOfModels) {
  Retuner retuner(kNever, "", Planning(), Hooks(), &metrics_);
  for (int i = 0; i < 2000; ++i) retuner.Saw("made up " + std::to_string(i), 100, i);
  EXPECT_EQ(nlohmann::json::parse(retuner.Json())["models"].size(), 256u);
}

// Its own thread, with a short interval, and a running core: the table arrives as an event, while
// prompts go on to be counted from another thread.
TEST_F(RetunerTest, TunesARunningOrchestratorOnItsOwnThread) {
  scheduler::OrchestratorConfig config;
  config.planning = Planning();
  OrchestratorShell shell(config, 100);
  shell.Start();
  std::promise<std::string> applied;
  std::atomic<int> times{0};
  Retuner::Hooks hooks{.instances = [this] { return instances_; },
                       .apply =
                           [&](const std::string& model, const PlanningTables& tables) {
                             shell.ReplaceTables(tables, model);
                             if (times.fetch_add(1) == 0) applied.set_value(model);
                           }};
  Retuner retuner(std::chrono::duration<double>(1e-3), "", config.planning, hooks, &metrics_);
  retuner.Start();
  Show("m", 4000, &retuner);
  EXPECT_EQ(applied.get_future().get(), "m");
  Show("m", 100, &retuner, 4'000'000'000);
  retuner.Stop();
  EXPECT_TRUE(shell.CheckInvariants().ok());
  EXPECT_GE(times.load(), 1);
  const int stopped_at = times.load();
  Show("m", 4000, &retuner, 5'000'000'000);
  retuner.Stop();
  EXPECT_EQ(times.load(), stopped_at);
}

}  // namespace
}  // namespace skein::services
