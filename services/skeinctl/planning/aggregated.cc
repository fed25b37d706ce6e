#include "services/skeinctl/planning/aggregated.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/codec/step_profile_json.h"
#include "services/skeinctl/command.h"

namespace skein::services {
namespace {

using scheduler::AggregatedResult;
using scheduler::LayoutPolicy;
using scheduler::PhaseFigures;

constexpr char kLatencyProfile[] = "llama3-8b-a100";  // SimFlags' default

struct Column {
  const char* name;     // of JSON
  const char* heading;  // of the table
  const char* unit;     // of the table
  double per_unit;      // the factor
  double (*value)(const AggregatedResult&);
};

double Most(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, value);
  return most;
}

using R = AggregatedResult;
constexpr Column kColumns[] = {
    {"quiet_ttft_mean_s", "Q TTFT", "ms", 1e3, [](const R& r) { return r.quiet.ttft_mean_s; }},
    {"quiet_tpot_mean_s", "Q TPOT", "ms", 1e3, [](const R& r) { return r.quiet.tpot_mean_s; }},
    {"burst_ttft_mean_s", "B TTFT", "s", 1, [](const R& r) { return r.burst.ttft_mean_s; }},
    {"burst_ttft_p90_s", "B T P90", "s", 1, [](const R& r) { return r.burst.ttft_p90_s; }},
    {"burst_queue_p90_s", "B Q P90", "s", 1, [](const R& r) { return r.burst.queue_p90_s; }},
    {"burst_tpot_mean_s", "B TPOT", "ms", 1e3, [](const R& r) { return r.burst.tpot_mean_s; }},
    {"ttft_mean_s", "TTFT", "ms", 1e3, [](const R& r) { return r.all.ttft_mean_s; }},
    {"tpot_p50_s", "TPOT P50", "ms", 1e3, [](const R& r) { return r.all.tpot_p50_s; }},
    {"priority_ttft_mean_s", "P TTFT", "ms", 1e3,
     [](const R& r) { return r.priority.ttft_mean_s; }},
    {"priority_tpot_mean_s", "P TPOT", "ms", 1e3,
     [](const R& r) { return r.priority.tpot_mean_s; }},
    {"peak_output_per_s", "PEAK OUT", "1/s", 1, [](const R& r) { return r.peak_output_per_s; }},
    {"peak_tokens_per_s", "PEAK ALL", "1/s", 1, [](const R& r) { return r.peak_tokens_per_s; }},
    {"own_steps", "OWN", "%", 100, [](const R& r) { return r.step_share[0]; }},
    {"tp_steps", "TP", "%", 100, [](const R& r) { return r.step_share[1]; }},
    {"sp_steps", "SP", "%", 100, [](const R& r) { return r.step_share[2]; }},
    {"switches", "SWITCHES", "", 1,
     [](const R& r) {
       return static_cast<double>(r.switches.binds + r.switches.releases + r.switches.others);
     }},
    {"shifts", "SHIFTS", "", 1, [](const R& r) { return static_cast<double>(r.shifts); }},
    {"gap_max_s", "GAP", "s", 1, [](const R& r) { return r.all.gap_max_s; }},
    {"cut_over_max_s", "CUT", "ms", 1e3, [](const R& r) { return Most(r.switches.cut_over_s); }},
    {"refused", "REFUSED", "", 1, [](const R& r) { return static_cast<double>(r.refused); }},
};

constexpr char kLegend[] =
    "\n"
    "Q, B, P     requests that arrive in the second half of a quiet phase; in a burst; of priority "
    "1\n"
    "TTFT, T     from arrival to the first token, mean and 90th percentile\n"
    "Q P90       from arrival until the first tokens enter a step\n"
    "TPOT        time between tokens of a request, mean of the requests' means\n"
    "PEAK        the most output tokens, and tokens of prompts and output, in any 5 s, per second\n"
    "OWN TP SP   shares of the steps: of instances alone, of bound ones in TP and in SP\n"
    "SWITCHES    binds and releases; SHIFTS: changes between TP and SP; GAP: the longest pause of "
    "a "
    "stream; CUT: longest cut-over\n";

std::string Cell(double value) {
  return absl::StrFormat("%9.*f", value >= 100 ? 0 : value >= 10 ? 1 : 2, value);
}

absl::StatusOr<std::vector<LayoutPolicy>> ParsePolicies(const std::string& names) {
  std::vector<LayoutPolicy> policies;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    auto policy = LayoutPolicy::Parse(std::string(name));
    if (!policy.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--policy: ", policy.status().message()));
    }
    policies.push_back(*std::move(policy));
  }
  return policies;
}

