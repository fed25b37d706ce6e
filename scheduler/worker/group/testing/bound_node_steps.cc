// BoundNode: the engines, one step at a time.
#include "scheduler/worker/group/testing/bound_node.h"

#include <gtest/gtest.h>

namespace skein::scheduler::testing {
namespace {

bool Stops(int32_t token) { return token % 23 == 0; }

}  // namespace

int32_t TokenAfter(uint64_t serial, const std::vector<int32_t>& prompt,
                   const std::vector<int32_t>& output, int64_t length) {
  uint64_t hash = serial;
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t token = at < prompt.size() ? prompt[at] : output.at(at - prompt.size());
    hash = Mix64((hash ^ static_cast<uint32_t>(token)) + kMix64Step);
  }
  return static_cast<int32_t>(hash % kNodeVocabulary);
}

void NodeRequest::Take(int32_t token) {
  output.push_back(token);
  done = Stops(token) || static_cast<int64_t>(output.size()) >= spec->max_tokens;
}

void BoundNode::StartStep(int rank) {
  Rank& self = At(rank);
  if (Frozen(rank) || self.busy) return;
  if (rank == 0) MoveOwn();
  TellOwn(rank);
  if (!self.group->runs_steps()) {
    self.busy = !self.own.empty();
    return;
  }
  if (rank == 0) JoinAll();
  self.step = self.group->TakeStep(now_);
  if (!self.step.has_value()) return;
  EXPECT_TRUE(self.ran.empty() || self.ran.back() < std::pair(epoch_, self.step->step));
  self.ran.emplace_back(epoch_, self.step->step);
  self.step_until_us = now_ + 300'000;
  Touch(rank, *self.step);
  self.busy = true;
  if (self.step->mode.own()) {
    ++counts_.own_steps;
    counts_.paused_steps += own_ == OwnSequences::kHardPreempt && !self.own.empty();
  }
  if (!self.step->mode.own() && !self.step->sequences.empty()) {
    const StepMode mode = self.step->mode;
    EXPECT_EQ(mode.sp * mode.tp, Size());
    ++(mode.sp == 1 ? counts_.tp_steps : mode.tp == 1 ? counts_.sp_steps : counts_.sp_tp_steps);
  }
}

void BoundNode::EndStep(int rank) {
  Rank& self = At(rank);
  if (Frozen(rank) || !self.busy) return;
  if (!self.step.has_value() || self.step->mode.own()) {
    self.busy = false;
    RunOwn(rank);
    if (self.step.has_value()) {
      self.step.reset();
      Act(rank, [&](BoundGroup& group) { group.StepEnded(absl::OkStatus(), {}, now_); });
    }
    return;
  }
  // It ends when all ranks have entered it, somebody broke the group, or at its deadline.
  const bool whole = AllHaveEntered(self.ran.back());
  const bool broken = broken_.contains(self.ran.back().first) || now_ > self.step_until_us;
  if (!whole && !broken) return;
  const GroupStep step = *std::exchange(self.step, std::nullopt);
  self.busy = false;
  std::vector<int32_t> sampled;
  for (const StepSequence& one : step.sequences) {
    if (!one.sample) continue;
    sampled.push_back(
        TokenAfter(one.id.serial, one.spec->prompt, *one.output, one.position + one.count));
  }
  if (rank == 0 && whole) TakeTokens(step, sampled);
  const absl::Status status = whole ? absl::OkStatus() : absl::UnavailableError("broken");
  Act(rank, [&](BoundGroup& group) { group.StepEnded(status, sampled, now_); });
  if (rank == 0) LeaveAll();
}

bool BoundNode::AllHaveEntered(const std::pair<uint64_t, uint64_t>& step) const {
  for (const Rank& rank : ranks_) {
    if (rank.ran.empty() || rank.ran.back() < step) return false;
  }
  return true;
}

void BoundNode::TakeTokens(const GroupStep& step, const std::vector<int32_t>& sampled) {
  size_t next = 0;
  for (const StepSequence& one : step.sequences) {
    if (!one.sample) continue;
    NodeRequest& request = requests_.at(one.id.serial);
    const int32_t token = sampled[next++];
    if (request.done) continue;
    EXPECT_EQ(static_cast<size_t>(one.token_index), request.output.size());
    request.Take(token);
  }
}

void BoundNode::LeaveAll() {
  for (auto& [serial, one] : requests_) {
    NodeRequest& request = one;
    if (!request.joined || !request.done) continue;
    request.joined = false;
    Act(0, [&](BoundGroup& group) { group.Leave(request.spec->id, kEpochOfAll, now_); });
  }
}

void BoundNode::JoinAll() {
  for (auto& [serial, one] : requests_) {
    NodeRequest& request = one;
    if (!request.Waits() || request.kv_comes || !At(0).group->MayJoin()) continue;
    request.joined = true;
    ++counts_.joins;
    Act(0, [&](BoundGroup& group) {
      EXPECT_TRUE(group.Join(request.spec, kEpochOfAll, 0, request.output, now_).ok());
    });
  }
}

void BoundNode::MoveOwn() {
  Rank& lead = At(0);
  if (!lead.group->MovesOwn()) return;
  lead.group->OwnMoved();
  for (const OwnSequence& own : std::exchange(lead.own, {})) {
    lead.pool.Free(*own.blocks);
    NewRequest();
    requests_[serial_].kv_comes = false;
    ++counts_.moved;
  }
}

void BoundNode::RunOwn(int rank) {
  Rank& self = At(rank);
  for (auto own = self.own.begin(); own != self.own.end();) {
    const auto table = self.pool.Extend(own->blocks, (own->tokens + 2) / 2);
    if (table.ok()) {
      own->blocks = *table;
      ++own->tokens;
    }
    if (own->tokens < own->end) {
      ++own;
      continue;
    }
    self.pool.Free(*own->blocks);
    own = self.own.erase(own);
  }
  TellOwn(rank);
}

void BoundNode::TellOwn(int rank) {
  const bool runs = At(rank).busy && (!At(rank).step || At(rank).step->mode.own());
  Act(rank, [&](BoundGroup& group) {
    const auto tokens = static_cast<int64_t>(At(rank).own.size());
    group.SetOwn({.tokens = tokens, .waits = false, .any = tokens > 0 || runs}, now_);
  });
}

}  // namespace skein::scheduler::testing
