// BlockQuarantine: blocks that were released while somebody may still write to them, and the grants
// of blocks that are being closed. Part of KvIn, whose header says why such blocks wait.
//
// One quarantine belongs to one attempt of a request; an attempt may have several, each of another
// grant. It ends when the grant that it waits for was closed and its last copy has ended; its
// blocks go back to the pool then.
//
// Invariant: each quarantine waits for a grant that is being closed, or for a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/kv/block_pool.h"

namespace skein::scheduler {

class BlockQuarantine {
 public:
  // One attempt of a request.
  using Attempt = std::pair<RequestId, Epoch>;

  // `close` asks the transport to close a grant; Closed tells that it has.
  BlockQuarantine(BlockPool* pool, std::function<void(GrantId)> close)
      : pool_(pool), close_(std::move(close)) {}

  // Asks once for the end of the grant under which the attempt's blocks are written. 0: there is
  // none.
  void Close(const Attempt& attempt, GrantId grant);
  // The blocks stay taken until `grant` was closed (0: no grant) and so many copies have ended.
  // REQUIRES: Close(attempt, grant) was called, or copies > 0.
  void Add(const Attempt& attempt, BlockTable blocks, GrantId grant, int64_t copies);

  // The transport has closed the grant. Returns the attempt that it was of; nullopt: it is unknown.
  std::optional<Attempt> Closed(GrantId grant);
  // A copy into the attempt's blocks has ended. False: they are not in quarantine.
  bool CopyEnded(const Attempt& attempt);

  bool Has(const Attempt& attempt) const { return quarantines_.contains(attempt); }
  size_t size() const { return quarantines_.size(); }
  // Blocks became free since the last call.
  bool TakeFreed() { return std::exchange(freed_, false); }

  std::set<BlockId> Blocks() const;
  absl::Status CheckInvariants() const;

 private:
  struct Quarantine {
    BlockTable blocks;
    GrantId grant;  // that is being closed; 0: closed, or none
    int64_t copies = 0;
  };

  using Quarantines = std::multimap<Attempt, Quarantine>;
  // The one of the attempt of which this is true; end(): none.
  template <class Condition>
  Quarantines::iterator Find(const Attempt& attempt, const Condition& condition) {
    const auto [first, last] = quarantines_.equal_range(attempt);
    const auto found =
        std::find_if(first, last, [&](const auto& o) { return condition(o.second); });
    return found == last ? quarantines_.end() : found;
  }
  void FreeIfSafe(Quarantines::iterator it);

  BlockPool* const pool_;
  const std::function<void(GrantId)> close_;
  Quarantines quarantines_;
  std::map<GrantId, Attempt> closing_;
  bool freed_ = false;
};

}  // namespace skein::scheduler
