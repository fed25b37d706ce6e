// What the instances of a pool are foreseen to do: every chunk that is assigned and has not ended,
// with equation 1's time. From it come the queue times that the planner plans with.
//
// Chunks run in the order of their keys. One begins when the one before it of its plan has ended
// and each of its instances has ended all that comes before; one that runs and is late ends at any
// moment. So each end is the later of two times: a moment, of what runs already, and a span from
// now, of what has not begun. Neither changes while nothing begins or ends, and a chunk that comes
// last changes its own instances only.
//
// After something began or ended, all chunks are estimated anew in a pass in their order; the queue
// times of before are in force until it is complete. The first look at a queue time after a change
// takes the pass on by `looks_max` instances of chunks, so that no event costs more however many
// chunks there are: with fewer than that the queue times are exact, with more they are behind by
// the plans that are made during a pass. An instance without chunks is always known to be free.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/base/ids.h"
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
  void Begin(ChunkKey key, TimeUs since_us);  // a chunk that is unknown: nothing
  void Remove(ChunkKey key);                  // it has ended; unknown: nothing
  void Drop(Epoch plan);                      // all its chunks

  // From `now` until all of the slot's chunks have ended.
  double QueueSeconds(size_t slot, TimeUs now) const;

  // The requests whose first chunk has not begun though nothing is in front of it: those that came
  // there, or that Recheck named, since the last call.
  std::vector<RequestId> TakeReady();
  void Recheck(ChunkKey key);  // a chunk that is unknown: nothing

  std::vector<TimelineChunk> Chunks() const;  // in order

  bool exact() const { return exact_; }

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
  std::map<Epoch, Entry*> first_;           // of each plan
  std::vector<std::set<ChunkKey>> queues_;  // by slot
  std::set<ChunkKey> fronts_;               // all that may be ready and were not taken
  mutable std::vector<End> free_;           // by slot, when all its chunks have ended
  mutable bool exact_ = true;               // free_ is what a pass from now on would make of it
  mutable bool looked_ = true;              // the pass was taken on since the last change
  // Of a pass under way:
  mutable bool passing_ = false;
  mutable ChunkKey next_;               // all before it were estimated
  mutable bool behind_ = false;         // something before next_ has changed since
  mutable std::vector<End> next_free_;  // of those before next_
};

}  // namespace skein::scheduler
