#include "services/skeinctl/planning/profile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/base/file.h"
#include "services/codec/profile_json.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/fit.h"
#include "services/skeinctl/planning/formation_gain.h"
#include "services/skeinctl/planning/formation_profile.h"
#include "services/skeinctl/planning/prefill_probe.h"
#include "services/skeinctl/terminal/progress.h"

namespace skein::services {
namespace {

constexpr int kInterrupted = 130;

// Round 0 warms caches and is discarded.
absl::StatusOr<ProfileSamples> Measure(const ProfileFlags& options, PrefillProbe* probe,
                                       std::vector<int64_t> lengths) {
  std::minstd_rand order(1);
  ProfileSamples samples;
  Progress progress("profile", (options.rounds + 1) * static_cast<int64_t>(lengths.size()));
  for (int64_t round = 0; round <= options.rounds; ++round) {
    // A new order each round, so that a slow moment does not always hit the same length.
    std::shuffle(lengths.begin(), lengths.end(), order);
    for (const int64_t length : lengths) {
      progress.Step(
          absl::StrFormat("round %d of %d, a prompt of %d tokens", round, options.rounds, length));
      if (const absl::Status run = probe->Run(length); !run.ok()) return run;
      // After each prompt, because a worker remembers only its latest steps.
      const auto chunks = probe->Collect();
      if (!chunks.ok()) return chunks.status();
      if (round > 0) samples.Add(length, *chunks);
    }
  }
  return samples;
}

absl::Status WriteSamples(const ProfileFlags& options,
                          const std::vector<scheduler::LatencySample>& prefill,
                          const std::vector<DecodePoint>& decode) {
  if (options.samples_out.empty()) return absl::OkStatus();
  return WriteFile(options.samples_out, absl::StrCat(SamplesCsv(prefill), DecodeCsv(decode)));
}

// The tables are for people: beside the profile, or in its place.
void PrintTable(const ProfileFlags& options, const std::string& text) {
  std::fputs(text.c_str(), options.format == "json" ? stderr : stdout);
}

// Adds what formations gain to the profile. Without groups that could be bound: nothing.
absl::Status AddFormations(const std::string& orchestrator, const ProfileFlags& options,
                           int64_t tokens_max, const std::vector<scheduler::LatencySample>& prefill,
                           Profile* profile) {
  if (options.formations == "off") return absl::OkStatus();
  ClusterClient client(orchestrator);
  const auto measured = MeasureFormations(&client, {.model = profile->model,
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
  if (auto s = WriteSamples(options, prefill, measured->points); !s.ok()) return s;
  profile->formations = FormationProfileOf(measured->findings);
  const bool complete = std::all_of(measured->findings.begin(), measured->findings.end(),
                                    [](const auto& one) { return one.second.complete(); });
  if (complete) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "formations: not all sizes were measured (see above); profile an idle cluster");
}

absl::Status Profiled(const std::string& orchestrator, const ProfileFlags& options) {
  auto probe = PrefillProbe::Connect(orchestrator, options.model);
  if (!probe.ok()) return probe.status();
  const int64_t longest = (*probe)->prompt_tokens_max();
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
  auto samples = Measure(
      options, probe->get(),
      PromptLengths(options.prompt_tokens_min, tokens_max, static_cast<int>(options.lengths)));
  if (!samples.ok()) return samples.status();
  std::fputs(samples->Unused().c_str(), stderr);
  if (samples->samples().empty()) {
    return absl::FailedPreconditionError(
        "no prompt ran alone on one instance; profile an idle cluster whose prefill instances each "
        "hold the longest prompt");
  }
  const std::vector<scheduler::LatencySample> medians = Medians(samples->samples());
  if (const auto s = WriteSamples(options, medians, {}); !s.ok()) return s;
  const auto fit = scheduler::FitLatency(medians);
  if (!fit.ok()) return fit.status();
  PrintTable(options, ResidualTable(*fit));
  auto latency = scheduler::LatencyModel::Make(fit->sizes);
  if (!latency.ok()) return latency.status();
  Profile profile{(*probe)->model(),   (*probe)->device(), Today(),
                  *std::move(latency), std::nullopt,       std::nullopt};
  absl::Status done = AddFormations(orchestrator, options, longest + 1, medians, &profile);
  if (absl::IsCancelled(done)) return done;
  if (options.format == "json") std::fputs(ProfileJson(profile).c_str(), stdout);
  if (!samples->complete()) {
    done.Update(absl::FailedPreconditionError(
        "the profile lacks requested lengths (see above); profile an idle cluster, or "
        "lower --prompt-tokens-max"));
  }
  return done;
}

}  // namespace

std::vector<int64_t> PromptLengths(int64_t tokens_min, int64_t tokens_max, int count) {
  std::vector<int64_t> lengths;
  const double ratio = static_cast<double>(tokens_max) / static_cast<double>(tokens_min);
  for (int i = 0; i < count; ++i) {
    lengths.push_back(std::llround(static_cast<double>(tokens_min) *
                                   std::pow(ratio, static_cast<double>(i) / (count - 1))));
  }
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

void ProfileSamples::Add(int64_t prompt_tokens,
                         const std::vector<scheduler::LatencySample>& chunks) {
  Tally& tally = lengths_[prompt_tokens];
  int64_t tokens = 0;
  for (const scheduler::LatencySample& chunk : chunks) tokens += chunk.chunk_tokens;
  if (tokens != prompt_tokens) {
    ++(tokens < prompt_tokens ? tally.shared : tally.disturbed);
    return;
  }
  ++tally.used;
  samples_.insert(samples_.end(), chunks.begin(), chunks.end());
}

std::string ProfileSamples::Unused() const {
  const auto list = [this](auto count) {
    std::vector<std::string> lengths;
    for (const auto& [length, tally] : lengths_) {
      const int n = count(tally);
      if (n > 0) lengths.push_back(absl::StrFormat("%d (%d times)", length, n));
    }
    return lengths;
  };
  std::string text;
  const auto add = [&](const char* why, const std::vector<std::string>& lengths) {
    if (lengths.empty()) return;
    absl::StrAppend(&text, "not used, ", why, ": prompts of ", absl::StrJoin(lengths, ", "),
                    " tokens\n");
  };
  add("computed by two or more instances", list([](const Tally& t) { return t.shared; }));
  add("other requests ran meanwhile", list([](const Tally& t) { return t.disturbed; }));
  std::vector<std::string> missing;
  for (const auto& [length, tally] : lengths_) {
    if (tally.used == 0) missing.push_back(absl::StrCat(length));
  }
  if (!missing.empty()) {
    absl::StrAppendFormat(&text, "not measured: %d of %d lengths: %s tokens\n", missing.size(),
                          lengths_.size(), absl::StrJoin(missing, ", "));
  }
  return text;
}

bool ProfileSamples::complete() const {
  return std::all_of(lengths_.begin(), lengths_.end(),
                     [](const auto& entry) { return entry.second.used > 0; });
}

std::vector<scheduler::LatencySample> Medians(std::vector<scheduler::LatencySample> samples) {
  std::map<std::tuple<int, int64_t, int64_t>, std::vector<double>> seconds;
  for (const scheduler::LatencySample& s : samples) {
    seconds[{s.sp, s.history_tokens, s.chunk_tokens}].push_back(s.seconds);
  }
  std::vector<scheduler::LatencySample> medians;
  for (auto& [key, times] : seconds) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    medians.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), *middle});
  }
  return medians;
}

std::string SamplesCsv(const std::vector<scheduler::LatencySample>& samples) {
  std::string text = "sp,history_tokens,chunk_tokens,seconds\n";
  for (const scheduler::LatencySample& s : samples) {
    absl::StrAppendFormat(&text, "%d,%d,%d,%.9g\n", s.sp, s.history_tokens, s.chunk_tokens,
                          s.seconds);
  }
  return text;
}

void ProfileFlags::Register(FlagSet* set) {
  set->About(
      "Measure the latency profile of a running cluster.\n"
      "\n"
      "Writes the profile to standard output and its error at each sample to standard error. The "
      "cluster should be idle. Decode groups are bound at each size, in TP and in SP, to measure "
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
  set->String(&formations, "formations",
              "auto: also measure what binding the decode instances of a node gains, and above how "
              "many tokens a step runs in SP, where there are two or more; off: do not.")
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
