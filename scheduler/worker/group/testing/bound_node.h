// Ranks that bind and release at random while sequences run in the group and at each rank alone.
// Each has a BoundGroup, a pool and an engine that computes tokens from the whole sequence; their
// feed and time are those of the node. The KV of some prompts comes from outside into all ranks'
// blocks, by writers that may be late: it checks that no step reads a block that they reached
// since. One seed is one sequence of moves.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/own_end_first.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/vocabulary/mix64.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/kv_in/block_quarantine.h"
#include "scheduler/worker/kv_in/coming_blocks.h"

namespace skein::scheduler::testing {

inline constexpr int32_t kNodeBlockTokens = 2;
inline constexpr int64_t kNodeBlocks = 24;  // of each rank
inline constexpr int32_t kNodeVocabulary = 1000;

// The next token: it depends on the whole sequence.
int32_t TokenAfter(uint64_t serial, const std::vector<int32_t>& prompt,
                   const std::vector<int32_t>& output, int64_t length);

// Which block of which request lies in a block.
using Content = std::pair<uint64_t, int64_t>;

// Where a rank keeps a prompt's KV.
struct Target {
  std::vector<BlockId> blocks;
  GrantId grant;
};

// A request of the group.
struct NodeRequest {
  SpecPtr spec;
  std::vector<int32_t> output;
  bool done = false;
  bool joined = false;
  bool kv_comes = false;        // until it has, or will not
  std::vector<Target> targets;  // by rank, while it is written
  BlockTable blocks;            // the lead's of them
  bool Waits() const { return !joined && !done; }

  void Take(int32_t token);
};

// A sequence of a rank's own: it holds a block for each two tokens until it ends.
struct OwnSequence {
  BlockTable blocks;
  int64_t tokens = 0, end = 0;
};

// One thread.
class BoundNode {
 public:
  // What has happened so far.
  struct Counts {
    std::map<OwnSequences, int64_t> commits;
    int64_t joins = 0, own_steps = 0, overs = 0;
    int64_t tp_steps = 0, sp_steps = 0, sp_tp_steps = 0;
    int64_t moved = 0, paused_steps = 0;  // own steps while own sequences pause
    int64_t came = 0, given_up = 0, refusals = 0, cut_off = 0;
  };

  BoundNode(int size, uint32_t seed);

  // ---- what happens ----

  void Move();  // something, at random
  void EndIt(Switch how);
  void NewRequest();

  // ---- faults ----

  void Kill(int rank);
  void Stop(int rank) { At(rank).stopped = true; }

  // ---- what may happen ----

  void OrderShift(const ShiftRule& shift) { ordered_shift_ = shift; }
  void StopOrders() { orders_ = arrivals_ = false; }
  void OnlyOrders() { arrivals_ = false; }

  // ---- what must be true ----

  bool AllAreAlone() const;
  bool AllAreAnswered() const;
  // Once every grant is closed.
  void ExpectNothingIsKept();
  // False: it did not come.
  template <class Condition>
  bool RunUntil(const Condition& condition) {
    for (int moves = 0; moves < 300'000; ++moves) {
      if (condition()) return true;
      Move();
    }
    return condition();
  }
  void Check() const;
  void ExpectRightAnswers() const;
  std::string Describe() const;
  bool LeadIsBound() const { return ranks_[0].group->bound(); }
  uint64_t Preemptions() const { return ranks_[0].group->preemptions(); }
  const Counts& counts() const { return counts_; }

 private:
  static constexpr Epoch kEpochOfAll = {1};
  struct Rank {
    BlockPool pool{kNodeBlocks};
    std::deque<GrantId> closing;
    std::set<GrantId> closed;
    std::map<BlockId, Content> contents;
    uint64_t grants = 0;
    BlockQuarantine quarantine{&pool, [this](GrantId grant) { closing.push_back(grant); }};
    ComingBlocks coming{&pool, &quarantine, [this] { return GrantId{++grants}; }};
    std::unique_ptr<BoundGroup> group;
    std::deque<std::pair<int, std::string>> inbox;
    std::vector<OwnSequence> own;
    bool busy = false;
    std::optional<GroupStep> step;  // that runs; none: an own one of a rank that is alone
    std::vector<std::pair<uint64_t, uint64_t>> ran;  // epoch and step
    TimeUs step_until_us = 0;
    bool dead = false, stopped = false;
  };

  // ---- what happens ----

  void Order();
  void PrepareAll();
  bool EndsOwnFirst(int rank) const { return OwnEndFirst(own_, /*leads=*/rank == 0); }
  void CommitIfAllArePrepared();
  // A request, or a sequence of the rank's own.
  void Arrive(int rank);

  // ---- KV that comes ----

  void MoveKv();
  int64_t Late() const { return static_cast<int64_t>(late_.size()); }
  void Ask(NodeRequest* request);
  // The rest of it is written; or its writer gives up.
  void Write(NodeRequest* request);
  // It is computed by the group instead. Its writer does not know yet.
  void GiveUp(NodeRequest* request);
  void Put(uint64_t serial, const std::vector<Target>& targets);
  static std::pair<RequestId, Epoch> KeyOf(const NodeRequest& request);
  // As an engine: what was before is read, the rest is written.
  void Touch(int rank, const GroupStep& step);

  // ---- the feed ----

  void Deliver(int rank);
  void DeliverOne(int rank);
  void Tick(int rank);
  void Open(int rank);

  // ---- engines: one step at a time ----

  void StartStep(int rank);
  void EndStep(int rank);
  bool AllHaveEntered(const std::pair<uint64_t, uint64_t>& step) const;
  void TakeTokens(const GroupStep& step, const std::vector<int32_t>& sampled);
  void LeaveAll();
  void JoinAll();
  // What the lead runs goes on in the group: as a request of it.
  void MoveOwn();
  // Each own sequence gets a token; one that gets no block waits.
  void RunOwn(int rank);
  void TellOwn(int rank);

  // ---- the ranks, and what their groups ask for ----

  int Size() const { return static_cast<int>(ranks_.size()); }
  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  int64_t Between(int64_t low, int64_t high) {
    const auto span = static_cast<uint64_t>(high - low + 1);
    return low + static_cast<int64_t>(Mix64(random_ += kMix64Step) % span);
  }
  bool Frozen(int rank) { return At(rank).dead || At(rank).stopped; }
  template <class Action>
  void Act(int rank, const Action& action) {
    if (!Frozen(rank)) action(*At(rank).group);
  }
  void On(int rank, const OpenFeed& effect) { opening_[rank] = effect.epoch; }
  void On(int, const CloseFeed& effect);
  void On(int rank, SendOnFeed& effect);
  void On(int, const GroupAnswered&) {}
  void On(int rank, const TellFormation& effect);
  void On(int rank, const FormationOver& effect);

  uint64_t random_;
  TimeUs now_ = 1;
  std::vector<Rank> ranks_;
  uint64_t epoch_ = 0;
  OwnSequences own_ = OwnSequences::kShare;  // of this epoch
  std::optional<ShiftRule> ordered_shift_;
  std::map<int, FormationTold> told_;  // what each rank has told last
  std::map<int, uint64_t> opening_;
  std::set<uint64_t> broken_;  // epochs whose communicators are
  uint64_t serial_ = 0;
  std::map<uint64_t, NodeRequest> requests_;
  std::vector<std::pair<uint64_t, std::vector<Target>>> late_;  // their writers put on
  bool orders_ = true, arrivals_ = true;
  Counts counts_;
};

}  // namespace skein::scheduler::testing