absl::StatusOr<std::vector<AggregatedRow>> Simulate(const AggregatedFlags& flags) {
  const auto policies = ParsePolicies(flags.policy);
  if (!policies.ok()) return policies.status();
  const auto profile = LoadStepProfile(flags.step_profile);
  if (!profile.ok()) {
    return absl::Status(profile.status().code(),
                        absl::StrCat("--profile: ", profile.status().message()));
  }
  absl::Status valid = CheckPhasedLoad(flags.load);
  valid.Update(CheckAggregated(flags.options, *profile));
  if (!valid.ok()) return valid;
  const std::vector<scheduler::GroupRequest> requests = GeneratePhasedLoad(flags.load);
  std::vector<AggregatedRow> rows;
  for (const LayoutPolicy& policy : *policies) {
    rows.push_back({policy.name, RunAggregated(policy, *profile, flags.options, requests)});
  }
  return rows;
}

}  // namespace

AggregatedFlags::AggregatedFlags() {
  options.driver.policy.release_sequences = 12;
  options.driver.policy.release_waiting_tokens = 5000;
}

void AggregatedFlags::Register(FlagSet* set) {
  constexpr int64_t kTokens = 1 << 24;
  set->Group("Aggregated");
  set->Bool(&aggregated, "aggregated",
            "Simulate a group that serves prompts and decode in one batch, under layouts of its "
            "instances. Of the flags above only --profile (a step profile: llama3-70b-h200-bf16, "
            "llama3-70b-h200-fp8, llama3-8b, or a file), --requests, --seed and --format count.");
  set->String(&policy, "policy",
              "Layouts to compare, separated by commas: dp, tp, shift, hybrid; by the formation "
              "policy: flying-sequential, flying-soft, flying-hard, flying-share, auto.")
      .Value("POLICY[,POLICY...]");
  set->Int(&options.devices, "devices", "Devices of the group.", 1, 1 << 16);
  set->Int(&options.limits.step_tokens, "step-tokens", "Most tokens of a step.", 2, 1 << 20);
  set->Int(&options.limits.sequences, "step-sequences", "Most sequences of a batch.", 1, 1 << 20);
  set->Double(&load.quiet_s, "quiet-s", "Length of a quiet phase, of 2 to 5 requests/s.", 0, 1e6);
  set->Double(&load.burst_s, "burst-s", "Length of a burst, of 10 to 30 requests/s.", 0, 1e6);
  set->Int(&load.prompt_min, "prompt-tokens-min", "Shortest prompt.", 1, kTokens);
  set->Int(&load.prompt_max, "prompt-tokens-max", "Longest prompt.", 1, kTokens);
  set->Int(&load.output_min, "output-tokens-min", "Shortest output.", 1, kTokens);
  set->Int(&load.output_max, "output-tokens-max", "Longest output.", 1, kTokens);
  set->Double(&load.priority_share, "priority-share", "Share of requests with priority 1.", 0, 1);
  set->Double(&load.long_share, "long-share", "Share of requests with a long prompt.", 0, 1);
  set->Int(&load.long_prompt, "long-prompt-tokens", "Length of a long prompt.", 0, kTokens);
  set->Double(&options.driver.policy.bind_sequences, "bind-sequences",
              "The group is bound at or below so many sequences an instance.", 0, 1e6);
  set->Double(&options.driver.policy.release_sequences, "release-sequences",
              "It is released at or above so many.", 0, 1e6);
  set->Double(&min_dwell_s, "min-dwell-s", "Least time between two changes by load.", 0, 1e6);
  set->Double(
      &options.driver.policy.release_waiting_tokens, "release-waiting-tokens",
      "It is released, too, when so many tokens of prompts an instance wait to be computed; "
      "0: not looked at.",
      0, 1e9);
  set->String(&release, "release",
              "What a release does with bound sequences: they end first (sequential), or the lead "
              "computes them anew (hard); auto: hard only while less than half of "
              "--release-waiting-tokens wait.")
      .Value("HOW")
      .OneOf({"auto", "sequential", "hard"});
  set->Double(
      &options.own_share, "own-share",
      "Share of a bound instance's steps that are its own, while it and the group have work; "
      "0: by the tokens that wait for each.",
      0, 1);
  set->Double(&shift_ms, "shift-ms",
              "What a step in SP takes longer after one in TP, and the other way round, "
              "milliseconds.",
              0, 60'000);
}

int RunAggregated(const AggregatedFlags& given, const std::string& profile, int64_t requests,
                  int64_t seed, const std::string& format) {
  AggregatedFlags flags = given;
  if (profile != kLatencyProfile) flags.step_profile = profile;
  if (requests > 0) flags.load.requests = requests;
  flags.load.seed = static_cast<uint64_t>(seed);
  flags.options.driver.policy.min_dwell_us =
      static_cast<scheduler::TimeUs>(flags.min_dwell_s * scheduler::kSecondUs);
  if (flags.release == "hard") flags.options.driver.release = scheduler::Switch::kHard;
  if (flags.release == "sequential") flags.options.driver.release = scheduler::Switch::kSequential;
  flags.options.shift_s = flags.shift_ms / 1e3;
  const auto rows = Simulate(flags);
  if (!rows.ok()) return PrintErrors("skeinctl simulate", rows.status(), kUsage);
  std::fputs(
      (format == "json" ? AggregatedJsonLines(*rows) : AggregatedTable(flags.load, *rows)).c_str(),
      stdout);
  return kDone;
}

std::string AggregatedTable(const scheduler::PhasedLoad& load,
                            const std::vector<AggregatedRow>& rows) {
  std::string text = absl::StrFormat(
      "%d requests, seed %d: %.0f s of %.0f-%.0f requests/s, %.0f s of %.0f-%.0f; prompts of %d-%d "
      "tokens, outputs of %d-%d, uniform\n\n%-18s",
      load.requests, load.seed, load.quiet_s, load.quiet_rate_min, load.quiet_rate_max,
      load.burst_s, load.burst_rate_min, load.burst_rate_max, load.prompt_min, load.prompt_max,
      load.output_min, load.output_max, "POLICY");
  for (const Column& column : kColumns) absl::StrAppendFormat(&text, "%9s", column.heading);
  absl::StrAppendFormat(&text, "\n%-18s", "");
  for (const Column& column : kColumns) absl::StrAppendFormat(&text, "%9s", column.unit);
  for (const AggregatedRow& row : rows) {
    absl::StrAppendFormat(&text, "\n%-18s", row.policy);
    for (const Column& column : kColumns) text += Cell(column.value(row.result) * column.per_unit);
  }
  return absl::StrCat(text, "\n", kLegend);
}

std::string AggregatedJsonLines(const std::vector<AggregatedRow>& rows) {
  std::string text;
  for (const AggregatedRow& row : rows) {
    absl::StrAppend(&text, "{\"policy\": \"", row.policy, "\"");
    for (const Column& column : kColumns) {
      absl::StrAppendFormat(&text, ", \"%s\": %.9g", column.name, column.value(row.result));
    }
    text += "}\n";
  }
  return text;
}

}  // namespace skein::services
