#include "services/skeinctl/planning/profile.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/file.h"
#include "services/codec/profile_json.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/fit.h"
#include "services/skeinctl/planning/formation_gain.h"
#include "services/skeinctl/planning/formation_profile.h"
#include "services/skeinctl/planning/prefill_probe.h"
#include "services/skeinctl/planning/prefill_shapes.h"
#include "services/skeinctl/planning/profile_samples.h"
#include "services/skeinctl/terminal/progress.h"

namespace skein::services {
namespace {

constexpr int kInterrupted = 130;

// What a shape took, until a prompt fails in it.
struct ShapeRun {
  ProfileSamples samples;
  absl::Status failed;
};

// One prompt in one shape. An error: the measurement cannot go on.
absl::Status MeasureOne(int64_t length, bool warm_up, PrefillProbe* probe, ShapeRun* run) {
  const scheduler::PrefillShape& shape = run->samples.shape();
  absl::Status done = probe->Run(length, shape);
  if (!done.ok() && shape.instances == 1) return done;
  // After each prompt, because a worker remembers only its latest steps.
  const auto chunks = probe->Collect();
  if (!chunks.ok()) return chunks.status();
  run->failed = done;
  if (done.ok() && !warm_up) run->samples.Add(length, *chunks);
  return absl::OkStatus();
}

// Round 0 warms caches and is discarded.
absl::StatusOr<std::vector<ShapeRun>> Measure(const ProfileFlags& options, PrefillProbe* probe,
                                              std::vector<int64_t> lengths) {
  std::minstd_rand order(1);
  std::vector<ShapeRun> runs;
  const int64_t instances = options.prefill_shapes == "auto" ? probe->instances_of_node() : 1;
  for (const scheduler::PrefillShape& shape : ShapesUpTo(instances)) {
    runs.push_back({ProfileSamples(shape), absl::OkStatus()});
  }
  Progress progress("profile",
                    (options.rounds + 1) * static_cast<int64_t>(lengths.size() * runs.size()));
  for (int64_t round = 0; round <= options.rounds; ++round) {
    // A new order each round, so that a slow moment does not always hit the same length. All shapes
    // of a length follow each other, because they are compared.
    std::shuffle(lengths.begin(), lengths.end(), order);
    for (const int64_t length : lengths) {
      for (ShapeRun& run : runs) {
        progress.Step(absl::StrFormat("round %d of %d, a prompt of %d tokens on %s", round,
                                      options.rounds, length, NameOf(run.samples.shape())));
        if (!run.failed.ok()) continue;
        const absl::Status status = MeasureOne(length, /*warm_up=*/round == 0, probe, &run);
        if (!status.ok()) return status;
      }
    }
  }
  return runs;
}

// The medians of each shape, and what is to be said of those that were not measured.
struct PrefillTimes {
  std::vector<ShapeSamples> shapes;
  absl::Status incomplete;
};

PrefillTimes TimesOf(const std::vector<ShapeRun>& runs) {
  PrefillTimes times;
  for (const ShapeRun& run : runs) {
    std::fputs(run.samples.Unused().c_str(), stderr);
    if (!run.failed.ok()) {
      std::fprintf(stderr, "%s: not measured: %s\n", NameOf(run.samples.shape()).c_str(),
                   std::string(run.failed.message()).c_str());
      times.incomplete.Update(absl::FailedPreconditionError(
          "not all shapes of prefill instances were measured (see above)"));
    }
    if (!run.samples.complete()) {
      times.incomplete.Update(absl::FailedPreconditionError(
          "the profile lacks requested lengths (see above); profile an idle cluster, or "
          "lower --prompt-tokens-max"));
    }
    if (!run.failed.ok() || run.samples.samples().empty()) continue;
    times.shapes.push_back({run.samples.shape(), Medians(run.samples.samples())});
  }
  return times;
}

std::string PrefillCsv(const std::vector<ShapeSamples>& shapes) {
  std::vector<scheduler::LatencySample> of_sizes;
  for (const ShapeSamples& one : shapes) {
    if (one.shape.tp == 1) of_sizes.insert(of_sizes.end(), one.medians.begin(), one.medians.end());
  }
  return absl::StrCat(SamplesCsv(of_sizes), TensorCsv(shapes));
}

absl::Status WriteSamples(const ProfileFlags& options, const std::string& csv) {
  return options.samples_out.empty() ? absl::OkStatus() : WriteFile(options.samples_out, csv);
}

// The tables are for people: beside the profile, or in its place.
void PrintTable(const ProfileFlags& options, const std::string& text) {
  std::fputs(text.c_str(), options.format == "json" ? stderr : stdout);
}

using Gains = std::optional<scheduler::orchestrator::FormationProfile>;

// Measures what formations gain. Without groups that could be bound: nothing.
absl::Status MeasureGains(const std::string& orchestrator, const ProfileFlags& options,
                          const std::string& model, int64_t tokens_max,
                          const std::string& prefill_csv, Gains* gains) {
  if (options.formations == "off") return absl::OkStatus();
  ClusterClient client(orchestrator);
  const auto measured = MeasureFormations(&client, {.model = model,
                                                    .tokens_max = tokens_max,
                                                    .rounds = options.formation_rounds,
                                                    .streams = options.formation_streams,
                                                    .steps = options.formation_steps});
  if (absl::IsNotFound(measured.status())) {
    std::fputs(absl::StrCat("formations: ", std::string(measured.status().message()), "\n").c_str(),
               stderr);
    return absl::OkStatus();
  }
  if (!measured.ok()) {
    return absl::Status(measured.status().code(),
                        absl::StrCat("formations: ", std::string(measured.status().message())));
  }
  std::fputs(measured->notes.c_str(), stderr);
  PrintTable(options, FormationTable(measured->points, measured->findings));
  const std::string csv = absl::StrCat(prefill_csv, DecodeCsv(measured->points));
  if (auto s = WriteSamples(options, csv); !s.ok()) return s;
  *gains = FormationProfileOf(measured->findings);
  const bool complete = std::all_of(measured->findings.begin(), measured->findings.end(),
                                    [](const auto& one) { return one.second.complete(); });
  if (complete) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "formations: not all sizes were measured (see above); profile an idle cluster");
}

// The longest prompt to send, of --prompt-tokens-max and the model. INVALID_ARGUMENT names the
// flag.
absl::StatusOr<int64_t> LongestPrompt(const ProfileFlags& options, int64_t longest) {
  if (options.prompt_tokens_max > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompt-tokens-max: ", options.prompt_tokens_max, " is above ", longest,
                     ", the model's longest prompt"));
  }
  const int64_t tokens_max = options.prompt_tokens_max > 0 ? options.prompt_tokens_max : longest;
  if (options.prompt_tokens_min >= tokens_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompt-tokens-min: ", options.prompt_tokens_min, " is not below ",
                     tokens_max, ", the longest prompt"));
  }
  return tokens_max;
}

