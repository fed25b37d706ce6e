// KeptPrompts: KV of prompts whose requests have left a prefill instance. When the decode instance
// of a request is lost, its next attempt (RequestId::First is the same) comes to the prefill
// instance that computed the one before, and computes only what is new: the tokens of the answer
// that the client has by now, and the last token of the prompt, whose step samples. Part of
// PrefillRequests, which owns the pool.
//
// Kept blocks cost nobody anything: they are reported as cached, and the oldest are given up as
// soon as a request needs blocks, or when their time has passed. So nobody has to tell this
// instance that an answer has begun.
//
// A call costs O(log kept prompts), and those that compare or give blocks what the prompt has of
// tokens or blocks. Bounded by the blocks: each entry has one at least.
//
// Invariant (CheckInvariants): blocks() counts the blocks of the entries, and each entry is once in
// the order in which they are given up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/block_pool.h"

namespace skein::scheduler {

class KeptPrompts {
 public:
  // The prompt's KV is in `blocks`, which this owns from now on. `until_us` does not fall from call
  // to call. Returns the blocks of an earlier attempt that this one replaces; null: there were
  // none.
  [[nodiscard]] BlockTable Keep(const SpecPtr& spec, BlockTable blocks, TimeUs until_us);

  // The blocks of an attempt before this one, whose prompt this one's begins with; null: there are
  // none. They stay here until Take.
  BlockTable Find(const RequestSpec& spec) const;
  // Tokens whose KV is in them. REQUIRES: Find(spec) found some.
  int64_t TokensFor(const RequestSpec& spec) const;
  // They are the caller's now. REQUIRES: Find(spec) found some.
  void Take(const RequestSpec& spec);

  // Gives up what is kept of this request's attempts; null: nothing.
  BlockTable Forget(RequestId attempt) { return Remove(attempt.First()); }
  // Gives up the oldest prompt, but none of this request's attempts; null: there is no other.
  BlockTable GiveUpOldest(RequestId but);
  // One whose time has passed; null: none.
  BlockTable TakeOverdue(TimeUs now);
  TimeUs NextDeadline() const;

  int64_t blocks() const { return blocks_; }
  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    uint64_t number = 0;
    SpecPtr spec;
    BlockTable blocks;
    TimeUs until_us = kNever;
  };
  BlockTable Remove(RequestId first);

  std::map<RequestId, Entry> entries_;  // by RequestId::First
  std::map<uint64_t, RequestId> order_;
  uint64_t last_number_ = 0;
  int64_t blocks_ = 0;
};

}  // namespace skein::scheduler
