// Decode-workers in processes of their own, bound, released, shifted and pinned at random while
// requests run in them, alone and together, with handoffs on their way: 4 with a model on CPUs, 8
// emulated ones. What they run alone shares the steps, ends first, joins the group, or pauses.
// Every token and log-probability is the one of an instance alone, every request ends, and at the
// end no instance holds a block. No order makes a link or a communicator. One seed is one sequence.
//
// SKEIN_FORMATION_SEEDS: how many (the number is 10000); SKEIN_FORMATION_FIRST_SEED: from
// which on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "services/worker/group/testing/group_processes.h"

namespace skein::services {
namespace {

using scheduler::Switch;
using testing::GroupProcesses;
using Own = scheduler::OwnSequences;
using Phase = GroupProcesses::Phase;

constexpr int kBlocks = 16;  // of 4 tokens alone; a request may need 14
constexpr Own kOwn[] = {Own::kShare, Own::kSequential, Own::kSoftPreempt, Own::kHardPreempt};
constexpr int64_t kLimitUs = int64_t{60} * 1'000'000;

uint32_t FromEnvironment(const char* name, uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

struct Totals {
  int binds = 0, given_up = 0, releases = 0, alone = 0, in_group = 0;
  int pins = 0, kept_by_pins = 0;  // orders about formations that a pin kept from being carried out
  int64_t tokens = 0;
};

// One seed's orders.
class Sequence {
 public:
  Sequence(GroupProcesses* node, uint32_t seed, Totals* totals)
      : node_(node), totals_(totals), random_(seed) {
    // The blocks of one member alone are short.
    if (Chance(2)) crowded_ = Between(0, node_->size() - 1);
  }

  void Run() {
    for (int orders = Between(8, 16); orders > 0; --orders) Order();
    while (!standing_.empty()) Release(0, HowToRelease(), /*wait=*/true);
    const GroupProcesses::Ends ends = node_->SettleRequests();
    EXPECT_EQ(ends.failed + ends.lost, 0) << ends.why;
    totals_->tokens += ends.tokens;
    node_->ExpectAtRest();
  }

 private:
  // A formation that is bound.
  struct Standing {
    int first = 0, count = 0;
    uint64_t epoch = 0;
    bool pinned = false, releasing = false;
  };

  int Between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int of) { return Between(1, of) == 1; }
  Switch HowToRelease() { return Chance(2) ? Switch::kHard : Switch::kSequential; }
  size_t AnyStanding() {
    return static_cast<size_t>(Between(0, static_cast<int>(standing_.size()) - 1));
  }
  Standing* StandingOf(int slot) {
    for (Standing& one : standing_) {
      if (slot >= one.first && slot < one.first + one.count) return &one;
    }
    return nullptr;
  }

  void Order() {
    switch (Between(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Start();
      case 4:
      case 5:
        return Bind();
      case 6:
        if (!standing_.empty()) ReleaseUnlessPinned(AnyStanding());
        return;
      case 7:
        return PinOrUnpin();
      default:
        return Go();
    }
  }

  void Start() {
    const bool crowds = crowded_ >= 0 && Chance(2);
    const int slot = crowds ? crowded_ : Between(0, node_->size() - 1);
    const Standing* group = StandingOf(slot);
    if (crowds || group == nullptr || Chance(3)) {
      ++totals_->alone;
      node_->Start(slot, crowds ? Between(8, 16) : Between(1, 16),
                   crowds ? Between(16, 40) : Between(1, 32), /*formation=*/0, /*handoff=*/true);
      return;
    }
    StartInGroup(*group);
  }
  void StartInGroup(const Standing& group) {
    ++totals_->in_group;
    node_->Start(group.first, Between(1, 16), Between(1, 32), group.epoch, Chance(2));
  }

  void PinOrUnpin() {
    if (standing_.empty()) return;
    Standing& one = standing_[AnyStanding()];
    one.pinned = Chance(2);
    totals_->pins += one.pinned ? 1 : 0;
  }

  // As by load: what is pinned stays as it is.
  void Bind() {
    int count = 2;
    while (2 * count <= node_->size() && Chance(2)) count *= 2;
    const int first = Between(0, node_->size() / count - 1) * count;
    const auto overlaps = [&](const Standing& one) {
      return one.first < first + count && first < one.first + one.count;
    };
    const bool pinned = std::any_of(standing_.begin(), standing_.end(), [&](const Standing& one) {
      return overlaps(one) && one.pinned;
    });
    if (pinned) {
      ++totals_->kept_by_pins;
      return;
    }
    for (size_t i = standing_.size(); i-- > 0;) {
      if (overlaps(standing_[i])) Release(i, HowToRelease(), /*wait=*/true);
    }
    // The bases of that many instances in turn, of four SP 2 x TP 2 most often.
    const int32_t tp = std::min(1 << (totals_->binds % 3), count / 2);
    const auto above = [&](int64_t tokens) {
      return std::optional(scheduler::ShiftRule{.tokens = tokens, .tp = tp});
    };
    const std::optional<scheduler::ShiftRule> shifts[] = {std::nullopt, above(0), above(1),
                                                          above(4)};
    // Where own sequences end first, what comes meanwhile is refused, and placed anew later.
    const Own own = kOwn[Between(0, 3)];
    const uint64_t epoch = node_->Prepare(first, count, shifts[Between(0, 3)], own);
    node_->AwaitPhase(first, count, epoch, Phase::kPrepared);
    for (int rank = first; rank < first + count; ++rank) {
      EXPECT_FALSE(node_->HasEnded(rank, epoch)) << node_->WhyEnded(rank);
    }
    if (Chance(6)) {
      ++totals_->given_up;
      for (int rank = first; rank < first + count; ++rank) {
        node_->End(rank, epoch, Switch::kSequential);
      }
      return node_->AwaitEnds(first, count, epoch);
    }
    ++totals_->binds;
    node_->Commit(first, epoch);
    standing_.push_back({first, count, epoch});
    for (int requests = Between(0, 3); requests > 0; --requests) StartInGroup(standing_.back());
    if (Chance(2)) node_->AwaitPhase(first, count, epoch, Phase::kBound);
  }

  void ReleaseUnlessPinned(size_t at) {
    if (standing_[at].pinned) {
      ++totals_->kept_by_pins;
      return;
    }
    Release(at, HowToRelease(), Chance(2));
  }
  // Without waiting it is still being released when the next orders come.
  void Release(size_t at, Switch how, bool wait) {
    Standing& one = standing_[at];
    node_->End(one.first, one.epoch, how);
    one.releasing = true;
    if (!wait) return;
    ++totals_->releases;
    node_->AwaitEnds(one.first, one.count, one.epoch);
    standing_.erase(standing_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void Go() {
    const int64_t until = node_->TokensSoFar() + Between(1, 24);
    node_->Await([&] { return node_->TokensSoFar() >= until || !node_->AnyLive(); },
                 "requests go on");
  }

  GroupProcesses* const node_;
  Totals* const totals_;
  std::mt19937 random_;
  int crowded_ = -1;
  std::vector<Standing> standing_;
};

// Of each worker: the links and communicators that it has made.
std::vector<std::string> MadeBy(GroupProcesses* node) {
  std::vector<std::string> made;
  made.reserve(static_cast<size_t>(node->size()));
  for (int slot = 0; slot < node->size(); ++slot) made.push_back(node->process(slot).Ask("made"));
  return made;
}

void RunSequences(const std::string& device, int size, uint32_t seeds) {
  const uint32_t first = FromEnvironment("SKEIN_FORMATION_FIRST_SEED", 1);
  seeds = FromEnvironment("SKEIN_FORMATION_SEEDS", seeds);
  GroupProcesses node({.worker = {.device = device,
                                  .model_dir = testing::WriteTinyModel("group_processes"),
                                  .blocks = kBlocks,
                                  .limit_us = kLimitUs},
                       .size = size});
  std::vector<int> slots(static_cast<size_t>(size));
  std::iota(slots.begin(), slots.end(), 0);
  node.MakeGroups(slots);
  const std::vector<std::string> made = MadeBy(&node);
  for (const std::string& one : made) EXPECT_NE(one, "0 links, 0 communicators");
  Totals totals;
  for (uint32_t seed = first; seed < first + seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Sequence(&node, seed, &totals).Run();
    EXPECT_EQ(MadeBy(&node), made);
  }
  std::printf(
      "%u sequences on %d %s workers: %d binds, %d given up, %d releases, %d pins, which kept %d "
      "others, %d requests for one, %d for groups, %ld tokens; steps in TP + SP:",
      seeds, size, device.c_str(), totals.binds, totals.given_up, totals.releases, totals.pins,
      totals.kept_by_pins, totals.alone, totals.in_group, static_cast<long>(totals.tokens));
  int in_both = 0;  // workers that ran steps in SP x TP
  for (int slot = 0; slot < size; ++slot) {
    const std::string tp = node.process(slot).Ask("steps tp");
    const std::string sp = node.process(slot).Ask("steps sp");
    std::printf(" %s + %s", tp.c_str(), sp.c_str());
    EXPECT_NE(tp, "0") << "worker " << slot << " was never bound";
    EXPECT_NE(sp, "0") << "worker " << slot << " never shifted";
    in_both += node.process(slot).Ask("steps sp_tp") == "0" ? 0 : 1;
  }
  std::printf("\n");
  if (seeds >= 16) {
    EXPECT_GE(in_both, 4);
    EXPECT_GT(totals.pins, 0);
    EXPECT_GT(totals.kept_by_pins, 0);
  }
}

TEST(GroupProcessesTest, FourWithAModelAnswerAsOneAlone) { RunSequences("cpu", 4, 24); }

TEST(GroupProcessesTest, EightEmulatedOnesAnswerAsOneAlone) { RunSequences("emulated", 8, 16); }

}  // namespace
}  // namespace skein::services
