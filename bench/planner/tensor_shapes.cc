// For which prompts it pays that the instances of a node share the dense part of a chunk (TP),
// by the peaks of their device (scheduler/simulator/formations/prefill_shapes.h).
//
//   bazel run --config=opt //bench/planner:tensor_shapes
//     First: for each prompt length the fastest shape in SP alone, the fastest of all, and by how
//     much that is shorter. Then the TTFT at a light load, simulated with the fitted profile, with
//     its tensor shapes and without.
//   bazel run --config=opt //bench/planner:tensor_shapes -- STEP_PROFILE EXCHANGE_US
//     Prints that profile, as skeinctl and the orchestrator take it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "scheduler/simulator/formations/builtin_step_profiles.h"
#include "scheduler/simulator/formations/prefill_shapes.h"
#include "scheduler/simulator/simulator.h"
#include "services/codec/profile_json.h"

namespace skein::scheduler {
namespace {

constexpr int kInstances = 8;  // one node
constexpr const char* kProfiles[] = {"llama3-8b", "llama3-70b-h200-fp8"};
// The last one is what the step profiles were fitted to (Shift Parallelism's collectives).
constexpr double kExchangesUs[] = {5, 10, 20, 34.92};

struct Fastest {
  double seconds = 0;
  int sp = 0;
  int tp = 0;
};

Fastest FastestShape(const StepProfile& profile, const PrefillDerivation& derivation, int tp_max,
                     int64_t tokens) {
  Fastest best;
  for (int ranks = 1; ranks <= kInstances; ranks *= 2) {
    for (int tp = 1; tp <= std::min(ranks, tp_max); tp *= 2) {
      const double seconds = PrefillSeconds(profile, derivation, ranks, tp, 0, tokens);
      if (best.sp == 0 || seconds < best.seconds) best = {seconds, ranks / tp, tp};
    }
  }
  return best;
}

void PrintLengths(const StepProfile& profile, const PrefillDerivation& derivation) {
  std::printf("| %s | %g us | %s |", profile.name.c_str(), derivation.exchange_s * 1e6,
              derivation.shares_projections ? "all products" : "feed-forward");
  for (int64_t tokens = 64; tokens <= 4096; tokens *= 2) {
    const Fastest plain = FastestShape(profile, derivation, 1, tokens);
    const Fastest all = FastestShape(profile, derivation, kInstances, tokens);
    if (all.tp == 1) {
      std::printf(" %.1f: %d |", plain.seconds * 1e3, plain.sp);
      continue;
    }
    std::printf(" %.1f: %d, **%.1f**: %d x %d, %.0f %% |", plain.seconds * 1e3, plain.sp,
                all.seconds * 1e3, all.sp, all.tp, 100 * (1 - all.seconds / plain.seconds));
  }
  std::printf("\n");
}

std::string Shapes(const SimulationResult& result) {
  std::string text;
  for (const auto& [shape, chunks] : result.shapes) {
    text += (text.empty() ? "" : ", ") + std::to_string(shape.first) + " x " +
            std::to_string(shape.second) + ": " + std::to_string(chunks);
  }
  return text;
}

// Prompts of 64 to 2,048 tokens, 512 on average: short ones, as in a chat.
void PrintLoad(const StepProfile& profile, const PrefillDerivation& derivation) {
  const auto derived = DeriveLatency(profile, derivation, kInstances);
  if (!derived.ok()) {
    std::printf("%s\n", derived.status().ToString().c_str());
    return;
  }
  const std::vector<SimRequest> requests = GenerateWorkload(
      LengthDistribution::WithMean(64, 2048, 512), LengthDistribution::Outputs(), {2, 4000, 1, 1});
  for (const char* policy : {"greedy", "fixed8"}) {
    const auto run = [&](const ShapeLimits& limits) {
      return Simulate(*Policy::Parse(policy), requests, derived->latency.Within(limits),
                      {kInstances, kInstances}, {}, {});
    };
    const SimulationResult without = run({.tp_max = kInstances, .pinned_tp = 1});
    const SimulationResult with = run({.tp_max = kInstances});
    std::printf("| %s | %g us | %s | %s | %.2f / %.2f | **%.2f** / **%.2f** | %s |\n",
                profile.name.c_str(), derivation.exchange_s * 1e6,
                derivation.shares_projections ? "all products" : "feed-forward", policy,
                without.ttft_p50_s * 1e3, without.ttft_p99_s * 1e3, with.ttft_p50_s * 1e3,
                with.ttft_p99_s * 1e3, Shapes(with).c_str());
  }
}

void PrintFits(const StepProfile& profile, const PrefillDerivation& derivation) {
  const auto derived = DeriveLatency(profile, derivation, kInstances);
  if (!derived.ok()) return;
  std::printf(
      "%s, %g us, %s: equation 1 misses the peaks' times by at most %.0f %% "
      "(%d instances, tp %d, %ld tokens)\n",
      profile.name.c_str(), derivation.exchange_s * 1e6,
      derivation.shares_projections ? "all products" : "feed-forward", 100 * derived->worst_error,
      derived->worst_shape.ranks, derived->worst_shape.tp,
      static_cast<long>(derived->worst_tokens));
}

template <class Print>
void ForEach(Print print) {
  for (const char* name : kProfiles) {
    for (const bool shares_projections : {false, true}) {
      for (const double exchange_us : kExchangesUs) {
        print(*FindStepProfile(name), PrefillDerivation{exchange_us * 1e-6, shares_projections});
      }
    }
  }
}

int PrintProfile(const char* name, double exchange_us) {
  const StepProfile* profile = FindStepProfile(name);
  if (profile == nullptr || profile->base_devices != 1 || !(exchange_us > 0)) {
    std::fprintf(stderr, "'%s' is no step profile of instances of one device, or %g is no time\n",
                 name, exchange_us);
    return 2;
  }
  const auto derived = DeriveLatency(*profile, {.exchange_s = exchange_us * 1e-6}, kInstances);
  if (!derived.ok()) {
    std::fprintf(stderr, "%s\n", derived.status().ToString().c_str());
    return 1;
  }
  std::fputs(services::ProfileJson({.model = profile->model,
                                    .device = profile->device,
                                    .date = "",
                                    .latency = derived->latency,
                                    .improvement_rates = std::nullopt,
                                    .rolling = std::nullopt})
                 .c_str(),
             stdout);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 3) return PrintProfile(argv[1], std::atof(argv[2]));
  std::printf(
      "ms: SP of the fastest in SP alone; **ms**: SP x TP of the fastest of all, and how much "
      "shorter\n\n| model | an exchange | shared | 64 tokens | 128 | 256 | 512 | 1024 | 2048 | "
      "4096 "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n");
  ForEach(PrintLengths);
  std::printf(
      "\n| model | an exchange | shared | policy | TTFT P50 / P99, ms, SP alone | with TP | chunks "
      "by SP x TP |\n|---|---|---|---|---|---|---|\n");
  ForEach(PrintLoad);
  std::printf("\n");
  ForEach(PrintFits);
  return 0;
}

}  // namespace
}  // namespace skein::scheduler

int main(int argc, char** argv) { return skein::scheduler::Main(argc, argv); }
