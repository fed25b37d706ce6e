// GroupReservations: blocks that all ranks of a bound group keep for KV that comes from prefill
// instances, as the lead knows them. One is asked of every rank (FeedReserve), answered by each
// (FeedReserved), given to who asked once all have, and gone when the sequence joins with its KV or
// is dismissed. A refusal of any rank gives it up at all. Part of BoundLead, of one epoch, and used
// only on its thread. A call costs O(ranks).
//
// Bounds. Each wait ends after `answer_us`: for a rank's answer, by the end of the epoch; for Ask
// to be called again, by giving the reservation up.
//
// Invariant: this rank's blocks are in ComingBlocks until the reservation is given or refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/handoff_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/step_feed.h"
#include "scheduler/worker/kv_in/coming_blocks.h"

namespace skein::scheduler {

class GroupReservations {
 public:
  using Key = std::pair<RequestId, Epoch>;
  struct Config {
    uint64_t epoch = 0;  // of the formation
    int ranks = 2;
    TimeUs answer_us = 0;
  };

  // `coming` outlives this. `answered`: Ask has another answer for the request.
  GroupReservations(const Config& config, ComingBlocks* coming,
                    std::function<void(RequestId)> answered);

  // Keeps `blocks` here and has every other rank keep as many, for the KV of `tokens`.
  // RESOURCE_EXHAUSTED: too few are free here; nothing was asked. REQUIRES: !Has(key).
  absl::Status Start(const Key& key, int64_t tokens, int64_t blocks, TimeUs now,
                     FeedEffects* effects);
  // OK: the targets of ranks 1, 2, …; all ranks keep the blocks, and this one's are the caller's to
  // take. UNAVAILABLE: not all have answered; `answered` follows. RESOURCE_EXHAUSTED: a rank has
  // refused; it is gone. REQUIRES: Has(key), !Given(key).
  absl::StatusOr<std::vector<TransferTarget>> Ask(const Key& key);
  bool Has(const Key& key) const { return reservations_.contains(key); }
  bool Given(const Key& key) const;  // Ask was OK
  bool empty() const { return reservations_.empty(); }

  // A rank's answer; one to what was dismissed since is ignored. Not OK: the epoch has to end.
  absl::Status Take(int rank, const FeedReserved& reserved, TimeUs now, FeedEffects* effects);
  // Its sequence has joined. REQUIRES: Given(key).
  void Joined(const Key& key) { reservations_.erase(key); }
  // The KV of the request will not come. False: nothing is reserved for it.
  bool Dismiss(RequestId id, FeedEffects* effects);
  // Not OK: a rank did not answer in time, and the epoch has to end.
  absl::Status Tick(TimeUs now, FeedEffects* effects);
  TimeUs NextTick() const { return ends_.Next(); }
  // The epoch is over. Returns what was given.
  std::vector<Key> End();

 private:
  struct Reservation {
    uint64_t number = 0;
    int64_t blocks = 0;
    std::vector<std::optional<TransferTarget>> others;  // by rank, from 1; empty: not answered
    absl::Status refused;                               // by a member; then none keeps blocks
    bool given = false;
  };

  static std::optional<int> RankToAnswer(const Reservation& reservation);

  const Config config_;
  ComingBlocks* const coming_;
  const std::function<void(RequestId)> answered_;
  std::map<Key, Reservation> reservations_;
  TimerQueue<Key> ends_;  // of those that were not given
  uint64_t last_number_ = 0;
};

}  // namespace skein::scheduler
