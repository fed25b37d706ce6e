// A group of 4 that is pinned is never a formation in name only: 4 decode-workers with a model on
// CPUs, each in a process of its own, run the same steps, move the collectives' bytes, hold about a
// quarter of the blocks that one instance holds for the same prompts, and spend the same CPU time.
// The checks are those of `skeinctl formation --verify`.
//
// CPU time is compared twice, each on the CPU's clock: that of the thread that runs steps, in the
// steps of the group alone; and that of the whole process, which `--verify` reads. A rank that
// waits in a collective spins for some 10 us a call, then it sleeps (engine/comm/ucx). That counts,
// too, and so does what only the lead does: it plans, and streams tokens. So a step here computes
// for much longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/skeinctl/cluster/formation_verify.h"
#include "services/worker/group/testing/group_processes.h"

namespace skein::services {
namespace {

using scheduler::Switch;
using testing::GroupProcesses;
using Phase = GroupProcesses::Phase;

constexpr int kRanks = 4;
constexpr int kBlocks = 400;  // of 4 tokens alone: enough for all requests at one instance
constexpr int64_t kLimitUs = int64_t{60} * 1'000'000;
constexpr int64_t kSequences = 4;
constexpr int64_t kPrompt = 60, kOutput = 180;
constexpr int64_t kOutputAlone = 12;  // of what runs at one instance, until its blocks are counted
constexpr int64_t kShiftTokens = 32;  // prompts are computed in SP, and output in TP
constexpr testing::TinyDense kDense = {.hidden = 1024, .intermediate = 12288};

class PinnedGroup : public ::testing::Test {
 protected:
  PinnedGroup() {
    std::vector<int> slots(kRanks);
    std::iota(slots.begin(), slots.end(), 0);
    node_.MakeGroups(slots);
  }

  std::string Ask(int slot, const std::string& command) { return node_.process(slot).Ask(command); }
  // What the worker counts: as skeinctl reads it, or, if `of_steps`, with the CPU time of the
  // group's steps alone.
  MemberNumbers NumbersOf(int slot, bool of_steps = false) {
    std::string text = Ask(slot, "numbers");
    std::replace(text.begin(), text.end(), ';', '\n');
    absl::StatusOr<MemberNumbers> numbers = MemberNumbersFrom(text);
    EXPECT_TRUE(numbers.ok()) << numbers.status();
    if (!numbers.ok()) return {};
    // It is on the last line.
    if (of_steps) numbers->cpu_seconds = std::stod(text.substr(text.rfind(' ') + 1));
    return *numbers;
  }
  // At worker 0: all sequences are there when its engine goes on, up to a step in which each
  // decodes. Returns the blocks of that step's tables.
  double HoldAllDecoding(uint64_t formation) {
    const bool alone = formation == 0;
    EXPECT_EQ(Ask(0, "hold"), "held");
    for (int64_t i = 0; i < kSequences; ++i) {
      node_.Start(0, kPrompt, alone ? kOutputAlone : kOutput, formation, /*handoff=*/alone);
    }
    EXPECT_EQ(Ask(0, absl::StrCat("await-sequences ", kSequences)), absl::StrCat(kSequences));
    const std::string held =
        Ask(0, absl::StrCat("await-held ", alone ? "own " : "group ", kSequences));
    int blocks = 0, blocks_alone = 0;
    EXPECT_EQ(std::sscanf(held.c_str(), "%d of %d", &blocks, &blocks_alone), 2) << held;
    const int ranks = alone ? 1 : kRanks;
    EXPECT_GE(blocks * ranks, blocks_alone);
    EXPECT_LE(blocks, blocks_alone / ranks + kSequences);
    return blocks;
  }
  void LetEnd() {
    EXPECT_EQ(Ask(0, "go"), "gone");
    const GroupProcesses::Ends ends = node_.SettleRequests();
    EXPECT_EQ(ends.whole, kSequences) << ends.why;
  }

