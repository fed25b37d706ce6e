// Looks for seeds that fail, in worlds of every kind (kinds.h), or replays one:
//   bazel run //tests/sim:search -- --first_seed=1000 --seeds=200
//   bazel run //tests/sim:search -- --kind=half_open --first_seed=52 --seeds=1 --trace
// Prints a line for each that fails, as failed_seeds.txt has them, and at its end what all of them
// did. Exits with 1 if one failed, with 2 if nothing can be searched: an unknown flag or kind, or a
// value that is no number.
#include <algorithm>
#include <cstdint>
#include <cstdio>
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

bool IsKind(std::string_view name) {
  return std::any_of(Kinds().begin(), Kinds().end(),
                     [&](const Kind& kind) { return kind.name == name; });
}

// One flag. False, told on stderr: it is not right.
bool Take(std::string_view arg, SearchFlags* flags) {
  constexpr std::string_view kKind = "--kind=";
  bool bad = false;
  if (const auto first = NumberOf(arg, "--first_seed=", &bad)) {
    seed_flags.first_seed = *first;
  } else if (const auto seeds = NumberOf(arg, "--seeds=", &bad); seeds > 0) {
    flags->seeds = *seeds;
  } else if (arg.starts_with(kKind) && IsKind(arg.substr(kKind.size()))) {
    flags->kind = arg.substr(kKind.size());
  } else if (arg == "--trace") {
    seed_flags.trace = true;
  } else if (!bad) {
    std::fprintf(stderr, "%.*s: no such flag, kind of world (tests/sim/kinds.cc) or count\n",
                 static_cast<int>(arg.size()), arg.data());
    bad = true;
  }
  return !bad;
}

bool Parse(int argc, char** argv, SearchFlags* flags) {
  bool good = true;
  for (int i = 1; i < argc; ++i) good &= Take(argv[i], flags);
  return good;
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
