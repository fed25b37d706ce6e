#include "scheduler/worker/decode/stream_gaps.h"

#include <utility>

namespace skein::scheduler {

std::optional<StreamGap> StreamGaps::Sent(CallId call, TimeUs now) {
  Stream& stream = streams_[call];
  const TimeUs last_us = std::exchange(stream.last_us, now);
  std::optional<StreamGap> gap = std::exchange(stream.open, std::nullopt);
  if (gap.has_value()) gap->gap_us = now - last_us;
  return gap;
}

void StreamGaps::Bound(OwnSequences own) {
  bound_ = own;
  Open(/*bind=*/true, own);
}

void StreamGaps::Released() {
  const std::optional<OwnSequences> own = std::exchange(bound_, std::nullopt);
  if (own.has_value()) Open(/*bind=*/false, *own);
}

void StreamGaps::Open(bool bind, OwnSequences own) {
  for (auto& [call, stream] : streams_) {
    if (!stream.open.has_value()) stream.open = StreamGap{.bind = bind, .own = own};
  }
}

}  // namespace skein::scheduler
