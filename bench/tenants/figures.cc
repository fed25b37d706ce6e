// What a burst of one tenant of three does to the others, by the queues that the processes have, in
// simulated time (scheduler/simulator/tenants): the figures depend on no machine and no load of it.
//
//   bazel run --config=opt //bench/tenants:figures [-- [--json] [--prompt=TOKENS]]
//
// Prompts have 4,096 tokens on average, or so many. Two tenants ask for a part of their shares of
// the prefill instances; the third one for nothing, for its share, and for ten times its share.
// "unknown": the same where no request has a tenant.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <vector>

#include "scheduler/simulator/tenants/tenant_run.h"

namespace skein::scheduler {
namespace {

struct Case {
  const char* name;
  double times;  // the third tenant's share
  bool tell_tenants;
};

struct Options {
  bool json = false;
  int64_t prompt_tokens = 4096;
};

TenantRun RunCase(const Case& one, int64_t prompt_tokens) {
  TenantRunConfig config;
  config.loads = {{.name = "a"}, {.name = "b"}, {.name = "burst"}};
  for (TenantLoad& load : config.loads) load.prompt_tokens = prompt_tokens;
  const auto tokens = static_cast<double>(prompt_tokens);
  const double steps = tokens / static_cast<double>(config.prefill.max_batch_tokens);
  const double prompt_s = config.prefill_token_s * tokens + config.prefill_step_s * steps;
  const double share = config.prefill_instances / prompt_s / 3;
  config.loads[0].requests_per_s = config.loads[1].requests_per_s = 0.6 * share;
  config.loads[2].requests_per_s = share * one.times;
  config.seconds = 1200;
  config.tell_tenants = one.tell_tenants;
  return RunTenants(config);
}

std::vector<double> BothOf(const TenantRun& run, std::vector<double> TenantFigures::*of) {
  std::vector<double> both = run.tenants[0].*of;
  both.insert(both.end(), (run.tenants[1].*of).begin(), (run.tenants[1].*of).end());
  return both;
}

void Run(const Options& options) {
  const std::vector<Case> cases = {{"idle", 1e-6, true},
                                   {"its share", 1, true},
                                   {"10 times its share", 10, true},
                                   {"10 times, unknown", 10, false}};
  std::vector<double> before;
  if (!options.json) {
    std::printf(
        "| the third tenant | TTFT p50 | TTFT p99 | TPOT p50 | TPOT p99 | refused: others | "
        "refused: it |\n|---|---|---|---|---|---|---|\n");
  }
  for (const Case& one : cases) {
    const TenantRun run = RunCase(one, options.prompt_tokens);
    const std::vector<double> ttft = BothOf(run, &TenantFigures::ttft_s);
    const std::vector<double> tpot = BothOf(run, &TenantFigures::tpot_s);
    const std::vector<double> now = {PercentileOf(ttft, 0.5), PercentileOf(ttft, 0.99),
                                     PercentileOf(tpot, 0.5), PercentileOf(tpot, 0.99)};
    if (before.empty()) before = now;
    const auto refused = static_cast<long long>(run.tenants[0].refused) +
                         static_cast<long long>(run.tenants[1].refused);
    const auto burst = static_cast<long long>(run.tenants[2].refused);
    if (options.json) {
      std::printf(
          "{\"third\": \"%s\", \"ttft_p50_s\": %.6f, \"ttft_p99_s\": %.6f, \"tpot_p50_s\": "
          "%.6f, \"tpot_p99_s\": %.6f, \"ratios\": [%.4f, %.4f, %.4f, %.4f], \"refused\": "
          "%lld, \"refused_third\": %lld}\n",
          one.name, now[0], now[1], now[2], now[3], now[0] / before[0], now[1] / before[1],
          now[2] / before[2], now[3] / before[3], refused, burst);
    } else {
      std::printf("| %s |", one.name);
      for (size_t i = 0; i < now.size(); ++i) {
        std::printf(" %.1f ms (%.2f) |", now[i] * 1e3, now[i] / before[i]);
      }
      std::printf(" %lld | %lld |\n", refused, burst);
    }
  }
}

}  // namespace
}  // namespace skein::scheduler

int main(int argc, char** argv) {
  skein::scheduler::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    constexpr std::string_view kPrompt = "--prompt=";
    if (arg == "--json") {
      options.json = true;
      continue;
    }
    const char* const end = arg.data() + arg.size();
    const bool prompt = arg.starts_with(kPrompt);
    const auto read =
        std::from_chars(arg.data() + (prompt ? kPrompt.size() : 0), end, options.prompt_tokens);
    if (!prompt || read.ec != std::errc() || read.ptr != end || options.prompt_tokens < 4 ||
        options.prompt_tokens > 1'000'000) {
      std::fprintf(stderr, "%s: --json or --prompt=TOKENS, 4 to 1000000\n", argv[i]);
      return 2;
    }
  }
  skein::scheduler::Run(options);
  return 0;
}