// Both errors, a line each.
absl::Status Joined(const absl::Status& one, const absl::Status& other) {
  if (one.ok() || other.ok()) return one.ok() ? other : one;
  return absl::Status(one.code(), absl::StrCat(one.message(), "\n", other.message()));
}

// Empty where one instance alone has no fit: plain plans need it. `refused`: what is missing.
std::optional<scheduler::LatencyModel> LatencyOf(const ProfileFlags& options,
                                                 const std::vector<ShapeSamples>& shapes,
                                                 absl::Status* refused) {
  const ShapeFits fits = FitShapes(shapes);
  PrintTable(options, fits.table);
  *refused = fits.refused;
  if (!fits.sizes.contains(1)) return std::nullopt;
  auto latency = scheduler::LatencyModel::Make(fits.sizes, fits.tensor);
  if (latency.ok()) return *std::move(latency);
  *refused = Joined(*refused, latency.status());
  return std::nullopt;
}

absl::Status Profiled(const std::string& orchestrator, const ProfileFlags& options) {
  auto probe = PrefillProbe::Connect(orchestrator, options.model);
  if (!probe.ok()) return probe.status();
  const int64_t longest = (*probe)->prompt_tokens_max();
  const auto tokens_max = LongestPrompt(options, longest);
  if (!tokens_max.ok()) return tokens_max.status();
  const auto runs = Measure(
      options, probe->get(),
      PromptLengths(options.prompt_tokens_min, *tokens_max, static_cast<int>(options.lengths)));
  if (!runs.ok()) return runs.status();
  const PrefillTimes times = TimesOf(*runs);
  if (runs->front().samples.samples().empty()) {
    return absl::FailedPreconditionError(
        "no prompt ran alone on one instance; profile an idle cluster whose prefill instances each "
        "hold the longest prompt");
  }
  const std::string csv = PrefillCsv(times.shapes);
  if (auto s = WriteSamples(options, csv); !s.ok()) return s;
  absl::Status refused;
  const auto latency = LatencyOf(options, times.shapes, &refused);
  // A prefill side that does not fit is no reason not to measure the decode side.
  Gains gains;
  absl::Status decode =
      MeasureGains(orchestrator, options, (*probe)->model(), longest + 1, csv, &gains);
  if (absl::IsCancelled(decode)) return decode;
  if (options.format == "json" && (latency.has_value() || gains.has_value())) {
    std::fputs(ProfileJson({.model = (*probe)->model(),
                            .device = (*probe)->device(),
                            .date = Today(),
                            .latency = latency,
                            .formations = gains})
                   .c_str(),
               stdout);
  }
  return Joined(Joined(refused, decode), times.incomplete);
}

}  // namespace

