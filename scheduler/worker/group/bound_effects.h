// What a decode-worker's part in the formations of its group asks of its owner (bound_group.h).
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/worker/group/step_feed.h"

namespace skein::scheduler {

// Effect: take the context of these instances (PrepareFormation) and read its feed from now on;
// answer with FeedOpened.
struct OpenFeed {
  uint64_t epoch = 0;
  uint64_t generation = 0;
  int32_t first = 0, size = 0;
};
// Effect: the feed of the epoch is over. Broken: a step may run at some rank; break its
// communicators.
struct CloseFeed {
  uint64_t epoch = 0;
  bool broken = false;
  absl::Status why;
};
// Effect: send to the rank of the open feed. With a grant: the memory of a FeedReserved is the
// config's, which the shell describes under it, after it has opened it at the transport.
struct SendOnFeed {
  uint64_t epoch = 0;
  int rank = 0;
  FeedMessage message;
  GrantId grant = {};
};
// Effect, of the lead: Reserve has another answer for the request.
struct GroupAnswered {
  RequestId id;
};
// Effect: to the orchestrator, if its stream is open.
struct TellFormation {
  FormationTold told;
};
// Effect: this rank works alone again. `left`: the sequences that were in the batch, or that this
// rank has handed to the lead; their blocks are free. Each rank's own are among them. `coming`:
// those that Reserve has given blocks and that have not joined.
struct FormationOver {
  absl::Status why;
  std::vector<std::pair<RequestId, Epoch>> left;
  std::vector<std::pair<RequestId, Epoch>> coming = {};
};
using BoundEffect =
    std::variant<OpenFeed, CloseFeed, SendOnFeed, TellFormation, GroupAnswered, FormationOver>;
using EmitBound = std::function<void(BoundEffect)>;

}  // namespace skein::scheduler
