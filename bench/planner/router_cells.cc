// 64 cells of 1,024 instances behind the shipped RouterCore, with and without the loss of one: the
// figures of docs/scale.md. --instance-requests=N: what an instance holds at a time, which
// multiplies the load. --run-s=SECONDS: how long requests arrive.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "scheduler/simulator/router_cells.h"

namespace skein::scheduler {
namespace {

// CPU time of this thread, which other processes do not lengthen.
double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double Ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

void Row(RouterCellsOptions options, bool lose_one) {
  if (lose_one) options.lost_s = options.run_s * 0.6;
  options.clock_s = CpuSeconds;
  const RouterCellsResult result = SimulateRouterCells(options);
  if (!result.violation.empty()) {
    std::fprintf(stderr, "%s\n", result.violation.c_str());
    std::exit(1);
  }
  const auto requests = static_cast<double>(result.requests);
  std::printf(
      "| %s | %lld | %lld | %lld | %.2f %% | %llu | %lld | %.3f | %.3f | %.3f | %.1f | %.0f |\n",
      lose_one ? "yes" : "no", static_cast<long long>(result.requests),
      static_cast<long long>(result.refused), static_cast<long long>(result.failed),
      100 * Ratio(static_cast<double>(result.held_lost), static_cast<double>(result.held)),
      static_cast<unsigned long long>(result.moved),
      static_cast<long long>(result.failed - result.lost), result.after.mean, result.after.emptiest,
      result.after.fullest, 1e6 * Ratio(result.core_s, requests), Ratio(requests, result.core_s));
}

}  // namespace
}  // namespace skein::scheduler

int main(int argc, char** argv) {
  skein::scheduler::RouterCellsOptions options;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&](const char* name) -> const char* {
      const size_t length = std::strlen(name);
      return std::strncmp(argv[i], name, length) == 0 ? argv[i] + length : nullptr;
    };
    if (const char* requests = value("--instance-requests=")) {
      options.instance_requests = std::max(1, std::atoi(requests));
    } else if (const char* seconds = value("--run-s=")) {
      options.run_s = std::atof(seconds);
    } else {
      std::fprintf(stderr, "unknown flag %s; known: --instance-requests=N --run-s=SECONDS\n",
                   argv[i]);
      return 2;
    }
  }
  std::printf(
      "%zu cells of %zu instances with %lld requests each, %zu routers, load %.2f\n"
      "| one is lost | requests | refused | ended with it | its share of what was held | moved | "
      "failed besides | mean fill | emptiest cell | fullest cell | us of router core a request | "
      "requests/s of a router's core |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      options.cells, options.instances, static_cast<long long>(options.instance_requests),
      options.routers, options.utilisation);
  skein::scheduler::Row(options, /*lose_one=*/false);
  skein::scheduler::Row(options, /*lose_one=*/true);
}
