// ComingBlocks: blocks that this rank of a bound group keeps for the KV of prompts on its way from
// prefill instances (AnnounceOf::formation). Every rank of the group has such blocks, each under a
// grant of its own; the lead's OpenTransfer answers with all of them. Part of KvIn, which has the
// pool, the quarantine and the grants; BoundGroup says what is kept and for how long.
//
// What is kept ends in one of three ways: the lead's go into its KvIn entry (Take), a member's into
// its batch when all of the KV is there (TakeWhole), or they are given up (Drop): then a writer may
// still put into them, so they are free when their grant is closed.
//
// Used on the core's thread. A call costs O(log of what is kept), plus the blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/kv_in/block_quarantine.h"

namespace skein::scheduler {

class ComingBlocks {
 public:
  using Attempt = BlockQuarantine::Attempt;
  struct Kept {
    BlockTable blocks;
    GrantId grant;  // under which they may be written
  };

  // Both outlive this. `new_grant` numbers a grant that was never used.
  ComingBlocks(BlockPool* pool, BlockQuarantine* quarantine, std::function<GrantId()> new_grant)
      : pool_(pool), quarantine_(quarantine), new_grant_(std::move(new_grant)) {}

  // RESOURCE_EXHAUSTED: too few are free. REQUIRES: `blocks` >= 1, !Has(attempt).
  absl::StatusOr<Kept> Keep(const Attempt& attempt, int64_t blocks);
  bool Has(const Attempt& attempt) const { return kept_.contains(attempt); }
  // REQUIRES: Has(attempt).
  const Kept& at(const Attempt& attempt) const { return kept_.at(attempt); }

  // The caller has them from here on, with their grant. REQUIRES: Has(attempt).
  Kept Take(const Attempt& attempt);
  // All of their KV is written, and nobody writes any more: the grant is closed. REQUIRES:
  // Has(attempt).
  BlockTable TakeWhole(const Attempt& attempt);
  void Drop(const Attempt& attempt);  // unknown ones are fine
  void DropAll();

  const std::map<Attempt, Kept>& all() const { return kept_; }

 private:
  BlockPool* const pool_;
  BlockQuarantine* const quarantine_;
  const std::function<GrantId()> new_grant_;
  std::map<Attempt, Kept> kept_;
};

}  // namespace skein::scheduler
