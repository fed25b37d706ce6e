#include "scheduler/simulator/formations/aggregated_run.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::scheduler {
namespace {

const StepProfile& Profile() { return *FindStepProfile("llama3-70b-h200-bf16"); }

AggregatedOptions Options() {
  AggregatedOptions options;
  options.driver.policy = {
      .bind_sequences = 1, .release_sequences = 12, .release_waiting_tokens = 5000};
  return options;
}

PhasedLoad Load() {
  PhasedLoad load;
  load.quiet_s = 30;
  load.requests = 600;
  load.prompt_min = 500;
  load.prompt_max = 5000;
  load.output_min = 20;
  load.output_max = 180;
  return load;
}

AggregatedResult Simulated(const char* policy, const PhasedLoad& load) {
  const auto parsed = LayoutPolicy::Parse(policy);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return RunAggregated(*parsed, Profile(), Options(), GeneratePhasedLoad(load));
}

double Share(const AggregatedResult& result, StepKind kind) {
  return result.step_share[static_cast<size_t>(kind)];
}

constexpr const char* kPolicies[] = {"dp",          "tp",          "shift",
                                     "hybrid",      "flying-soft", "flying-sequential",
                                     "flying-hard", "auto",        "flying-share"};

TEST(AggregatedRun, EveryPolicyServesAllRequestsAndRepeats) {
  PhasedLoad load = Load();
  load.priority_share = 0.1;
  for (const char* policy : kPolicies) {
    const AggregatedResult result = Simulated(policy, load);
    EXPECT_EQ(result.all.requests, 600) << policy;
    EXPECT_EQ(result.refused, 0) << policy;
    EXPECT_GT(result.priority.requests, 30) << policy;
    const AggregatedResult again = Simulated(policy, load);
    EXPECT_EQ(result.all.ttft_mean_s, again.all.ttft_mean_s) << policy;
    EXPECT_EQ(result.end_s, again.end_s) << policy;
  }
  EXPECT_FALSE(LayoutPolicy::Parse("pp").ok());
}

TEST(AggregatedRun, StaticLayoutsRunTheirKindOfStepsOnly) {
  EXPECT_EQ(Share(Simulated("dp", Load()), StepKind::kOwn), 1);
  EXPECT_EQ(Share(Simulated("tp", Load()), StepKind::kTp), 1);
  const AggregatedResult shift = Simulated("shift", Load());
  EXPECT_GT(Share(shift, StepKind::kTp), 0.2);
  EXPECT_GT(Share(shift, StepKind::kSp), 0.2);
  EXPECT_EQ(Share(shift, StepKind::kOwn), 0);
}

// The papers' order: TP is best when it is quiet, DP in a burst; Shift lies between.
TEST(AggregatedRun, QuietFavoursTpAndBurstsFavourDp) {
  PhasedLoad quiet = Load();
  quiet.burst_s = 0;
  EXPECT_LT(Simulated("tp", quiet).quiet.ttft_mean_s, Simulated("dp", quiet).quiet.ttft_mean_s);
  EXPECT_LT(Simulated("tp", quiet).quiet.tpot_mean_s, Simulated("dp", quiet).quiet.tpot_mean_s);
  const AggregatedResult dp = Simulated("dp", Load());
  const AggregatedResult tp = Simulated("tp", Load());
  const AggregatedResult shift = Simulated("shift", Load());
  EXPECT_LT(dp.burst.ttft_mean_s, shift.burst.ttft_mean_s);
  EXPECT_LT(shift.burst.ttft_mean_s, tp.burst.ttft_mean_s);
  EXPECT_GT(dp.peak_tokens_per_s, shift.peak_tokens_per_s);
  EXPECT_GT(shift.peak_tokens_per_s, tp.peak_tokens_per_s);
}

// The policy binds when it is quiet and releases in the burst: near the better layout in both.
TEST(AggregatedRun, TheFormationPolicyFollowsTheLoad) {
  PhasedLoad quiet = Load();
  quiet.burst_s = 0;
  const AggregatedResult bound = Simulated("auto", quiet);
  EXPECT_GT(Share(bound, StepKind::kTp), 0.2);
  EXPECT_LT(bound.quiet.ttft_mean_s, 1.05 * Simulated("tp", quiet).quiet.ttft_mean_s);
  const AggregatedResult result = Simulated("auto", Load());
  EXPECT_GE(result.switches.binds, 1);
  EXPECT_GE(result.switches.releases, 1);
  EXPECT_GT(Share(result, StepKind::kOwn), 0.2);
  EXPECT_GT(result.peak_tokens_per_s, 0.95 * Simulated("dp", Load()).peak_tokens_per_s);
  EXPECT_LT(result.burst.ttft_mean_s, Simulated("shift", Load()).burst.ttft_mean_s);
  for (const double cut_over_s : result.switches.cut_over_s) EXPECT_LT(cut_over_s, 0.5);
}

// Over several seeds, in one setting: near TP when it is quiet, near DP in bursts.
TEST(AggregatedRun, IsNearTheBetterLayoutInEachPhase) {
  double quiet = 0, burst = 0, peak = 0;
  constexpr int kSeeds = 12;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    PhasedLoad load = Load();
    load.quiet_s = 120;
    load.requests = 4000;
    load.seed = seed;
    const AggregatedResult own = Simulated("auto", load);
    const AggregatedResult dp = Simulated("dp", load);
    burst += own.burst.ttft_mean_s / dp.burst.ttft_mean_s / kSeeds;
    peak += own.peak_output_per_s / dp.peak_output_per_s / kSeeds;
    load.burst_s = 0;
    load.requests = 1500;
    quiet += Simulated("auto", load).quiet.ttft_mean_s / Simulated("tp", load).quiet.ttft_mean_s /
             kSeeds;
  }
  EXPECT_LE(quiet, 1.05);
  EXPECT_LE(burst, 1.05);
  EXPECT_GE(peak, 0.96);
}

