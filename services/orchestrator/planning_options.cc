#include "services/orchestrator/planning_options.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

absl::Status Named(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", std::string(status.message())));
}

absl::StatusOr<scheduler::ImprovementRateTable> RatesOf(const OrchestratorOptions& options,
                                                        const Profile& profile) {
  using scheduler::ImprovementRateTable;
  constexpr double kWithoutTable = 0.25;  // as skeinctl simulate
  if (options.improvement_rate == "auto") {
    return profile.improvement_rates.value_or(ImprovementRateTable::Constant(kWithoutTable));
  }
  double rate = 0;
  if (!absl::SimpleAtod(options.improvement_rate, &rate) || !(rate >= 0 && rate < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--improvement-rate: '",
                                                   options.improvement_rate,
                                                   "' is not auto or a fraction in [0, 1)"));
  }
  return ImprovementRateTable::Constant(rate);
}

// Without latencies each prompt is planned on one instance; flags of planning would do nothing.
absl::Status CheckUnplanned(const OrchestratorOptions& options) {
  const OrchestratorOptions defaults;
  const bool planned = options.policy != defaults.policy ||
                       options.improvement_rate != defaults.improvement_rate ||
                       options.prefill_tp != defaults.prefill_tp;
  if (!planned) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--policy, --improvement-rate and --prefill-tp: they need a latency profile, --profile",
      options.profile.empty() ? ""
                              : absl::StrCat("; '", options.profile, "' has none: sp is missing")));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const scheduler::PlanningConfig>> LoadPlanning(
    const OrchestratorOptions& options) {
  auto policy = scheduler::Policy::Parse(options.policy);
  if (!policy.ok()) return Named("policy", policy.status());
  if (options.profile.empty()) {
    if (const absl::Status s = CheckUnplanned(options); !s.ok()) return s;
    return std::shared_ptr<const scheduler::PlanningConfig>();
  }
  auto profile = LoadProfile(options.profile);
  if (!profile.ok()) return Named("profile", profile.status());
  if (!profile->latency.has_value()) {
    if (const absl::Status s = CheckUnplanned(options); !s.ok()) return s;
    return std::shared_ptr<const scheduler::PlanningConfig>();
  }
  auto rates = RatesOf(options, *profile);
  if (!rates.ok()) return rates.status();
  const auto node_size = static_cast<int>(options.node_size);
  auto latency = WithinNodes(*profile->latency, node_size, options.prefill_tp);
  if (!latency.ok()) return Named("prefill-tp", latency.status());
  auto config = std::make_shared<scheduler::PlanningConfig>(
      scheduler::PlanningConfig{.latency = *std::move(latency),
                                .policy = *std::move(policy),
                                .tables = {.improvement_rates = *std::move(rates)},
                                .node_size = node_size});
  if (profile->rolling.has_value()) config->tables.rolling = *std::move(profile->rolling);
  if (const absl::Status status = CheckPlanning(*config); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", std::string(status.message())));
  }
  return std::shared_ptr<const scheduler::PlanningConfig>(std::move(config));
}

absl::StatusOr<scheduler::PlanningTables> ReloadTables(const OrchestratorOptions& options,
                                                       const scheduler::PlanningConfig& running) {
  const auto now = LoadPlanning(options);
  if (!now.ok()) return now.status();
  if (*now == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile: '", options.profile, "': sp is missing"));
  }
  scheduler::PlanningConfig config = running;
  config.tables = (*now)->tables;
  if (const absl::Status status = CheckPlanning(config); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile: '", options.profile,
                     "': its new tables do not fit the latency model read at the start: ",
                     std::string(status.message())));
  }
  return std::move(config.tables);
}

}  // namespace skein::services
