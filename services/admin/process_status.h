// The state of a process, for GET /status; the answers to probes follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::services {

enum class ProcessState {
  kWaiting,   // for a model's folder, the orchestrator, instances
  kLoading,   // the model
  kServing,   // it takes work
  kDraining,  // it takes nothing new; something is left
  kDrained,   // nothing is left
  kStopping,  // it was told to end
  kFailed,
};

// "waiting", "loading", ...
std::string_view NameOf(ProcessState state);

struct ProcessStatus {
  std::string role;      // "router", "orchestrator", "prefill-worker", "decode-worker", "node"
  std::string endpoint;  // host:port at which others reach it; "" until it is open
  std::optional<uint64_t> instance;  // its number at the orchestrator
  std::string model;                 // "" where there is none; several: joined by ","
  bool started = false;              // the model is loaded and the ports are open
  ProcessState state = ProcessState::kWaiting;
  std::string reason;     // why it does not serve, a sentence without a full stop
  int64_t in_flight = 0;  // requests that have not ended here, those that wait included
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t handoffs = 0;  // KV on its way: from a prefill-worker, to a decode-worker
  int64_t held_blocks = 0;
  // Nothing is lost when the process ends now: it drains and is empty, or never served.
  bool safe_to_delete = false;
  std::string more;  // further members of the JSON object, as `"name":value` with commas; or ""
};

// One JSON object. `since_s`: how long it has been in this state.
std::string JsonOf(const ProcessStatus& status, double since_s, double uptime_s);

// "3 running, 1 waiting, 2 handoffs", of a process that drains.
std::string WhatIsLeft(const ProcessStatus& status);

}  // namespace skein::services
