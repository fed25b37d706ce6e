// ExtraBlocks: the KV blocks that an instance has in addition while it shares its weights, in the
// memory that this frees. They come with the engine's answer that it has entered, and go before it
// leaves. Part of DecodeCore, and used only on its thread.
//
// When they are to go, no request gets one any more, and steps go on while KV comes into some of
// them. A sequence whose KV is still coming after `wait_us` ends, to be tried again as after the
// loss of an instance. A writer that stands still keeps its grant, and so its blocks: these are
// waited for at most as long again, and stay in quarantine then; what it still writes reaches
// memory that nobody uses. At the next pause the KV of the sequences that run is moved into own
// blocks; sequences for which these are too few are preempted.
#pragma once

#include <vector>

#include "scheduler/base/time.h"
#include "scheduler/vocabulary/block_range.h"
#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_ends.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/running_batch.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

class ExtraBlocks {
 public:
  // Not owned; they outlive it.
  struct Parts {
    const DecodeClock* clock = nullptr;
    KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    RunningBatch* running = nullptr;
    DecodeEnds* ends = nullptr;
  };
  ExtraBlocks(TimeUs wait_us, const Parts& parts) : wait_us_(wait_us), parts_(parts) {}

  // The engine has them. REQUIRES: there are none, or they were given back.
  void Come(BlockRange extra);
  // The engine wants them back. True: it may have them at the next pause. While there are some, a
  // call costs O(blocks of all tables), as Go does.
  bool MayGo();
  // The copies to be made before they are given back. REQUIRES: MayGo(), no step is in flight.
  std::vector<BlockMove> Go();

  void RunTimers();  // ends sequences whose KV does not come in time
  TimeUs NextDeadline() const;

 private:
  const TimeUs wait_us_;
  const Parts parts_;
  bool here_ = false;
  TimeUs asked_us_ = kNever;  // for them, by the engine
};

}  // namespace skein::scheduler
