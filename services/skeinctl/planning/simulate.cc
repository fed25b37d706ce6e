#include "services/skeinctl/planning/simulate.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "scheduler/simulator/elastic_pool_run.h"
#include "services/base/file.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/terminal/progress.h"

namespace skein::services {
namespace {

absl::StatusOr<std::vector<scheduler::Policy>> ParsePolicies(const SimulateFlags& flags,
                                                             const SimInputs& inputs) {
  std::vector<scheduler::Policy> policies;
  for (const absl::string_view name : absl::StrSplit(flags.policies, ',')) {
    auto policy = scheduler::Policy::Parse(std::string(name));
    absl::Status status = policy.status();
    if (status.ok()) status = CheckPolicy(*policy, inputs.model(), inputs.cluster());
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--policies: ", status.message()));
    }
    policies.push_back(*std::move(policy));
  }
  return policies;
}

absl::StatusOr<scheduler::Tuning> TuneFor(const SimulateFlags& flags, const SimInputs& inputs,
                                          const std::vector<scheduler::Policy>& policies,
                                          std::optional<double> rate) {
  bool rolling = false;
  bool rates = false;
  for (const scheduler::Policy& policy : policies) {
    using Kind = scheduler::Policy::Kind;
    rolling |= policy.kind == Kind::kRolling;
    rates |= policy.kind == Kind::kTetris || policy.kind == Kind::kSingle;
  }
  std::optional<scheduler::ImprovementRateTable> fixed = inputs.profile().improvement_rates;
  if (flags.improvement_rate != "auto") {
    double value = 0;
    if (!absl::SimpleAtod(flags.improvement_rate, &value) || !(value >= 0 && value < 1)) {
      return absl::InvalidArgumentError(absl::StrCat("--improvement-rate: '",
                                                     flags.improvement_rate,
                                                     "' is not auto or a fraction in [0, 1)"));
    }
    fixed = scheduler::ImprovementRateTable::Constant(value);
  }
  scheduler::Tuning tuning;
  const std::optional<scheduler::RollingTable>& settings = inputs.profile().rolling;
  const bool tune_rolling = rolling && !settings.has_value();
  if (tune_rolling || (rates && !fixed.has_value())) {
    tuning = ProfileLoads(inputs.TuningLoads(rate), inputs.TuningWorkload(), inputs.model(),
                          inputs.cluster(), tune_rolling)
                 .tuning;
  }
  if (fixed.has_value()) tuning.improvement_rates = *std::move(fixed);
  if (settings.has_value()) tuning.rolling = *settings;
  return tuning;
}

// The decode instances beside the cluster's prefill instances.
scheduler::DecodeOptions DecodeOf(const SimulateFlags& flags, const SimInputs& inputs) {
  scheduler::DecodeOptions decode = inputs.profile().decode.value_or(scheduler::DecodeOptions{});
  if (flags.decode_blocks > 0) decode.blocks = flags.decode_blocks;
  decode.block_tokens = flags.block_tokens;
  if (flags.decode_step_us > 0) {
    decode.step_base_s = flags.decode_step_us * 1e-6;
    decode.step_per_sequence_s = flags.decode_sequence_us * 1e-6;
    decode.step_per_kv_token_s = flags.decode_kv_token_us * 1e-6;
    decode.step_weights_s = std::min(decode.step_weights_s, decode.step_base_s);
  }
  const int share = decode.prefill_instances;
  decode.instances = flags.decode_instances > 0 ? static_cast<int>(flags.decode_instances)
                                                : (inputs.cluster().instances + share - 1) / share;
  return decode;
}

absl::Status CheckLoad(const SimulateFlags& flags,
                       const std::vector<scheduler::SimRequest>& requests,
                       const std::vector<scheduler::Policy>& policies, const SimInputs& inputs,
                       const scheduler::DecodeOptions& decode) {
  absl::Status valid = CheckWorkload(requests);
  if (valid.ok()) valid = CheckDecode(decode, requests);
  for (const scheduler::Policy& policy : policies) {
    if (!valid.ok() || policy.kind != scheduler::Policy::Kind::kLoongServe) continue;
    if (!flags.formations.formations.empty()) {
      return absl::InvalidArgumentError(
          "--decode-formations: the policy loongserve has one pool of instances, no decode groups");
    }
    valid = CheckElasticPool(scheduler::ElasticPoolOptions::Of(inputs.cluster().instances, decode),
                             inputs.model(), requests);
  }
  return valid;
}

absl::StatusOr<std::vector<SimulationRow>> Run(const SimulateFlags& flags,
                                               const SimInputs& inputs) {
  const auto policies = ParsePolicies(flags, inputs);
  if (!policies.ok()) return policies.status();
  std::vector<std::optional<double>> rates(inputs.rates().begin(), inputs.rates().end());
  if (rates.empty()) rates.push_back(std::nullopt);
  const scheduler::DecodeOptions decode = DecodeOf(flags, inputs);
  const auto formations = flags.formations.Options(
      decode, inputs.profile().formations.value_or(scheduler::orchestrator::FormationProfile{}));
  if (!formations.ok()) return formations.status();
  std::vector<const scheduler::DecodeGroupsOptions*> groups;  // null: without
  for (const scheduler::DecodeGroupsOptions& one : *formations) groups.push_back(&one);
  if (groups.empty()) groups.push_back(nullptr);
  std::vector<SimulationRow> rows;
  const int64_t steps_of_rate = 1 + flags.seeds * static_cast<int64_t>(policies->size());
  Progress progress("simulate", static_cast<int64_t>(rates.size()) * steps_of_rate);
  for (const std::optional<double>& rate : rates) {
    const std::string at = rate.has_value() ? absl::StrFormat(" at %.3g requests/s", *rate) : "";
    std::vector<std::vector<scheduler::SimRequest>> workloads;  // [seeds]
    for (int64_t offset = 0; offset < flags.seeds; ++offset) {
      auto requests = inputs.Workload(rate, offset);
      if (!requests.ok()) return requests.status();
      const absl::Status valid = CheckLoad(flags, *requests, *policies, inputs, decode);
      if (!valid.ok()) return valid;
      workloads.push_back(*std::move(requests));
    }
    progress.Step(absl::StrCat("tuning", at));
    const auto tuning = TuneFor(flags, inputs, *policies, rate);
    if (!tuning.ok()) return tuning.status();
    for (int64_t offset = 0; offset < flags.seeds; ++offset) {
      const auto& requests = workloads[static_cast<size_t>(offset)];
      const int64_t seed = flags.sim.seed + offset;
      for (const scheduler::Policy& policy : *policies) {
        progress.Step(absl::StrCat(policy.name, at));
        rows.push_back({policy.name, rate.value_or(MeanRate(requests)), {}, seed});
        std::vector<SimulationRow::Chunk>& chunks = rows.back().chunks;
        scheduler::ChunkObserver observer;
        if (!flags.chunks.empty()) {
          observer = [&](size_t request, const scheduler::ChunkPlan& chunk) {
            chunks.push_back({request, requests[request], chunk});
          };
        }
        for (const scheduler::DecodeGroupsOptions* group : groups) {
          // The prompts' chunks are the same in all formations.
          if (group != groups.front()) rows.push_back({policy.name, rows.back().rate, {}, seed});
          rows.back().result =
              Simulate(policy, requests, inputs.model(), inputs.cluster(), *tuning, decode,
                       group == groups.front() ? observer : nullptr, group);
          if (group != nullptr) rows.back().formation = group->formation.name;
        }
      }
    }
  }
  return rows;
}

// Describes the simulation for the reader of a figure.
std::string SubtitleOf(const SimFlags& flags, const SimInputs& inputs) {
  return absl::StrFormat("simulated: %s, %d prefill instances, %d a node, trace %s",
                         std::filesystem::path(flags.profile).filename().string(), flags.instances,
                         inputs.cluster().node_size,
                         std::filesystem::path(flags.trace).filename().string());
}

absl::Status WriteOut(const std::string& folder, const std::string& subtitle,
                      const std::vector<SimulationRow>& rows) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("--out: ", folder, ": ", error.message()));
  }
  const std::pair<const char*, std::string> files[] = {
      {"results.csv", SimulationCsv(rows)},
      {"ttft.svg", TtftFigure(rows, subtitle)},
      {"tbt.svg", TbtFigure(rows, subtitle)},
      {"distribution.svg", DistributionFigure(rows, subtitle)},
      {"chunking.svg", ChunkingFigure(rows, subtitle)}};
  absl::Status status;
  for (const auto& [name, text] : files) {
    if (!text.empty()) status.Update(WriteFile(absl::StrCat(folder, "/", name), text));
  }
  return status;
}

}  // namespace