  GroupProcesses node_{{.worker = {.device = "cpu",
                                   .model_dir = testing::WriteTinyModel("pinned_group", kDense),
                                   .blocks = kBlocks,
                                   .limit_us = kLimitUs},
                        .size = kRanks}};
};

// One reading of all members at rest, and one while the lead holds a step.
struct Readings {
  std::vector<MemberNumbers> first, held, last;  // by rank
};

void ExpectAllPass(const Readings& readings, const char* whose_cpu) {
  WatchedGroup watched;
  for (size_t rank = 0; rank < readings.first.size(); ++rank) {
    WatchedMember& member = watched.members.emplace_back();
    member.instance = rank;
    member.name = absl::StrCat(rank);
    member.first = readings.first[rank];
    member.last = readings.last[rank];
    member.last.held_blocks = readings.held[rank].held_blocks;
    member.last.bound = readings.held[rank].bound;
  }
  watched.lead_first = watched.members[0].first;
  watched.lead_last = watched.members[0].last;
  watched.kv_heads = testing::kTinyKvHeads;
  const std::vector<FormationCheck> checks = CheckGroup(watched);
  EXPECT_EQ(checks.size(), 5u);
  for (const FormationCheck& check : checks) {
    std::printf("%s, CPU time of %s: %s, %s\n", check.name.c_str(), whose_cpu,
                NameOf(check.verdict), check.detail.c_str());
    EXPECT_EQ(check.verdict, Verdict::kPassed) << check.name << ": " << check.detail;
  }
}

TEST_F(PinnedGroup, EachMemberDoesAQuarterOfTheWork) {
  const double blocks_alone = HoldAllDecoding(/*formation=*/0);
  EXPECT_GE(NumbersOf(0).held_blocks, blocks_alone);
  LetEnd();

  Readings processes, steps;
  for (int slot = 0; slot < kRanks; ++slot) {
    processes.first.push_back(NumbersOf(slot));
    steps.first.push_back(NumbersOf(slot, /*of_steps=*/true));
  }
  const uint64_t epoch = node_.Prepare(0, kRanks, scheduler::ShiftRule{.tokens = kShiftTokens});
  node_.AwaitPhase(0, kRanks, epoch, Phase::kPrepared);
  node_.Commit(0, epoch);
  node_.AwaitPhase(0, kRanks, epoch, Phase::kBound);

  // Every member waits for the lead in the step that its engine holds.
  const double blocks = HoldAllDecoding(epoch);
  EXPECT_LE(blocks, blocks_alone / kRanks + kSequences);
  EXPECT_GE(blocks, blocks_alone / kRanks - kSequences);
  for (int slot = 0; slot < kRanks; ++slot) {
    processes.held.push_back(NumbersOf(slot));
    // It may have taken those of the next step already.
    EXPECT_GE(processes.held.back().held_blocks, blocks);
    EXPECT_LE(processes.held.back().held_blocks, blocks + kSequences);
    // What the member says that one instance alone would hold is what one did hold, but for the
    // tokens that each sequence may be ahead of those by.
    ASSERT_TRUE(processes.held.back().bound.has_value());
    const BoundKv& kv = *processes.held.back().bound;
    EXPECT_EQ(kv.sequences, kSequences);
    EXPECT_GE(kv.blocks, blocks);
    EXPECT_LE(kv.blocks, blocks + kSequences);
    EXPECT_NEAR(kv.blocks_alone, blocks_alone, kRanks * kSequences);
  }
  steps.held = processes.held;
  LetEnd();
  node_.End(0, epoch, Switch::kSequential);
  node_.AwaitEnds(0, kRanks, epoch);

  for (int slot = 0; slot < kRanks; ++slot) {
    processes.last.push_back(NumbersOf(slot));
    steps.last.push_back(NumbersOf(slot, /*of_steps=*/true));
    // Nothing runs any more: each has counted the very same steps.
    for (const char* mode : {"tp", "sp"}) {
      const double ran = steps.last.back().Steps(mode, kRanks);
      EXPECT_GT(ran, 0) << mode;
      EXPECT_EQ(ran, steps.last[0].Steps(mode, kRanks)) << mode << " at worker " << slot;
    }
  }
  ExpectAllPass(steps, "the group's steps");
  ExpectAllPass(processes, "whole processes");
  node_.ExpectAtRest();
}

}  // namespace
}  // namespace skein::services
