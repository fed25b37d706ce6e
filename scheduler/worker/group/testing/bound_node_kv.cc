// BoundNode: KV that comes.
#include "scheduler/worker/group/testing/bound_node.h"

#include <gtest/gtest.h>

namespace skein::scheduler::testing {

void BoundNode::MoveKv() {
  for (Rank& rank : ranks_) {
    if (rank.closing.empty() || Between(0, 5) != 0) continue;
    rank.closed.insert(rank.closing.front());
    EXPECT_TRUE(rank.quarantine.Closed(rank.closing.front()).has_value());
    rank.closing.pop_front();
  }
  if (!late_.empty() && Between(0, 2) == 0) {
    const auto& [serial, targets] = late_[static_cast<size_t>(Between(0, Late() - 1))];
    Put(serial, targets);
  }
  for (auto& [serial, request] : requests_) {
    if (!request.kv_comes || !request.Waits() || Between(0, 3) != 0) continue;
    request.targets.empty() ? Ask(&request) : Write(&request);
  }
}

void BoundNode::Ask(NodeRequest* request) {
  if (Frozen(0)) return;
  const auto key = KeyOf(*request);
  const auto targets = At(0).group->Reserve(epoch_, request->spec, kEpochOfAll, now_);
  if (!targets.ok()) {
    counts_.refusals += absl::IsResourceExhausted(targets.status());
    if (absl::IsResourceExhausted(targets.status()) && Between(0, 3) == 0) {
      request->kv_comes = false;
    }
    return;
  }
  const ComingBlocks::Kept kept = At(0).coming.Take(key);
  request->blocks = kept.blocks;
  request->targets.push_back({*kept.blocks, kept.grant});
  for (const TransferTarget& other : targets->others) {
    request->targets.push_back({other.blocks, {std::stoull(other.memory)}});
  }
  EXPECT_EQ(targets->layout, KvLayout{Size()});
  EXPECT_EQ(request->targets.size(), ranks_.size());
}

void BoundNode::Write(NodeRequest* request) {
  if (Frozen(0) || Between(0, 4) != 0) return;
  if (Between(0, 3) == 0) {
    GiveUp(request);
    return Act(0, [&](BoundGroup& group) { group.Dismiss(request->spec->id, now_); });
  }
  EXPECT_TRUE(At(0).group->Reserved(request->spec->id, kEpochOfAll));
  Put(request->spec->id.serial, request->targets);
  At(0).quarantine.Close(KeyOf(*request), request->targets[0].grant);
  request->targets.clear();
  request->kv_comes = false;
  request->Take(TokenAfter(request->spec->id.serial, request->spec->prompt, {},
                           PromptTokens(*request->spec)));
  BlockTable blocks = std::exchange(request->blocks, nullptr);
  if (request->done) {
    At(0).pool.Free(*blocks);
    return Act(0, [&](BoundGroup& group) { group.Dismiss(request->spec->id, now_); });
  }
  request->joined = true;
  ++counts_.came;
  Act(0, [&](BoundGroup& group) {
    group.JoinWithKv(request->spec, kEpochOfAll, 0, request->output, std::move(blocks), now_);
  });
}

void BoundNode::GiveUp(NodeRequest* request) {
  At(0).quarantine.Close(KeyOf(*request), request->targets[0].grant);
  At(0).quarantine.Add(KeyOf(*request), request->blocks, request->targets[0].grant, 0);
  late_.emplace_back(request->spec->id.serial, std::exchange(request->targets, {}));
  request->blocks = nullptr;
  request->kv_comes = false;
  ++counts_.given_up;
}

void BoundNode::Put(uint64_t serial, const std::vector<Target>& targets) {
  for (size_t rank = 0; rank < targets.size(); ++rank) {
    if (ranks_[rank].closed.contains(targets[rank].grant)) continue;
    for (size_t i = 0; i < targets[rank].blocks.size(); ++i) {
      ranks_[rank].contents[targets[rank].blocks[i]] = Content(serial, static_cast<int64_t>(i));
    }
  }
}

std::pair<RequestId, Epoch> BoundNode::KeyOf(const NodeRequest& request) {
  return {request.spec->id, kEpochOfAll};
}

void BoundNode::Touch(int rank, const GroupStep& step) {
  const int64_t tokens = int64_t{kNodeBlockTokens} * Size();
  for (const StepSequence& one : step.sequences) {
    const auto known = (one.position + tokens - 1) / tokens;
    for (size_t i = 0; i < one.blocks->size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      Content& content = At(rank).contents[(*one.blocks)[i]];
      if (at < known) {
        EXPECT_EQ(content, Content(one.id.serial, at)) << "at rank " << rank;
      }
      content = Content(one.id.serial, at);
    }
  }
}

}  // namespace skein::scheduler::testing
