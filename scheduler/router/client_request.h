// A request as the router sees it. Plain data: ClientRequests owns it, and the parts of RouterCore
// read and change it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/router/attempt_losses.h"
#include "scheduler/router/router_events.h"

namespace skein::scheduler {

struct ClientRequest {
  enum class State {
    kQueued,
    kSubmitted,
    kAhead,       // submitted; a token stream was asked for where its plan was announced
    kStreaming,   // placed; its token stream is open
    kStreamOver,  // placed; its token stream has ended by itself
    kResuming,    // this attempt was lost, and the next one has not begun; it has no cell
  };
  // What the orchestrator of its cell knows of a request.
  enum class Known {
    kUnsent,   // nothing: it has no cell
    kSent,     // it was submitted, and may be refused
    kTaken,    // the orchestrator has taken it, or did not name it as unknown after a hello
    kUnknown,  // it was placed by another orchestrator than the present one
    kOver,     // it knows that the request has ended at its decode instance
  };
  // How far it has come, in any cell.
  enum class Progress {
    kNone,
    kAccepted,  // an orchestrator has said so, or planned it; its client knows
    kBegun,     // it has been placed
  };

  HeadPtr spec;   // of the present attempt
  HeadPtr asked;  // of the first one, whose id its client knows
  State state = State::kQueued;
  uint64_t number = 0;  // by arrival; given by ClientRequests
  PrefillShape shape;
  uint64_t affinity = 0;
  std::optional<size_t> cell;  // to which it was submitted; none: it waits for one
  std::set<size_t> left;       // cells in which it has been before
  Known known = Known::kUnsent;
  Progress progress = Progress::kNone;
  int refusals = 0;  // cells that refused it
  // Engines that failed in a step with it, in any cell: the next orchestrator has to know.
  FailedEngines failed_engines;
  absl::Status refusal;  // what it ends with if no cell takes it
  Epoch epoch;
  InstanceId decode;            // where its token stream is, or was last
  Incarnation decode_process;   // likewise
  std::string decode_endpoint;  // of the stream that was attached ahead
  int64_t delivered = 0;
  int64_t delivered_before = 0;  // of these, by attempts before this one
  std::vector<int32_t> sent;     // the tokens delivered, by all attempts
  AttemptLosses losses;
  bool paid = false;  // this attempt, or the next one, takes from the RetryBudget, and has no token
  TimeUs arrived_us = 0;
  TimeUs submitted_us = 0;
  TimeUs first_token_us = -1;  // of this attempt; -1: none came
  TimeUs first_us = kNever;    // its first token, of any attempt; kNever: none came
  TimeUs last_us = 0;          // its last token so far
  TimeUs placed_us = kNever;   // this attempt, for the first time
  RequestTimes times;
  TimeUs deadline_us = kNever;
  // kStreamOver: what the request ends with if it is not planned anew in time. kResuming: if it is
  // not resumed.
  FinishReason lost_reason = FinishReason::kError;
  absl::Status lost;

  bool IsSubmitted() const { return state == State::kSubmitted || state == State::kAhead; }
  bool HasStream() const { return state == State::kAhead || state == State::kStreaming; }
  bool IsPlaced() const { return state == State::kStreaming || state == State::kStreamOver; }
  bool IsLost() const { return state == State::kStreamOver; }
  int64_t DeliveredNow() const { return delivered - delivered_before; }  // by this attempt
  // Its cell's orchestrator plans it, as far as is known.
  bool IsKnown() const { return known == Known::kSent || known == Known::kTaken; }
};

}  // namespace skein::scheduler
