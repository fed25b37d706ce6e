#include "scheduler/simulator/formations/aggregated_run.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "scheduler/simulator/metrics.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

double Seconds(TimeUs us) { return static_cast<double>(us) / kSecondUs; }

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

template <typename Chosen>
PhaseFigures FiguresOf(const std::vector<GroupRequest>& requests,
                       const std::vector<GroupOutcome>& outcomes, const Chosen& chosen) {
  PhaseFigures figures;
  std::vector<double> ttft, tpot, queue, completion;
  for (size_t i = 0; i < requests.size(); ++i) {
    const GroupRequest& request = requests[i];
    const GroupOutcome& outcome = outcomes[i];
    if (outcome.refused || !chosen(request)) continue;
    ttft.push_back(Seconds(outcome.first_token_us - request.arrival_us));
    queue.push_back(Seconds(outcome.started_us - request.arrival_us));
    completion.push_back(Seconds(outcome.last_token_us - request.arrival_us));
    figures.gap_max_s = std::max(figures.gap_max_s, Seconds(outcome.longest_gap_us));
    if (outcome.made < 2) continue;
    tpot.push_back(Seconds(outcome.last_token_us - outcome.first_token_us) /
                   static_cast<double>(outcome.made - 1));
  }
  figures.requests = static_cast<int64_t>(ttft.size());
  figures.ttft_mean_s = Mean(ttft);
  figures.ttft_p50_s = Percentile(&ttft, 0.5);
  figures.ttft_p90_s = Percentile(&ttft, 0.9);
  figures.tpot_mean_s = Mean(tpot);
  figures.tpot_p50_s = Percentile(&tpot, 0.5);
  figures.queue_mean_s = Mean(queue);
  figures.queue_p90_s = Percentile(&queue, 0.9);
  figures.completion_mean_s = Mean(completion);
  return figures;
}

double Peak(const std::vector<int64_t>& by_second) {
  int64_t most = 0;
  int64_t window = 0;
  for (size_t i = 0; i < by_second.size(); ++i) {
    window += by_second[i];
    if (i >= kPeakWindowSeconds) window -= by_second[i - kPeakWindowSeconds];
    most = std::max(most, window);
  }
  return static_cast<double>(most) / kPeakWindowSeconds;
}

AggregatedResult ResultOf(const std::vector<GroupRequest>& requests, const GroupWorld& world) {
  AggregatedResult result;
  const GroupRecord& record = world.record();
  const std::vector<GroupOutcome>& outcomes = record.outcomes();
  result.all = FiguresOf(requests, outcomes, [](const GroupRequest&) { return true; });
  result.quiet = FiguresOf(requests, outcomes,
                           [](const GroupRequest& r) { return r.phase == LoadPhase::kQuiet; });
  result.burst = FiguresOf(requests, outcomes,
                           [](const GroupRequest& r) { return r.phase == LoadPhase::kBurst; });
  result.priority =
      FiguresOf(requests, outcomes, [](const GroupRequest& r) { return r.priority > 0; });
  for (const GroupOutcome& outcome : outcomes) result.refused += outcome.refused ? 1 : 0;
  result.peak_output_per_s = Peak(record.output_by_second());
  result.peak_tokens_per_s = Peak(record.tokens_by_second());
  result.end_s = Seconds(record.end_us());
  const std::vector<int64_t>& tokens = record.tokens_by_second();
  const auto all = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
  if (result.end_s > 0) result.mean_tokens_per_s = all / result.end_s;
  result.shifts = record.shifts();
  double steps = 0;
  for (const GroupRecord::Steps& kind : record.steps()) {
    steps += static_cast<double>(kind.count);
    result.time.Add(kind.time);
  }
  for (size_t i = 0; i < kStepKinds && steps > 0; ++i) {
    const GroupRecord::Steps& kind = record.steps()[i];
    result.step_share[i] = static_cast<double>(kind.count) / steps;
    result.time_share[i] = kind.time.Total() / result.time.Total();
  }
  return result;
}

void BindForGood(LayoutPolicy::Kind kind, int32_t members, GroupWorld* world) {
  const bool whole = kind == LayoutPolicy::Kind::kTp || kind == LayoutPolicy::Kind::kShift;
  if (whole && members > 1) world->BindForGood({0, members});
  if (kind == LayoutPolicy::Kind::kHybrid && members > 3) world->BindForGood({0, members / 2});
}

}  // namespace

