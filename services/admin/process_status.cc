#include "services/admin/process_status.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/version.h"

namespace skein::services {
namespace {

// In a pod, the pod's name.
std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

}  // namespace

std::string_view NameOf(ProcessState state) {
  switch (state) {
    case ProcessState::kWaiting:
      return "waiting";
    case ProcessState::kLoading:
      return "loading";
    case ProcessState::kServing:
      return "serving";
    case ProcessState::kStandby:
      return "standby";
    case ProcessState::kDraining:
      return "draining";
    case ProcessState::kDrained:
      return "drained";
    case ProcessState::kStopping:
      return "stopping";
    case ProcessState::kFailed:
      return "failed";
  }
  return "failed";
}

std::string JsonOf(const ProcessStatus& status, double since_s, double uptime_s) {
  const auto tenths = [](double seconds) {
    return static_cast<double>(static_cast<int64_t>(seconds * 10)) / 10;
  };
  nlohmann::ordered_json json;
  json["role"] = status.role;
  json["name"] = HostName();
  json["endpoint"] = status.endpoint;
  json["instance"] = status.instance.has_value() ? nlohmann::ordered_json(*status.instance)
                                                 : nlohmann::ordered_json();
  json["model"] = status.model;
  json["version"] = kVersion;
  json["pid"] = getpid();
  json["uptime_s"] = tenths(uptime_s);
  json["state"] = NameOf(status.state);
  json["since_s"] = tenths(since_s);
  json["reason"] = status.reason;
  json["in_flight"] = status.in_flight;
  json["running"] = status.running;
  json["waiting"] = status.waiting;
  json["handoffs"] = status.handoffs;
  json["held_blocks"] = status.held_blocks;
  json["safe_to_delete"] = status.safe_to_delete;
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  return absl::StrCat(text, status.more.empty() ? "" : ",", status.more, "}\n");
}

std::string WhatIsLeft(const ProcessStatus& status) {
  std::string text = absl::StrCat(status.running, " running, ", status.waiting, " waiting");
  const int64_t ending = status.in_flight - status.running - status.waiting;
  if (ending > 0) absl::StrAppend(&text, ", ", ending, " ending");
  if (status.handoffs > 0) absl::StrAppend(&text, ", ", status.handoffs, " handoffs");
  return text;
}

}  // namespace skein::services
