// BlockOrder: which of a decode-worker's sequences gets KV blocks first, and which gives its own up
// when none is free. Part of DecodeCore, and used only on its thread. A call costs O(log
// sequences).
//
// Seniority is one total order that never changes for a sequence: a higher priority first, then an
// earlier arrival, then the smaller id. A running sequence whose next token needs a further block
// `wants`. Those that want are served in this order. If no block is free, a running sequence behind
// the one that wants is preempted; if there is none, the one that wants keeps its blocks and waits
// outside the batch. A preempted sequence has no blocks. When there is room for all its tokens it
// resumes: its tokens are computed again as a prompt's, and the next one is sampled as it would
// have been. Preempted sequences resume in this order, behind all that want, and before any request
// is admitted.
//
// Which one is preempted: of those behind the one that wants, one of the lowest priority; of these
// one of the tenant that holds most blocks at that priority, divided by its weight; of this
// tenant's the last. So with one tenant the last of all.
//
// No sequence starves, and preemptions do not go on for ever:
//   1. The first running sequence is never preempted for another one, because a victim is behind
//      the one that wants. When it wants, it gets a block, from one behind it if need be, or none
//      of those runs. Then the other blocks belong to sequences whose KV is coming, or are in
//      quarantine. Both end within a lease and take no further block. So the first one always
//      advances, and it ends, because its tokens are limited and all of them fit the pool.
//   2. Of one priority, those that come later are behind. So finitely many sequences are in front
//      of each, and when they have ended, it is the first. If it is preempted then, nothing runs,
//      and nothing is admitted before it: all blocks become free, and it resumes.
//   3. Each preemption gives a block to a sequence in front of the victim, because every sequence
//      has a block that it shares with no other. Those in front take finitely many blocks until
//      they end, so a sequence is preempted finitely often.
// Requests of a higher priority that keep coming may hold up one of a lower priority. That is what
// the priority is for.
//
// Invariants (CheckInvariants): each sequence is either running or preempted; those that want run.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/fairness/fair_order.h"

namespace skein::scheduler {

class BlockOrder {
 public:
  // It runs from now on. REQUIRES: it is unknown.
  void Add(RequestId id, const FairOwner& owner, TimeUs arrived_us);
  void Remove(RequestId id);  // unknown ones are fine

  // REQUIRES (these four): it runs.
  void Want(RequestId id);
  void Satisfy(RequestId id);  // it has the block, if it wanted one
  void Preempt(RequestId id);
  // The sequence that gives its blocks up for this one; empty: none behind it has any. `blocks_of`
  // says how many one holds that runs. Costs a walk over those of the lowest priority, if they are
  // of several tenants.
  using BlocksOf = absl::FunctionRef<int64_t(RequestId)>;
  std::optional<RequestId> VictimFor(RequestId id, BlocksOf blocks_of) const;
  // The same where one must give its blocks up whatever the others want; the first one does only if
  // it runs alone. Empty: none runs.
  std::optional<RequestId> VictimOfAll(BlocksOf blocks_of) const;
  void Resume(RequestId id);  // REQUIRES: it is preempted
  bool Wants(RequestId id) const {
    const auto known = known_.find(id);
    return known != known_.end() && wanting_.count(known->second.rank) > 0;
  }

  std::optional<RequestId> FirstWanting() const { return First(wanting_); }
  std::optional<RequestId> FirstPreempted() const { return First(preempted_); }
  std::vector<RequestId> Preempted() const;  // all, in their order
  std::vector<RequestId> Running() const;    // likewise
  size_t running() const { return running_.size(); }
  absl::Status CheckInvariants() const;

 private:
  struct Rank {
    int64_t before = 0;  // minus the priority
    TimeUs arrived_us = 0;
    RequestId id;
    auto operator<=>(const Rank&) const = default;
  };
  struct Owner {
    std::string tenant;
    int64_t weight = 1;
  };
  struct Known {
    Rank rank;
    Owner owner;
  };
  // Of those in [from, end of running_), which is not empty.
  RequestId VictimFrom(std::set<Rank>::const_iterator from, BlocksOf blocks_of) const;
  static std::vector<RequestId> All(const std::set<Rank>& ranks);
  static std::optional<RequestId> First(const std::set<Rank>& ranks) {
    if (ranks.empty()) return std::nullopt;
    return ranks.begin()->id;
  }

  std::map<RequestId, Known> known_;
  std::map<std::string, int64_t> tenants_;  // how many sequences each has, running or preempted
  std::set<Rank> running_;
  std::set<Rank> wanting_;  // some of those running
  std::set<Rank> preempted_;
};

}  // namespace skein::scheduler