// What a shift costs is paid once for each change of the mode, and only then.
TEST(AggregatedRun, AShiftTakesTheTimeThatItIsGiven) {
  const std::vector<GroupRequest> requests(3, {.prompt_tokens = 8000, .output_tokens = 50});
  AggregatedOptions options = Options();
  const auto run = [&](const char* name, double shift_s) {
    options.shift_s = shift_s;
    return RunAggregated(*LayoutPolicy::Parse(name), Profile(), options, requests);
  };
  const AggregatedResult free = run("shift", 0);
  const AggregatedResult slow = run("shift", 0.1);
  ASSERT_GE(free.shifts, 1);
  EXPECT_EQ(slow.shifts, free.shifts);
  EXPECT_NEAR(slow.end_s, free.end_s + 0.1 * static_cast<double>(free.shifts), 1e-4);
  EXPECT_EQ(run("tp", 0.1).shifts, 0);
  EXPECT_EQ(run("tp", 0.1).end_s, run("tp", 0).end_s);
  EXPECT_NEAR(free.time.Total(), free.end_s, 1e-3);
}

// A request that does not fit one instance binds as many as it needs; statics of DP refuse it.
TEST(AggregatedRun, BindsForALongContext) {
  PhasedLoad load = Load();
  load.burst_s = 0;
  load.requests = 100;
  load.long_share = 0.02;
  load.long_prompt = 400'000;
  const AggregatedResult result = Simulated("auto", load);
  EXPECT_EQ(result.refused, 0);
  EXPECT_EQ(result.all.requests, 100);
  load.long_prompt = 2'000'000;
  EXPECT_GT(Simulated("auto", load).refused, 0);
}

// Priority: under a load that keeps the group apart, urgent requests get a bound half.
TEST(AggregatedRun, UrgentRequestsGetABoundHalf) {
  PhasedLoad load = Load();
  load.quiet_s = 0;
  load.burst_s = 60;
  load.burst_rate_min = load.burst_rate_max = 8;
  load.requests = 400;
  load.priority_share = 0.1;
  AggregatedOptions options = Options();
  options.driver.release = Switch::kHard;
  const AggregatedResult result = RunAggregated(*LayoutPolicy::Parse("flying-hard"), Profile(),
                                                options, GeneratePhasedLoad(load));
  EXPECT_GT(Share(result, StepKind::kTp), 0.05);
  EXPECT_LT(result.priority.tpot_mean_s, Simulated("dp", load).priority.tpot_mean_s);
}

// Flying Serving's table 1, over several seeds: urgent requests are nearly as fast as under TP, and
// all requests begin sooner than under DP.
TEST(AggregatedRun, UrgentRequestsAreNearTpAndAllBeginSoonerThanUnderDp) {
  double urgent = 0, all = 0;
  constexpr int kSeeds = 6;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    PhasedLoad load = Load();
    load.quiet_s = 120;
    load.burst_s = 0;
    load.requests = 1500;
    load.quiet_rate_min = 3;
    load.prompt_min = 100;
    load.prompt_max = 1500;
    load.output_min = 200;
    load.output_max = 1000;
    load.priority_share = 0.1;
    load.seed = seed;
    const std::vector<GroupRequest> requests = GeneratePhasedLoad(load);
    AggregatedOptions options = Options();
    options.limits.sequences = 64;
    const auto run = [&](const char* policy) {
      return RunAggregated(*LayoutPolicy::Parse(policy), Profile(), options, requests);
    };
    const AggregatedResult own = run("auto");
    urgent += own.priority.tpot_mean_s / run("tp").priority.tpot_mean_s / kSeeds;
    all += own.all.ttft_mean_s / run("dp").all.ttft_mean_s / kSeeds;
  }
  EXPECT_LE(urgent, 1.05);
  EXPECT_LT(all, 1);
}

TEST(AggregatedRun, RefusalsNameTheField) {
  const auto why = [](auto change) {
    AggregatedOptions options = Options();
    change(&options);
    return std::string(CheckAggregated(options, Profile()).message());
  };
  EXPECT_TRUE(CheckAggregated(Options(), Profile()).ok());
  EXPECT_NE(why([](AggregatedOptions* o) { o->devices = 7; }).find("devices"), std::string::npos);
  EXPECT_NE(why([](AggregatedOptions* o) { o->devices = 6; }).find("devices"), std::string::npos);
  EXPECT_NE(why([](AggregatedOptions* o) { o->limits.step_tokens = 100; }).find("step_tokens"),
            std::string::npos);
  EXPECT_NE(why([](AggregatedOptions* o) { o->own_share = 2; }).find("own_share"),
            std::string::npos);
  EXPECT_NE(why([](AggregatedOptions* o) { o->shift_s = -1; }).find("shift_s"), std::string::npos);
  EXPECT_NE(why([](AggregatedOptions* o) {
              o->driver.policy.release_sequences = 1;
            }).find("release_sequences"),
            std::string::npos);
}

}  // namespace
}  // namespace skein::scheduler
