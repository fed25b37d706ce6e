// What a lead offers to its members for plans to add (FeedOffer), and what a member does with it:
// it puts the parts together, and keeps blocks for KV that comes from prefill instances (in
// ComingBlocks, under a grant of its own) until the offer says that they hold it. Part of
// BoundGroup, of one epoch, and used only on its thread. A call costs O(tokens or blocks of its
// message).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/step_feed.h"
#include "scheduler/worker/kv_in/coming_blocks.h"

namespace skein::scheduler {

// OK if the own sequences of this rank may spare so many blocks, else RESOURCE_EXHAUSTED.
using RoomFor = std::function<absl::Status(int64_t blocks)>;

// OK: the group may compute it. RESOURCE_EXHAUSTED: its tokens can never fit `total_blocks`, which
// each rank has. INVALID_ARGUMENT: it cannot be told to other ranks.
absl::Status CheckOffer(const RequestSpec& spec, int64_t total_blocks, int64_t tokens_per_block);

// The lead: to all other ranks, in parts.
void SendOffer(uint64_t epoch, int ranks, const OfferedSequence& sequence, FeedEffects* effects);
// A member: to the lead, likewise. `age_us`: since the request arrived. REQUIRES: no KV.
void SendHandedOver(uint64_t epoch, const OfferedSequence& sequence, TimeUs age_us,
                    FeedEffects* effects);

// A member: the lead's offers, and reservations. The lead: what members hand over.
class GroupOffers {
 public:
  using Key = std::pair<RequestId, Epoch>;
  struct Config {
    uint64_t epoch = 0;  // of the formation
    int64_t tokens_per_block = 1;
    std::string memory;  // the transport's description of this rank's KV regions
  };

  // `coming` outlives this.
  GroupOffers(Config config, ComingBlocks* coming, RoomFor room);

  // The sequence, if this part completes its offer. INTERNAL: the part does not follow the one
  // before it, or the sequence comes with KV that is not here.
  absl::StatusOr<std::optional<OfferedSequence>> Take(const FeedOffer& part);

  // With the grant under which the blocks may be written; none are kept if `why` is not OK.
  struct Answer {
    FeedReserved reserved;
    GrantId grant;
  };
  Answer Reserve(const FeedReserve& reserve);
  // The lead takes it back: its blocks are free once their grant is closed.
  void Withdraw(const Key& key) { coming_->Drop(key); }

 private:
  absl::Status Keep(const Key& key, int64_t tokens);
  absl::StatusOr<BlockTable> TakeBlocks(const FeedOffer& offer);
  int64_t BlocksOf(int64_t tokens) const;

  const Config config_;
  ComingBlocks* const coming_;
  const RoomFor room_;
  std::map<Key, FeedOffer> parts_;  // of offers that are not complete
};

}  // namespace skein::scheduler
