// The state of a process for GET /status; also decides the answers to probes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::services {

enum class ProcessState {
  kWaiting,   // for the model folder, the orchestrator or instances
  kLoading,   // the model
  kServing,   // it takes work
  kStandby,   // an orchestrator that takes over when the one that leads is lost
  kDraining,  // it takes nothing new; work is left
  kDrained,   // no work is left
  kStopping,  // it was told to stop
  kFailed,
};

// "waiting", "loading", ...
std::string_view NameOf(ProcessState state);

struct ProcessStatus {
  std::string role;      // "router", "orchestrator", "prefill-worker", "decode-worker", "node"
  std::string endpoint;  // host:port for other processes; "" until it is open
  std::optional<uint64_t> instance;  // its id at the orchestrator
  std::string model;                 // "": none; several: joined by ","
  bool started = false;              // the model is loaded and the ports are open
  ProcessState state = ProcessState::kWaiting;
  std::string reason;     // why it does not serve; a sentence without a full stop
  int64_t in_flight = 0;  // requests that have not ended here, waiting ones included
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t handoffs = 0;  // KV transfers in progress, from a prefill-worker or to a decode-worker
  int64_t held_blocks = 0;
  // Nothing is lost if the process ends now: it has drained, or never served.
  bool safe_to_delete = false;
  std::string more;  // further members of the JSON object, as `"name":value` with commas; or ""
};

// One JSON object. `since_s`: time in this state.
std::string JsonOf(const ProcessStatus& status, double since_s, double uptime_s);

// What a draining process still has: "3 running, 1 waiting, 2 handoffs".
std::string WhatIsLeft(const ProcessStatus& status);

}  // namespace skein::services
