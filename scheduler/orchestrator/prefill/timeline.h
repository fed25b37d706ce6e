// Predicts what a pool's instances will do: every assigned chunk that has not ended, with equation
// 1's time. The planner's queue times come from it.
//
// Chunks run in key order. A chunk begins when its plan's previous chunk has ended and each of its
// instances has ended all earlier ones; a running chunk that is late may end at any moment. So each
// end is the later of two times: a fixed moment, from running chunks, and a span from now, from
// chunks that have not begun. Neither changes while nothing begins or ends, and a chunk added last
// changes only its own instances.
//
// After a chunk began or ended, all chunks are estimated again in one pass in key order; until it
// is complete, the previous queue times are used. The first query after a change advances the pass
// by at most `looks_max` instances of chunks, so no event's cost grows with the number of chunks.
// With fewer chunks than that, queue times are exact; with more, they lag by the plans made during
// a pass. An instance without chunks is always known to be free.
//
// Invariants (CheckInvariants): each slot's queue has exactly the chunks on it, each plan's chain
// exactly its chunks, in order; no chunk may be ready that is not there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/looks.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// The order of chunks: by their Assign's sequence, those of one Assign by their place in the plan.
struct ChunkKey {
  PlanSequence sequence;
  size_t index = 0;
  auto operator<=>(const ChunkKey&) const = default;
};

struct TimelineChunk {
  ChunkKey key;
  RequestId request;
  Epoch plan;
  std::vector<int> slots;            // of its instances
  double seconds = 0;                // the latency model's
  TimeUs running_since_us = kNever;  // kNever: it has not begun
  bool operator==(const TimelineChunk&) const = default;
};

class Timeline {
 public:
  static constexpr size_t kLooksMax = 512;

  explicit Timeline(size_t slots, size_t looks_max = kLooksMax)
      : looks_max_(looks_max), queues_(slots), free_(slots) {}

  // REQUIRES: behind all others, slots that exist.
  void Add(TimelineChunk chunk);
  void Begin(ChunkKey key, TimeUs since_us);  // ignored if unknown
  void Remove(ChunkKey key);                  // it has ended; ignored if unknown
  void Drop(Epoch plan);                      // all its chunks

  // From `now` until all of the slot's chunks have ended.
  double QueueSeconds(size_t slot, TimeUs now) const;
  // visit(slot, seconds) for each slot.
  template <class Visit>
  void ForEachQueue(TimeUs now, Visit visit) const {
    if (!looked_) TakeOn();
    SKEIN_LOOKED(free_.size());
    const double now_s = static_cast<double>(now) * 1e-6;
    for (size_t slot = 0; slot < free_.size(); ++slot) {
      visit(slot, std::max(free_[slot].after_s, free_[slot].at_s - now_s));
    }
  }

  // Requests whose first chunk has not begun although nothing precedes it: those that became ready,
  // or were named by Recheck, since the last call.
  std::vector<RequestId> TakeReady();
  void Recheck(ChunkKey key);  // ignored if unknown

  std::vector<TimelineChunk> Chunks() const;  // in order

  bool exact() const { return exact_; }
  absl::Status CheckInvariants() const;

 private:
  // max(at_s, now + after_s).
  struct End {
    double at_s = -std::numeric_limits<double>::infinity();
    double after_s = 0;
  };
  struct Entry {
    TimelineChunk chunk;
    Entry* before = nullptr;  // in its plan
    Entry* next = nullptr;
    mutable End end;
  };
  static End Later(const End& a, const End& b);
  static void Estimate(const Entry& entry, std::vector<End>* free);
  void TakeOn() const;            // the pass
  void NoteChange(ChunkKey key);  // something began or ended there
  bool InFront(const Entry& entry) const;
  void Erase(Entry* entry);

  size_t looks_max_;
  std::map<ChunkKey, Entry> entries_;
  absl::btree_map<Epoch, Entry*> first_;           // of each plan
  std::vector<absl::btree_set<ChunkKey>> queues_;  // by slot
  absl::btree_set<ChunkKey> fronts_;               // all that may be ready and were not taken
  mutable std::vector<End> free_;                  // by slot, when all its chunks have ended
  mutable bool exact_ = true;   // free_ is what a pass from now on would make of it
  mutable bool looked_ = true;  // the pass was taken on since the last change
  // Of a pass under way:
  mutable bool passing_ = false;
  mutable ChunkKey next_;               // all before it were estimated
  mutable bool behind_ = false;         // something before next_ has changed since
  mutable std::vector<End> next_free_;  // of those before next_
};

}  // namespace skein::scheduler
