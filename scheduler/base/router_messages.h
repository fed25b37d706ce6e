// Messages about a router itself (messages.h): its state and the ends of its requests, and the
// operator's orders to drain a router or an instance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/cell_load.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/peer_build.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// ---- router -> orchestrator ----

// How a request ended for its client.
struct RouterEnd {
  enum class How { kStopToken, kStopString, kMaxTokens, kClientGone, kFailed, kResumed };
  RequestId id;
  How how = How::kFailed;
  std::string why;  // for kFailed; kResumed: what was lost, and the id under which it goes on
  int64_t output_tokens = 0;
  TimeUs first_token_us = -1;  // from submission; -1: no token was sent
};

struct RouterIdentity {
  uint64_t router = 0;   // its incarnation, the first half of its requests' ids; not 0
  std::string endpoint;  // host:port of its API
  std::string host;      // where it runs
  std::string details;   // fields for status (serialised); opaque to the cores
  PeerBuild build = {};  // of the router
};

struct RouterLoad {
  int64_t queued = 0;   // waiting for admission
  int64_t running = 0;  // admitted and not ended
  bool draining = false;
  TimeUs uptime_us = 0;
  // Decode instances with requests of this router, by whether it hears them: something came on
  // their token streams of late (scheduler/router/heard_instances.h). Named by their processes,
  // because another orchestrator gives them other ids. In a hello, all; in a report, those that
  // changed since the message before.
  std::vector<Incarnation> heard = {};
  std::vector<Incarnation> not_heard = {};
};

// A submitted request that has not ended for its client.
struct RouterRequest {
  RequestId id;
  Epoch epoch;           // the highest epoch received; 0: none
  bool placed = false;   // the router has attached, or is attaching, to the request's tokens
  InstanceId decode;     // the instance it attaches to, if `placed`
  bool streams = false;  // its token stream is open
};

// The first message of a stream: the router's identity and full state. A request of this router
// that the orchestrator knows and that is not listed has ended for its client.
struct RouterHello {
  RouterIdentity identity;
  Generation seen;  // the highest generation seen
  RouterLoad load;
  std::vector<RouterRequest> requests;
  std::vector<RouterEnd> ended;  // those not yet acknowledged
  uint64_t stream = 0;           // 1, 2, ...: which stream of this process it begins
};
// Not OK: the stream ends.
struct RouterWelcome {
  absl::Status status;
  Generation generation;
  TimeUs lease_us = 0;             // report at least every third of this
  std::vector<RequestId> unknown;  // listed requests that the orchestrator does not know: submit
                                   // them again, unless they stream
  CellReport cell;
  PeerBuild build = {};  // of the orchestrator
};

// ---- operator -> orchestrator ----

// NOT_FOUND: unknown. FAILED_PRECONDITION: it is the last one that serves, and `force` is not set.
struct DrainRequest {
  InstanceId instance;  // 0: `router`
  uint64_t router = 0;
  bool undo = false;
  bool force = false;
};
struct DrainReply {
  absl::Status status;
};

}  // namespace skein::scheduler
