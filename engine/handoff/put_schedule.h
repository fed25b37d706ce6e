// PutSchedule: which blocks of which handoffs are put when (HandoffSender's decisions, without its
// transport). No I/O, no clock, no thread: times come with the calls, and what is to be done comes
// out of Take. HandoffSender runs it on a Transport, tests/sim in virtual time.
//
// Life of a handoff: Open -> Written (each layer of each chunk) and Grant (in any order) -> one
// End. A block is put whole and once, when its last token of the prompt is written.
//
// One-sided: puts go straight into the granted blocks, at each rank of the receiver. Staged: they
// go into the slots of one buffer. Each part that arrived is told; its slots are used again after
// Taken. Without a buffer the handoff says once that it waits for one; with one that it has not
// used for a while it says that it is idle, and uses it no more.
//
// A call costs what its own handoff has layers and ranks, however many others there are.
//
// Invariants (CheckInvariants): what a handoff has under way is what its flights are; a slot is
// free, under way, or not yet taken; nothing is put twice.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/vocabulary/epoch.h"
#include "scheduler/vocabulary/handoff_block.h"
#include "scheduler/vocabulary/request_id.h"
#include "scheduler/vocabulary/staged_block.h"

namespace skein::engine {

// Names one handoff.
struct HandoffKey {
  RequestId id;
  Epoch epoch;
  auto operator<=>(const HandoffKey&) const = default;
};

class PutSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Terms {
    int ranks = 1;  // of the receiver; staged: 1
    Time post_until;
    int32_t staging_slots = 0;  // > 0: staged
    bool has_buffer = false;    // staged: it came with the grant, else with UseBuffer
    // Staged: unused for so long, the buffer is given back. max: never.
    std::chrono::nanoseconds idle_after = std::chrono::nanoseconds::max();
  };

  // A block on its way: to the receiver's block of the same global index, or into a slot.
  struct PutBlock {
    int layer = 0;
    HandoffBlock block;
    int32_t slot = -1;  // staged
  };
  struct Put {
    uint64_t number = 0;
    HandoffKey key;
    int rank = 0;
    std::vector<PutBlock> blocks;  // one-sided: of one layer, ascending
  };
  struct Part {
    HandoffKey key;
    std::vector<StagedBlock> blocks;
  };
  enum class Verdict { kDone, kFailed, kStopped };
  struct End {
    HandoffKey key;
    Verdict verdict = Verdict::kDone;
    absl::Status failure;         // of kFailed
    std::vector<int64_t> blocks;  // by layer, that arrived (at every rank)
  };
  // In this order.
  struct Work {
    std::vector<uint64_t> cancels;  // puts whose end is not awaited any more, but still comes
    std::vector<Put> puts;          // each is answered with PutEnded, or at once with PutRefused
    std::vector<HandoffKey> waits;  // something is to be put: once until UseBuffer
    std::vector<Part> parts;        // answered with Taken
    std::vector<HandoffKey> idle;   // the buffer is not used any more
    std::vector<End> ends;          // exactly one for each Grant; the handoff is forgotten

    // Nothing of it is to be told.
    bool Silent() const { return waits.empty() && parts.empty() && idle.empty() && ends.empty(); }
  };

  PutSchedule(int num_layers, int64_t block_tokens)
      : num_layers_(num_layers), block_tokens_(block_tokens) {}

  // `blocks` of the prompt are about to be computed. `more`: Add will bring further ones; until the
  // last of them the handoff is not done. Opening a key again replaces it. REQUIRES: the old one
  // has ended, and blocks ascending.
  void Open(HandoffKey key, std::vector<HandoffBlock> blocks, int64_t prompt_tokens, bool more);
  bool IsOpen(HandoffKey key) const { return handoffs_.count(key) > 0; }
  int64_t PromptTokens(HandoffKey key) const { return handoffs_.at(key).prompt_tokens; }
  bool HasBuffer(HandoffKey key) const;
  // REQUIRES: IsOpen(key).
  void Grant(HandoffKey key, const Terms& terms, Time now);

  // The calls below change nothing if the key is unknown.
  void Add(HandoffKey key, std::span<const HandoffBlock> blocks, bool more);
  // This instance has no tokens before `token_end` left to compute. False: no block can be put yet
  // because of it.
  bool Written(HandoffKey key, int layer, int64_t token_end);
  void Extend(HandoffKey key, Time post_until);
  void UseBuffer(HandoffKey key, Time now);
  // The receiver has copied the blocks out of these slots; or, if `status` is an error, never will.
  void Taken(HandoffKey key, std::span<const int32_t> slots, const absl::Status& status, Time now);
  void Stop(HandoffKey key);
  void Fail(HandoffKey key, absl::Status status);
  void Discard(HandoffKey key);  // one that was not granted

  void PutEnded(uint64_t number, const absl::Status& status, Time now);
  // The transport was full and nothing of this was put. To be called before the next Take, which
  // tries it again.
  void PutRefused(uint64_t number);

  Work Take(Time now);
  // The time at which Take may next report an idle handoff if nothing else happens; max for never.
  Time NextIdle() const;

  absl::Status CheckInvariants() const;

 private:
  struct Layer {
    int64_t written_tokens = 0;
    std::vector<int64_t> posted_blocks;  // by rank
    int64_t done_blocks = 0;             // summed over the ranks
  };
  // kOpen: not granted. The last two: an End follows when nothing is under way.
  enum class Phase { kOpen, kGranted, kFailed, kStopped };
  struct Handoff {
    std::vector<HandoffBlock> blocks;
    bool more = false;
    int64_t prompt_tokens = 0;
    std::vector<Layer> layers;
    Phase phase = Phase::kOpen;
    absl::Status failure;
    Terms terms;
    std::set<uint64_t> flights;
    // Staged:
    enum class Buffer { kNone, kAwaited, kHeld };
    Buffer buffer = Buffer::kNone;
    Time used;  // last
    std::vector<int32_t> free_slots;
    std::vector<StagedBlock> untaken;  // arrived, not copied out

    bool granted() const { return phase != Phase::kOpen; }
  };

  Handoff* Find(HandoffKey key);
  void Hold(Handoff* handoff, Time now);
  int64_t WrittenBlocks(const Handoff& handoff, int layer) const;
  bool HasUnposted(const Handoff& handoff) const;
  void FailIfLive(Handoff* handoff, absl::Status status);
  void CancelFlights(const Handoff& handoff);
  void PostReady(HandoffKey key, Handoff* handoff, Time now);
  void PostLayer(HandoffKey key, Handoff* handoff, int layer, int rank);
  void PostStaged(HandoffKey key, Handoff* handoff, Time now);
  void Post(Handoff* handoff, Put put);
  bool IsOver(const Handoff& handoff) const;
  Time IdleAt(const Handoff& handoff) const;
  void ArmIdle(HandoffKey key, const Handoff* handoff);
  void GiveBackIdle(Time now);
  void EndIfOver(HandoffKey key);

  const int num_layers_;
  const int64_t block_tokens_;
  std::map<HandoffKey, Handoff> handoffs_;
  std::map<uint64_t, Put> flights_;
  uint64_t next_put_ = 1;
  std::set<HandoffKey> touched_;  // since the last Take, or with a put that was refused
  std::map<HandoffKey, Time> idle_at_;
  std::set<std::pair<Time, HandoffKey>> idle_order_;
  Work work_;
};

}  // namespace skein::engine
