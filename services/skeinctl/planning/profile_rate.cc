#include "services/skeinctl/planning/profile_rate.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/file.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/svg_plot.h"
#include "services/skeinctl/terminal/progress.h"

namespace skein::services {
namespace {

using scheduler::CandidateScore;
using scheduler::ImprovementRateTrial;

// The score of the best rate at a load.
const CandidateScore& BestAt(const scheduler::Profile& profile, double load) {
  const double best = profile.tuning.improvement_rates.RateAt(load);
  return std::find_if(profile.trials.begin(), profile.trials.end(),
                      [&](const ImprovementRateTrial& trial) {
                        return trial.requests_per_s == load && trial.improvement_rate == best;
                      })
      ->score;
}

Plot OverLoad(const scheduler::Profile& profile, const char* title, double CandidateScore::*field) {
  Plot plot{.title = title,
            .x_label = "offered load, requests/s",
            .y_label = "time to first token, over the best rate's",
            .y_scale = Scale::kLinear,
            .y_reference = 1};
  for (const double rate : {0.05, 0.15, 0.35, 0.55, 0.75}) {
    PlotSeries series{absl::StrFormat("rate %.2f", rate), {}};
    for (const ImprovementRateTrial& trial : profile.trials) {
      if (trial.improvement_rate != rate) continue;
      series.points.emplace_back(
          trial.requests_per_s,
          trial.score.*field / (BestAt(profile, trial.requests_per_s).*field));
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

scheduler::Profile Tuned(const std::vector<double>& loads, const SimInputs& inputs, bool rolling) {
  Progress progress("profile-rate", static_cast<int64_t>(loads.size()));
  return ProfileLoads(
      loads,
      [&, workload = inputs.TuningWorkload()](double load, int round) {
        if (round == 0) progress.Step(absl::StrFormat("tuning for %.3g requests/s", load));
        return workload(load, round);
      },
      inputs.model(), inputs.cluster(), rolling);
}

}  // namespace

std::string ImprovementRateRows(const scheduler::Profile& profile) {
  std::string text = absl::StrFormat("%10s %16s %12s %12s\n", "REQUESTS/S", "IMPROVEMENT RATE",
                                     "TTFT P50, s", "TTFT P99, s");
  for (const auto& row : profile.tuning.improvement_rates.rows()) {
    const CandidateScore& score = BestAt(profile, row.requests_per_s);
    absl::StrAppendFormat(&text, "%10.3f %16.2f %12.3f %12.3f\n", row.requests_per_s,
                          row.improvement_rate, score.p50_s, score.p99_s);
  }
  return text;
}

std::string ImprovementRateFigure(const scheduler::Profile& profile) {
  return FigureSvg({"How much is lost by a fixed improvement rate?",
                    "1: the best rate for that load",
                    {OverLoad(profile, "median (P50)", &CandidateScore::p50_s),
                     OverLoad(profile, "99th percentile (P99)", &CandidateScore::p99_s)},
                    2});
}

void ProfileRateFlags::Register(FlagSet* set) {
  set->About(
      "Find the best improvement rate for each load, by simulation.\n"
      "\n"
      "Example: a table for three loads, kept with the profile:\n"
      "  skeinctl profile-rate --trace medium --rate 1,2,4 --out tuned.json");
  sim.Register(set);
  set->Bool(&rolling, "rolling",
            "Also find the best settings of the rolling planner; takes longer.");
  set->String(&out, "out", "The profile with the table is written to this file.").Value("FILE");
  set->String(&figure, "figure", "SVG file for a figure of TTFT at fixed improvement rates.")
      .Value("FILE");
  set->String(&format, "format", "What to print: the best rates, or the profile with the table.")
      .OneOf({"table", "json"})
      .Value("FORMAT");
}

int RunProfileRate(const ProfileRateFlags& flags) {
  absl::StatusOr<SimInputs> inputs = SimInputs::Load(flags.sim);
  if (inputs.ok() && inputs->rates().empty()) {
    inputs = absl::InvalidArgumentError("--rate is required with a trace file");
  }
  if (!inputs.ok()) return PrintErrors("skeinctl profile-rate", inputs.status(), kUsage);
  std::fputs(inputs->warning().c_str(), stderr);
  std::vector<double> loads = inputs->rates();
  std::sort(loads.begin(), loads.end());
  loads.erase(std::unique(loads.begin(), loads.end()), loads.end());
  const scheduler::Profile tuned = Tuned(loads, *inputs, flags.rolling);
  Profile profile = inputs->profile();
  profile.improvement_rates = tuned.tuning.improvement_rates;
  if (flags.rolling) profile.rolling = tuned.tuning.rolling;
  const bool json = flags.format == "json";
  std::fputs((json ? ProfileJson(profile) : ImprovementRateRows(tuned)).c_str(), stdout);
  absl::Status written;
  if (!flags.out.empty()) written.Update(WriteFile(flags.out, ProfileJson(profile)));
  if (!flags.figure.empty()) written.Update(WriteFile(flags.figure, ImprovementRateFigure(tuned)));
  return written.ok() ? kDone : PrintErrors("skeinctl profile-rate", written, kFailed);
}

}  // namespace skein::services
