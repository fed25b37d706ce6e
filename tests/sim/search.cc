// Looks for seeds that fail, in worlds of every kind (kinds.h), or replays one:
//   bazel run //tests/sim:search -- --first_seed=1000 --seeds=200
//   bazel run //tests/sim:search -- --kind=half_open --first_seed=52 --seeds=1 --trace
// Prints a line for each that fails, as failed_seeds.txt has them, and at its end what all of them
// did. Fails if one did.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/sim/kinds.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

struct SearchFlags {
  std::string kind;  // empty: all
  uint64_t seeds = 10;
};

bool Parse(int argc, char** argv, SearchFlags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const std::string value(arg.substr(std::min(arg.find('=') + 1, arg.size())));
    if (arg.starts_with("--first_seed=")) {
      seed_flags.first_seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (arg.starts_with("--seeds=")) {
      flags->seeds = std::strtoull(value.c_str(), nullptr, 10);
    } else if (arg.starts_with("--kind=")) {
      flags->kind = value;
    } else if (arg == "--trace") {
      seed_flags.trace = true;
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return false;
    }
  }
  return true;
}

// The number of worlds that fail.
int Search(const SearchFlags& flags) {
  int failed = 0;
  for (uint64_t i = 0; i < flags.seeds; ++i) {
    const uint64_t seed = seed_flags.first_seed + i;
    for (const Kind& kind : Kinds()) {
      if (!flags.kind.empty() && kind.name != flags.kind) continue;
      const Outcome outcome = RunWorld(kind.make(seed));
      if (outcome.violation.empty()) continue;
      ++failed;
      std::printf("%.*s %llu  # %s\n", static_cast<int>(kind.name.size()), kind.name.data(),
                  static_cast<unsigned long long>(seed), outcome.violation.c_str());
      std::fflush(stdout);
    }
  }
  PrintStatistics();
  return failed;
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  skein::sim::SearchFlags flags;
  if (!skein::sim::Parse(argc, argv, &flags)) return 2;
  return skein::sim::Search(flags) == 0 ? 0 : 1;
}
