// The command line of a test over seeds. --seed=N runs one seed, --trace prints its log,
// --first_seed=N moves all slices (a longer search: other seeds, same test), --plans=N runs seeds
// until N plans spanned instances. At its end a run prints what its worlds did (Statistics).
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/sim/world.h"

namespace skein::sim {

struct SeedFlags {
  std::optional<uint64_t> seed;
  uint64_t first_seed = 1;
  int64_t plans = 0;
  bool trace = false;
};
inline SeedFlags seed_flags;

// The value of `arg` if it is `name` with a number, such as --seed=7. Another value of this name is
// told on stderr and sets *bad.
inline std::optional<uint64_t> NumberOf(std::string_view arg, std::string_view name, bool* bad) {
  if (!arg.starts_with(name)) return std::nullopt;
  const std::string_view text = arg.substr(name.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  std::fprintf(stderr, "%.*s: not a number\n", static_cast<int>(arg.size()), arg.data());
  *bad = true;
  return std::nullopt;
}

using MakeWorld = Scenario (*)(uint64_t seed);

inline void Print(uint64_t seed, const Outcome& outcome) {
  std::printf(
      "seed %llu: %s; %llu actions, %lld of %lld requests finished, %lld failed by "
      "themselves, %lld plans on several instances, %lld steps together (%lld with tp, %lld "
      "broken), %lld staged "
      "parts, trace %016llx\n",
      static_cast<unsigned long long>(seed),
      outcome.violation.empty() ? "ok" : outcome.violation.c_str(),
      static_cast<unsigned long long>(outcome.actions), static_cast<long long>(outcome.finished),
      static_cast<long long>(outcome.requests), static_cast<long long>(outcome.failed_alone),
      static_cast<long long>(outcome.sp_plans), static_cast<long long>(outcome.joint_steps),
      static_cast<long long>(outcome.tensor_steps),
      static_cast<long long>(outcome.joint_steps_broken),
      static_cast<long long>(outcome.parts_copied),
      static_cast<unsigned long long>(outcome.trace_hash));
}

inline int Replay(uint64_t seed, MakeWorld make) {
  const Outcome outcome = World(make(seed), seed_flags.trace).Run();
  Print(seed, outcome);
  return outcome.violation.empty() ? 0 : 1;
}

inline void Add(const Outcome& one, Outcome* sum) {
  sum->actions += one.actions;
  sum->in_flight_us += one.in_flight_us;
  sum->faults += one.faults;
  sum->faults_met += one.faults_met;
  sum->coverage.Add(one.coverage);
  sum->requests += one.requests;
  sum->finished += one.finished;
  sum->abandoned += one.abandoned;
  sum->misses += one.misses;
  sum->moves += one.moves;
  sum->suspected += one.suspected;
  sum->set_aside += one.set_aside;
  sum->hung += one.hung;
  sum->paused += one.paused;
  sum->failed_alone += one.failed_alone;
  sum->sp_plans += one.sp_plans;
  sum->joint_steps += one.joint_steps;
  sum->tensor_steps += one.tensor_steps;
  sum->joint_steps_broken += one.joint_steps_broken;
  sum->parts_copied += one.parts_copied;
  sum->resumed += one.resumed;
  sum->granted_again += one.granted_again;
  sum->refused += one.refused;
  sum->connections_refused += one.connections_refused;
  sum->leaderships += one.leaderships;
  sum->keepalives += one.keepalives;
  sum->binds += one.binds;
  sum->releases += one.releases;
  sum->shares += one.shares;
  sum->modes_changed += one.modes_changed;
  sum->switches_failed += one.switches_failed;
  sum->group_steps += one.group_steps;
  sum->group_steps_in_sp += one.group_steps_in_sp;
  sum->group_steps_broken += one.group_steps_broken;
  sum->granted_to_groups += one.granted_to_groups;
  sum->blocks_moved += one.blocks_moved;
  sum->finished_in_groups += one.finished_in_groups;
}

// What all worlds of this process did.
struct Statistics {
  Outcome sum;
  int64_t worlds = 0;
  double seconds = 0;  // real ones
};
inline Statistics statistics;

inline Outcome RunWorld(Scenario scenario) {
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = World(std::move(scenario), seed_flags.trace).Run();
  ++statistics.worlds;
  statistics.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Add(outcome, &statistics.sum);
  return outcome;
}

// A line, if there were any.
inline std::string FormationsOf(const Outcome& sum) {
  if (sum.binds + sum.switches_failed == 0) return "";
  return absl::StrCat(
      "formations: ", sum.binds, " binds, ", sum.releases, " releases (", sum.shares,
      " of the binds share weights, ", sum.modes_changed, " modes changed), ", sum.switches_failed,
      " switches failed, ", sum.group_steps, " steps of groups, ", sum.group_steps_in_sp,
      " of them in SP, ", sum.group_steps_broken, " more broken, ", sum.granted_to_groups,
      " prompts for all ranks, ", sum.blocks_moved, " blocks moved, ", sum.finished_in_groups,
      " requests finished that fit no instance alone\n");
}

// A line, if there is anything to say.
inline std::string PacesOf(const Outcome& sum) {
  if (sum.suspected + sum.set_aside + sum.hung + sum.paused == 0) return "";
  return absl::StrCat("paces: ", sum.suspected, " times suspect, ", sum.set_aside,
                      " times set aside, ", sum.hung, " times hung; ", sum.paused,
                      " times a client did not read\n");
}

inline void PrintStatistics() {
  const Outcome& sum = statistics.sum;
  std::printf(
      "%lld worlds: %.0f virtual seconds with a request in flight, %lld requests, %lld finished, "
      "%lld of %lld faults met a running request, %llu events, %.0f a second\n%s%s%s%s",
      static_cast<long long>(statistics.worlds), static_cast<double>(sum.in_flight_us) * 1e-6,
      static_cast<long long>(sum.requests), static_cast<long long>(sum.finished),
      static_cast<long long>(sum.faults_met), static_cast<long long>(sum.faults),
      static_cast<unsigned long long>(sum.actions),
      static_cast<double>(sum.actions) / std::max(statistics.seconds, 1e-9),
      FormationsOf(sum).c_str(), PacesOf(sum).c_str(), sum.coverage.Lines().c_str(),
      sum.coverage.Report().c_str());
}

// Runs the seeds of one slice: none fails, and a third of the requests or more is served.
inline Outcome RunSlice(uint64_t slice, uint64_t seeds, MakeWorld make) {
  const uint64_t first = seed_flags.first_seed + slice * seeds;
  Outcome sum;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = RunWorld(make(seed));
    EXPECT_EQ(outcome.violation, "") << "replay with --seed=" << seed << " --trace";
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.finished * 3, sum.requests) << "too little is served for this to mean anything";
  return sum;
}

// Prints every seed that fails, and what all of them did in the end.
inline int RunPlans(int64_t plans, MakeWorld make) {
  Outcome sum;
  int failed = 0;
  uint64_t seed = seed_flags.first_seed;
  for (; sum.sp_plans < plans; ++seed) {
    const Outcome outcome = RunWorld(make(seed));
    if (!outcome.violation.empty()) {
      ++failed;
      Print(seed, outcome);
    }
    Add(outcome, &sum);
  }
  std::printf("%d of %llu seeds failed; in all:\n", failed,
              static_cast<unsigned long long>(seed - seed_flags.first_seed));
  Print(seed - 1, sum);
  PrintStatistics();
  return failed == 0 ? 0 : 1;
}

// False, told on stderr: it is no flag of a test over seeds, or its value is no number.
inline bool TakeSeedFlag(std::string_view arg) {
  bool bad = false;
  if (const auto seed = NumberOf(arg, "--seed=", &bad)) {
    seed_flags.seed = seed;
  } else if (const auto first = NumberOf(arg, "--first_seed=", &bad)) {
    seed_flags.first_seed = *first;
  } else if (const auto plans = NumberOf(arg, "--plans=", &bad)) {
    seed_flags.plans = static_cast<int64_t>(*plans);
  } else if (arg == "--trace") {
    seed_flags.trace = true;
  } else if (!bad) {
    std::fprintf(stderr, "%.*s: no such flag\n", static_cast<int>(arg.size()), arg.data());
    bad = true;
  }
  return !bad;
}

// Exits with 2 at a flag that is not right: nothing is run then.
inline int SeedMain(int argc, char** argv, MakeWorld make) {
  testing::InitGoogleTest(&argc, argv);
  bool good = true;
  for (int i = 1; i < argc; ++i) good &= TakeSeedFlag(argv[i]);
  if (!good) return 2;
  if (seed_flags.seed.has_value()) return Replay(*seed_flags.seed, make);
  if (seed_flags.plans > 0) return RunPlans(seed_flags.plans, make);
  const int failed = RUN_ALL_TESTS();
  PrintStatistics();
  return failed;
}

}  // namespace skein::sim