void ProfileFlags::Register(FlagSet* set) {
  set->About(
      "Measure the latency profile of a running cluster.\n"
      "\n"
      "Writes the profile to standard output and its error at each sample to standard error. The "
      "cluster should be idle. Prompts run on one prefill instance, and on several of a node in "
      "each shape. Decode groups are bound at each size, in TP, in SP and in SP x TP, to measure "
      "what their formations gain; they are pinned meanwhile, and released and unpinned at the "
      "end, also after an error, Ctrl-C, or the end of the terminal.");
  RegisterCluster(&orchestrator, set);
  set->String(&model, "model", "The model to measure; needed if the cluster serves several.")
      .Value("NAME");
  set->String(&samples_out, "samples-out",
              "The samples are also written to this CSV file, for skeinctl fit.")
      .Value("FILE");
  set->Int(&prompt_tokens_min, "prompt-tokens-min", "Shortest prompt.", 1, 1 << 30);
  set->Int(&prompt_tokens_max, "prompt-tokens-max",
           "Longest prompt; 0 means what the model's context allows.", 0, 1 << 30);
  set->Int(&lengths, "lengths", "Number of different prompt lengths.", 4, 10'000);
  set->Int(&rounds, "rounds", "Number of measurements of each length.", 1, 1000);
  set->String(&prefill_shapes, "prefill-shapes",
              "auto: also measure prompts that 2, 4 and 8 prefill instances of a node compute "
              "together, where there are so many, with each tensor-parallel size; off: one "
              "instance only.")
      .Value("WHEN")
      .OneOf({"auto", "off"});
  set->String(&formations, "formations",
              "auto: also measure what binding the decode instances of a node gains, and above how "
              "many tokens a step runs in SP or SP x TP, where there are two or more; off: do not.")
      .Value("WHEN")
      .OneOf({"auto", "off"});
  set->Int(&formation_rounds, "formation-rounds", "Number of measurements of each formation.", 1,
           1000);
  set->Int(&formation_streams, "formation-streams",
           "Most streams at a time for each bound group; 1, 2, 4 ... up to it are measured.", 1,
           4096);
  set->Int(&formation_steps, "formation-steps", "Decode steps of each measurement of a formation.",
           8, 100'000);
  set->String(&format, "format",
              "Output: the profile (json), or the measured times and what follows from them as "
              "tables (text).")
      .OneOf({"json", "text"})
      .Value("FORMAT");
}

int RunProfile(const ProfileFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("profile", orchestrator.status());
  const absl::Status done = Profiled(*orchestrator, flags);
  if (done.ok()) return kDone;
  const bool wrong_flag = absl::StartsWith(done.message(), "--");
  const int failed = PrintErrors("skeinctl profile", done, wrong_flag ? kUsage : kFailed);
  return absl::IsCancelled(done) ? kInterrupted : failed;
}

}  // namespace skein::services
