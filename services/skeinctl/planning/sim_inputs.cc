#include "services/skeinctl/planning/sim_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "scheduler/plan/latency/latency_model.h"
#include "services/skeinctl/planning/trace_file.h"

namespace skein::services {
namespace {

constexpr int64_t kDefaultRequests = 2000;
constexpr int64_t kTuningRequests = 6000;

absl::Status Named(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

// Of chunks on instances of as few nodes as possible. Empty without a pinned tp.
std::string WarningOf(const scheduler::LatencyModel& model, const scheduler::Cluster& cluster) {
  std::string missing;
  for (const int ranks : model.sp_sizes()) {
    if (model.limits().pinned_tp <= 1 || ranks > cluster.instances) continue;
    const int tp = model.ChooseTp(ranks, 0, 1, ranks);
    const std::vector<scheduler::TensorShape>& known = model.TensorAt(model.IndexOf(ranks));
    const bool has =
        std::any_of(known.begin(), known.end(), [tp](const auto& shape) { return shape.tp == tp; });
    if (tp == 1 || has) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", ranks, " instances with tp ", tp);
  }
  if (missing.empty()) return "";
  return absl::StrCat("warning: --prefill-tp: the profile has no tensor rows of ", missing,
                      "; such chunks take the time of tp 1\n");
}

}  // namespace

void SimFlags::Register(FlagSet* flags) {
  flags->Group("Cluster");
  flags
      ->String(&profile, "profile",
               "Latency profile of the prefill instances: a built-in name or a file.")
      .Value("PROFILE");
  flags->Int(&instances, "instances", "Prefill instances.", 1, 1 << 16);
  flags->Int(&node_size, "node-size", "Prefill instances per node.", 0, 1 << 16)
      .Default("as many as have eight devices: 8, or less by the profile's base_devices");
  flags
      ->String(&prefill_tp, "prefill-tp",
               "How many instances of a node compute the dense part of a prompt's chunk together "
               "(TP); auto takes what is fastest by the profile's \"tensor\" rows, 1 leaves them "
               "out.")
      .Value("SIZE")
      .OneOf({"auto", "1", "2", "4", "8"});
  flags->Group("Load");
  flags
      ->String(&trace, "trace",
               "short, medium or long (prompt lengths of the Tetris paper), or a trace file.")
      .Value("TRACE");
  flags->String(&rate, "rate", "Requests per second, or several rates separated by commas.")
      .Default(
          "for a trace file as recorded; else 25, 50 and 75 % of the cluster's prefill capacity")
      .Value("RATE[,RATE...]");
  flags->Int(&requests, "requests", "Number of requests; 0 means all of a trace file, or 2000.", 0,
             100'000'000);
  flags->Int(&burst, "burst", "Requests that arrive together, for short, medium and long.", 1,
             1 << 20);
  flags->Int(&seed, "seed", "Seed of arrivals and lengths.", 0, int64_t{1} << 62);
  flags->Group("Flags");
}

absl::StatusOr<std::vector<double>> ParseRates(const std::string& text) {
  std::vector<double> rates;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    double rate = 0;
    if (!absl::SimpleAtod(part, &rate) || !std::isfinite(rate) || rate <= 0 || rate > 1e6) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part, "' is not a rate in requests per second, above 0 and at most 1000000"));
    }
    rates.push_back(rate);
  }
  return rates;
}

std::vector<double> DefaultRates(const scheduler::LengthDistribution& lengths,
                                 const scheduler::LatencyModel& model,
                                 const scheduler::Cluster& cluster) {
  constexpr int kSamples = 1000;
  scheduler::Random random(1);
  double instance_s = 0;  // of all samples
  for (int i = 0; i < kSamples; ++i) {
    const int64_t tokens = lengths.Sample(&random);
    double least_s = std::numeric_limits<double>::infinity();
    for (const int sp : model.sp_sizes()) {
      if (sp <= cluster.instances) least_s = std::min(least_s, sp * model.Seconds(sp, 0, tokens));
    }
    instance_s += least_s;
  }
  const double most = cluster.instances * kSamples / instance_s;
  std::vector<double> rates;
  for (const double share : {0.25, 0.5, 0.75}) {
    const double digit = std::pow(10, std::floor(std::log10(share * most)) - 1);
    rates.push_back(std::round(share * most / digit) * digit);
  }
  return rates;
}

