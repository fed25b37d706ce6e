// DecodePlaceCalls: the calls by which a prefill-worker asks the orchestrator for the decode
// instances of its requests (PlaceDecode). Part of PrefillCore, which says which requests ask.
//
// A request that asks is in one of these states:
//   called      its call is on the stream, unanswered
//   suspended   likewise, but the request does not want the answer now (it gave its blocks back)
//   retrying    there was no room; it calls again at its time
//   parked      there is no stream; it calls when there is one, and gives up at its time
// A broken stream takes the calls on it: those of suspended requests are forgotten, the others are
// parked.
//
// Invariants (CheckInvariants): calls are on a stream only while there is one, and requests are
// parked only while there is none; exactly the retrying and the parked requests have a timer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"

namespace skein::scheduler {

struct DecodePlaceConfig {
  TimeUs retry_us = 0;    // between calls while there is no room
  TimeUs give_up_us = 0;  // a request waits so long for a stream
};

class DecodePlaceCalls {
 public:
  // `call` sends a PlaceDecode to the orchestrator; it runs before the method that causes it
  // returns, and fills in the sender (instance, incarnation).
  DecodePlaceCalls(const DecodePlaceConfig& config, std::function<void(PlaceDecodeRequest)> call)
      : config_(config), call_(std::move(call)) {}

  // Whether the stream to the orchestrator stands. Changes nothing if it is as before.
  void SetConnected(bool connected, TimeUs now);

  // The request asks. If its call is on the stream already, suspended, there is no second one.
  void Ask(const PlaceDecodeRequest& request, TimeUs now);
  void Suspend(RequestId id);  // it does not ask for now
  void Forget(RequestId id);   // it asks no more, and an answer on its way is ignored

  // The call was answered. False: the request has none on the stream, ignore the answer. With
  // RESOURCE_EXHAUSTED a request that still asks calls again later; else it asks no more.
  bool Answered(RequestId id, Epoch epoch, const absl::Status& status, TimeUs now);

  // Repeats the calls that are due. Returns the requests that waited for a stream for give_up_us;
  // they ask no more.
  std::vector<RequestId> RunTimers(TimeUs now);
  TimeUs NextDeadline() const { return timers_.Next(); }

  absl::Status CheckInvariants() const;

 private:
  enum class State { kCalled, kSuspended, kRetrying, kParked };
  struct Entry {
    PlaceDecodeRequest request;
    State state = State::kCalled;
  };

  void Call(Entry& entry, TimeUs now);  // or parks it

  const DecodePlaceConfig config_;
  const std::function<void(PlaceDecodeRequest)> call_;
  bool connected_ = false;
  std::map<RequestId, Entry> entries_;
  TimerQueue<RequestId> timers_;
};

}  // namespace skein::scheduler
