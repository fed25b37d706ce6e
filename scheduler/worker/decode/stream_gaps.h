// StreamGaps: the pause that a stream sees when its instance is bound or released: from the last
// token before the switch to the first one after it, as they leave this core. Part of DecodeCore,
// and used only on its thread. A token costs O(log streams), a switch O(streams); a switch
// allocates nothing.
//
// Only a stream that has had a token before the switch has a gap, and it has one when its next
// token comes: a stream that ends before has none. Where a gap lasts over several switches, as that
// of a paused sequence may, it is one gap, of the first of them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// Effect: a stream has got its first token since a switch.
struct StreamGap {
  bool bind = false;                        // else a release, whatever ended the formation
  OwnSequences own = OwnSequences::kShare;  // as the formation was ordered
  TimeUs gap_us = 0;
  bool operator==(const StreamGap&) const = default;
};

class StreamGaps {
 public:
  // A token leaves on the stream. Its gap, if this is its first one since a switch.
  std::optional<StreamGap> Sent(CallId call, TimeUs now);
  // No token follows on the stream. Unknown ones are fine.
  void Ended(CallId call) { streams_.erase(call); }

  // The first step of a formation begins here.
  void Bound(OwnSequences own);
  // This instance works alone again. Does nothing if the formation had no step here.
  void Released();

  size_t streams() const { return streams_.size(); }  // that have had a token

 private:
  struct Stream {
    TimeUs last_us = 0;             // its latest token
    std::optional<StreamGap> open;  // since then; without gap_us
  };
  void Open(bool bind, OwnSequences own);

  std::map<CallId, Stream> streams_;
  std::optional<OwnSequences> bound_;
};

}  // namespace skein::scheduler