void SimulateFlags::Register(FlagSet* set) {
  set->About(
      "Simulate a cluster under a load and compare planning policies.\n"
      "\n"
      "Example: 32 instances on the paper's medium trace at three loads, with figures:\n"
      "  skeinctl simulate --trace medium --instances 32 --rate 1,2,4 --out figures");
  sim.Register(set);
  set->Group("Planning");
  set->String(&policies, "policies",
              "Policies to compare, separated by commas: tetris, rolling, single, greedy, fixedN "
              "(N an SP "
              "size); and those of other systems: pipelineN and pipelineNdynamic (SGLang's chunked "
              "pipeline of N stages, with slices of 4096 tokens, or of 12288 and less), loongserve "
              "(one pool for prefill and decode).")
      .Value("POLICY[,POLICY...]");
  set->String(&improvement_rate, "improvement-rate",
              "For tetris and single: a fraction in [0, 1), or auto: the profile's table, or else "
              "the best for each rate, found by simulation as for rolling.")
      .Value("FRACTION");
  set->Group("Decode instances");
  set->Int(&decode_instances, "decode-instances",
           "Decode instances; 0 means as many devices as compute prompts: one per eight prefill "
           "instances, or as the profile's \"decode\" says.",
           0, 1 << 16);
  set->Int(&decode_blocks, "decode-blocks", "KV blocks of a decode instance.", 0, int64_t{1} << 40)
      .Default("250000, or as the profile's \"decode\" says");
  set->Int(&block_tokens, "block-tokens", "Tokens of a KV block.", 1, 1 << 20);
  constexpr double kLongestUs = 60e6;
  set->Double(&decode_step_us, "decode-step-us",
              "Time of a decode step of one instance; 0 means as the profile says.", 0, kLongestUs)
      .Value("MICROSECONDS");
  set->Double(&decode_sequence_us, "decode-sequence-us",
              "With --decode-step-us: time that each sequence adds to it.", 0, kLongestUs)
      .Value("MICROSECONDS");
  set->Double(&decode_kv_token_us, "decode-kv-token-us",
              "With --decode-step-us: time that each token in the KV of these adds to it.", 0,
              kLongestUs)
      .Value("MICROSECONDS");
  formations.Register(set);
  set->Group("Output");
  set->Int(&seeds, "seeds",
           "Number of repetitions, with seeds --seed, --seed+1, ... Tuning runs once, on separate "
           "requests. More than 1 needs --format json.",
           1, 1000);
  set->String(&out, "out",
              "Folder for results.csv and the figures ttft.svg, tbt.svg, distribution.svg and "
              "chunking.svg; made if missing.")
      .Value("DIR");
  set->String(&chunks, "chunks", "CSV file for the times of all chunks of all requests.")
      .Value("FILE");
  set->String(&format, "format", "Output format.").Value("FORMAT").OneOf({"table", "json"});
  aggregated.Register(set);
  offline.Register(set);
  set->Check([this] {
    if (seeds == 1 || (format == "json" && out.empty())) return absl::OkStatus();
    return absl::InvalidArgumentError("--seeds: more than 1 needs --format json and no --out");
  });
  set->Check([this] {
    if (!offline.offline || !aggregated.aggregated) return absl::OkStatus();
    return absl::InvalidArgumentError("--offline: cannot be given together with --aggregated");
  });
}