absl::StatusOr<SimInputs> SimInputs::Load(const SimFlags& flags) {
  absl::StatusOr<Profile> profile = LoadLatencyProfile(flags.profile);
  if (!profile.ok()) return Named("profile", profile.status());
  SimInputs inputs(*std::move(profile));
  constexpr int64_t kDevicesOfNode = 8;
  const int64_t node_size =
      flags.node_size > 0 ? flags.node_size
                          : std::max<int64_t>(1, kDevicesOfNode / inputs.profile_.base_devices);
  inputs.cluster_ = {static_cast<int>(flags.instances), static_cast<int>(node_size)};
  if (inputs.model().sp_sizes().front() > inputs.cluster_.instances) {
    return absl::InvalidArgumentError(absl::StrCat("--instances: ", flags.instances,
                                                   " is less than the profile's smallest SP size, ",
                                                   inputs.model().sp_sizes().front()));
  }
  auto latency = WithinNodes(inputs.model(), inputs.cluster_.node_size, flags.prefill_tp);
  if (!latency.ok()) return Named("prefill-tp", latency.status());
  inputs.profile_.latency = *std::move(latency);
  inputs.warning_ = WarningOf(inputs.model(), inputs.cluster_);
  absl::StatusOr<std::vector<double>> rates = ParseRates(flags.rate);
  if (!rates.ok()) return Named("rate", rates.status());
  inputs.rates_ = *std::move(rates);

  const auto lengths = scheduler::LengthDistribution::OfPaper(flags.trace);
  if (lengths.ok()) {
    inputs.lengths_ = *lengths;
    if (inputs.rates_.empty()) {
      inputs.rates_ = DefaultRates(*lengths, inputs.model(), inputs.cluster());
    }
  } else {
    auto recorded = LoadTrace(flags.trace);
    if (!recorded.ok()) return Named("trace", recorded.status());
    inputs.recorded_ = *std::move(recorded);
    const auto count = static_cast<size_t>(flags.requests);
    if (count > 0 && count < inputs.recorded_.size()) inputs.recorded_.resize(count);
  }
  inputs.arrivals_.requests = flags.requests > 0 ? flags.requests : kDefaultRequests;
  inputs.arrivals_.burst = flags.burst;
  inputs.arrivals_.seed = static_cast<uint64_t>(flags.seed);
  return inputs;
}

absl::StatusOr<std::vector<scheduler::SimRequest>> SimInputs::Workload(std::optional<double> rate,
                                                                       int64_t offset) const {
  if (lengths_.has_value()) {
    scheduler::ArrivalOptions options = arrivals_;
    options.seed += static_cast<uint64_t>(offset);
    options.requests_per_s = rate.value();
    return GenerateWorkload(*lengths_, scheduler::LengthDistribution::Outputs(), options);
  }
  std::vector<scheduler::SimRequest> requests = recorded_;
  if (rate.has_value()) {
    const absl::Status scaled = scheduler::RescaleToRate(*rate, &requests);
    if (!scaled.ok()) return Named("rate", scaled);
  }
  return requests;
}

scheduler::WorkloadOfLoad SimInputs::TuningWorkload() const {
  return [this](double load, int round) {
    scheduler::ArrivalOptions options = arrivals_;
    options.requests_per_s = load;
    options.requests = kTuningRequests;
    options.seed = ~arrivals_.seed - (static_cast<uint64_t>(round) << 32);
    if (!lengths_.has_value()) return ResampleWorkload(recorded_, options);
    return GenerateWorkload(*lengths_, scheduler::LengthDistribution::Outputs(), options);
  };
}

std::vector<double> SimInputs::TuningLoads(std::optional<double> rate) const {
  const double load = rate.has_value() ? *rate : MeanRate(recorded_);
  if (load <= 0) return {1};
  if (lengths_.has_value() && arrivals_.burst == 1) return {load};
  // The load of bursts and recordings varies.
  return {load / 2, load, load * 1.5, load * 2};
}

}  // namespace skein::services
