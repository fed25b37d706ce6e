// BoundNode: what must be true.
#include "scheduler/worker/group/testing/bound_node.h"

#include <gtest/gtest.h>

namespace skein::scheduler::testing {

bool BoundNode::AllAreAlone() const {
  for (const Rank& rank : ranks_) {
    if (!rank.dead && !rank.stopped && rank.group->bound()) return false;
  }
  return true;
}

bool BoundNode::AllAreAnswered() const {
  for (const auto& [serial, request] : requests_) {
    if (!request.done) return false;
  }
  return true;
}

void BoundNode::ExpectNothingIsKept() {
  for (Rank& rank : ranks_) {
    if (rank.dead || rank.stopped) continue;
    for (; !rank.closing.empty(); rank.closing.pop_front()) {
      EXPECT_TRUE(rank.quarantine.Closed(rank.closing.front()).has_value());
    }
    int64_t held = 0;
    for (const OwnSequence& own : rank.own) held += static_cast<int64_t>(own.blocks->size());
    EXPECT_EQ(rank.pool.Counts().held, held);
  }
}

void BoundNode::Check() const {
  for (const Rank& rank : ranks_) {
    EXPECT_TRUE(rank.group->CheckInvariants().ok()) << rank.group->CheckInvariants();
    EXPECT_TRUE(rank.pool.CheckInvariants().ok());
    int64_t held = rank.group->batch_blocks();
    for (const OwnSequence& own : rank.own) held += static_cast<int64_t>(own.blocks->size());
    for (const auto& [key, kept] : rank.coming.all()) {
      held += static_cast<int64_t>(kept.blocks->size());
    }
    for (const auto& [serial, request] : requests_) {
      if (&rank != &ranks_[0] || request.blocks == nullptr) continue;
      held += static_cast<int64_t>(request.blocks->size());
    }
    EXPECT_EQ(rank.pool.Counts().held, held + rank.pool.Counts().quarantined);
    EXPECT_TRUE(rank.quarantine.CheckInvariants().ok());
  }
}

void BoundNode::ExpectRightAnswers() const {
  for (const auto& [serial, request] : requests_) {
    NodeRequest alone{.spec = request.spec};
    while (!alone.done) {
      alone.Take(TokenAfter(serial, alone.spec->prompt, alone.output,
                            PromptTokens(*alone.spec) + static_cast<int64_t>(alone.output.size())));
    }
    EXPECT_EQ(request.output, alone.output) << "request " << serial;
  }
}

std::string BoundNode::Describe() const {
  std::string text;
  for (const Rank& rank : ranks_) {
    text += "bound " + std::to_string(rank.group->bound()) + " busy " + std::to_string(rank.busy) +
            " step " + std::to_string(rank.step.has_value()) + " own " +
            std::to_string(rank.own.size()) + " inbox " + std::to_string(rank.inbox.size()) +
            " ran " +
            (rank.ran.empty() ? "-"
                              : std::to_string(rank.ran.back().first) + "/" +
                                    std::to_string(rank.ran.back().second)) +
            " free " + std::to_string(rank.pool.Counts().free) + "\n";
  }
  for (const auto& [rank, told] : told_) {
    text += "told " + std::to_string(rank) + ": " + std::to_string(told.epoch) + " phase " +
            std::to_string(static_cast<int>(told.phase)) + " " + std::string(told.why.message()) +
            "\n";
  }
  return text + "epoch " + std::to_string(epoch_) + ", own " + std::string(ToString(own_)) +
         ", overs " + std::to_string(counts_.overs);
}

}  // namespace skein::scheduler::testing