int RunSimulate(const SimulateFlags& flags) {
  if (flags.offline.offline) {
    return RunOffline(flags.offline, flags.aggregated.options.devices, flags.sim.requests,
                      flags.sim.seed, flags.format);
  }
  if (flags.aggregated.aggregated) {
    return RunAggregated(flags.aggregated, flags.sim.profile, flags.sim.requests, flags.sim.seed,
                         flags.format);
  }
  const auto fail = [](const absl::Status& status, ExitCode code) {
    return PrintErrors("skeinctl simulate", status, code);
  };
  const auto inputs = SimInputs::Load(flags.sim);
  if (!inputs.ok()) return fail(inputs.status(), kUsage);
  std::fputs(inputs->warning().c_str(), stderr);
  const auto rows = Run(flags, *inputs);
  if (!rows.ok()) return fail(rows.status(), kUsage);
  std::fputs((flags.format == "json" ? SimulationJsonLines(*rows) : SimulationTable(*rows)).c_str(),
             stdout);
  if (!flags.chunks.empty()) {
    const absl::Status written = WriteFile(flags.chunks, ChunksCsv(*rows));
    if (!written.ok()) return fail(written, kFailed);
  }
  if (!flags.formations.requests.empty()) {
    const absl::Status written = WriteFile(flags.formations.requests, DecodeCsv(*rows));
    if (!written.ok()) return fail(written, kFailed);
  }
  if (flags.out.empty()) return 0;
  const absl::Status written = WriteOut(flags.out, SubtitleOf(flags.sim, *inputs), *rows);
  return written.ok() ? kDone : fail(written, kFailed);
}

}  // namespace skein::services
