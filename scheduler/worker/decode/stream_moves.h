// StreamMoves: which streams of a draining decode-worker their routers are asked to move, and when.
// A router that is asked goes on with the request at another instance, which computes prompt and
// output anew as a prompt, and then detaches here. Part of DecodeCore, and used only on its thread.
//
// Pace. Each move costs a prefill, and its stream pauses for as long as that takes. So that moved
// requests do not wait for each other there, one stream is asked for every kPaceUs, the one with
// the most tokens to come first. A drain with an end has a window, the first half of its grace. If
// n streams are left and the window ends in t, the next one is asked after t / n where that is
// sooner. So all have been asked when the window ends, whatever their number, and the other half of
// the grace is left for moves that take long.
//
// Not asked: a stream with at most kFewTokens to come before the window ends, since it ends by
// itself in about the time that a move takes; one that runs in a bound group, which is released
// first; one for which the other instances have no room (TakeRoom), since its request would have to
// wait, or could not be computed there at all. These go on here. A stream that is still here
// kAgainUs after it was asked is asked again: its router may not have been able to move it.
//
// A look costs O(streams), and there is one in kPaceUs while none is asked more often.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/token_events.h"

namespace skein::scheduler {

class StreamMoves {
 public:
  static constexpr TimeUs kPaceUs = 100 * kMillisecondUs;
  static constexpr TimeUs kAgainUs = 2 * kSecondUs;
  static constexpr int64_t kFewTokens = 8;

  // `block_tokens`: tokens of a KV block.
  explicit StreamMoves(int64_t block_tokens) : block_tokens_(block_tokens) {}

  // The instance drains from now on, until `end_us`; kNever: without an end. Again: nothing, if the
  // end is the same.
  void Start(TimeUs now, TimeUs end_us);
  void Stop() { draining_ = false; }
  // What the orchestrator last told of the other instances. Asks are counted off from it: those
  // made since, and those made before whose streams are still here, since their requests are not
  // elsewhere yet.
  void TakeRoom(const PoolRoom& room) {
    room_ = room;
    room_is_new_ = true;
    if (lacks_room_) next_us_ = 0;
  }

  // The streams whose routers are asked now. Notes it in `sequences`.
  std::vector<AskToMove> Take(DecodeSequences* sequences, TimeUs now);
  // Of the next look.
  TimeUs NextDeadline() const { return draining_ ? next_us_ : kNever; }
  uint64_t asked() const { return asked_; }  // since the start, repetitions included

 private:
  bool MayAsk(const DecodeSequence& sequence, TimeUs now) const;
  void TakeRoomOfAsked(const DecodeSequences& sequences, TimeUs now);
  bool TakeRoomFor(const DecodeSequence& sequence);

  const int64_t block_tokens_;
  bool draining_ = false;
  TimeUs end_us_ = kNever;
  TimeUs window_end_us_ = kNever;
  TimeUs next_us_ = 0;
  PoolRoom room_;
  bool room_is_new_ = false;
  bool lacks_room_ = false;  // for each stream of the last look: the next one is when there is news
  uint64_t asked_ = 0;
};

}  // namespace skein::scheduler