absl::StatusOr<LayoutPolicy> LayoutPolicy::Parse(std::string_view name) {
  const LayoutPolicy known[] = {
      {Kind::kDp, std::nullopt, "dp"},
      {Kind::kTp, std::nullopt, "tp"},
      {Kind::kShift, std::nullopt, "shift"},
      {Kind::kHybrid, std::nullopt, "hybrid"},
      {Kind::kFlying, OwnSequences::kSequential, "flying-sequential"},
      {Kind::kFlying, OwnSequences::kSoftPreempt, "flying-soft"},
      {Kind::kFlying, OwnSequences::kHardPreempt, "flying-hard"},
      {Kind::kFlying, OwnSequences::kShare, "flying-share"},
      {Kind::kAuto, std::nullopt, "auto"},
  };
  for (const LayoutPolicy& policy : known) {
    if (policy.name == name) return policy;
  }
  return absl::NotFoundError(
      absl::StrCat("'", std::string(name),
                   "' is not dp, tp, shift, hybrid, flying-sequential, flying-soft, flying-hard, "
                   "flying-share or auto"));
}

absl::Status CheckAggregated(const AggregatedOptions& options, const StepProfile& profile) {
  const int64_t members = options.devices / profile.base_devices;
  if (members < 1 || members > 1024 || members * profile.base_devices != options.devices ||
      !std::has_single_bit(static_cast<uint64_t>(members))) {
    return absl::InvalidArgumentError(
        absl::StrCat("devices: ", options.devices, " is not ", profile.base_devices,
                     " (the profile's base_devices) times a power of two up to 1024"));
  }
  if (options.limits.sequences < 1 || options.limits.step_tokens <= options.limits.sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("step_tokens: ", options.limits.step_tokens, " is not above sequences, ",
                     options.limits.sequences, ", or that is below 1"));
  }
  if (!(options.own_share >= 0 && options.own_share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("own_share: ", options.own_share, " is not in [0, 1]"));
  }
  if (!(options.shift_s >= 0 && options.shift_s <= 60)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shift_s: ", options.shift_s, " is not in [0, 60]"));
  }
  if (options.driver.message_us < 1 || options.driver.decide_us < 1) {
    return absl::InvalidArgumentError("message_us, decide_us: not positive");
  }
  return CheckFormationPolicy(options.driver.policy);
}

AggregatedResult RunAggregated(const LayoutPolicy& policy, const StepProfile& profile,
                               const AggregatedOptions& options,
                               const std::vector<GroupRequest>& requests) {
  const auto members = static_cast<int32_t>(options.devices / profile.base_devices);
  using Kind = LayoutPolicy::Kind;
  GroupWorld world(&profile,
                   {.members = members,
                    .limits = options.limits,
                    .shift = policy.kind == Kind::kShift || policy.kind == Kind::kAuto,
                    .own_share = options.own_share,
                    .shift_s = options.shift_s,
                    .copies_of_weights = policy.kind == Kind::kTp ? 1 : 0},
                   &requests);
  std::optional<FormationDriver> driver;
  if (policy.is_static()) {
    BindForGood(policy.kind, members, &world);
  } else {
    DriverOptions driver_options = options.driver;
    if (policy.own) driver_options.own = policy.own;
    driver.emplace(profile, members, driver_options, &world);
  }
  size_t next = 0;
  while (next < requests.size() || !world.Idle()) {
    TimeUs now = world.NextEnd();
    if (next < requests.size()) now = std::min(now, requests[next].arrival_us);
    if (driver) now = std::min(now, driver->Next());
    SKEIN_CHECK(now != kNever);
    for (; next < requests.size() && requests[next].arrival_us <= now; ++next) {
      world.Arrive(next);
    }
    if (driver) driver->Advance(now);
    world.Advance(now);
    if (driver) driver->Collect(now);
  }
  SKEIN_CHECK(world.held_share() < 1e-6);
  AggregatedResult result = ResultOf(requests, world);
  if (driver) {
    SKEIN_CHECK(driver->CheckInvariants().ok());
    result.switches = driver->counts();
  }
  return result;
}

}  // namespace skein::scheduler
