// The orders that the console's page gives: the body of POST /console/order. Pure.
#pragma once

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"

namespace skein::services {

struct ConsoleOrder {
  size_t cell = 0;
  std::string words;  // for the log: "bind"
  std::variant<v1::DrainRequest, v1::ChangeFormationRequest> call;
};

// {"order": "drain" | "serve", "instance": "3", "force": false}, or "router": "7" in place of
// "instance"; {"order": "bind" | "share", "instances": ["1", "2"]} or "group" and "size" in place
// of "instances"; {"order": "release" | "pin" | "unpin", "instances" or "group"}. Ids of instances
// may be numbers, too. "cell": 0, if left out. INVALID_ARGUMENT names what is wrong.
absl::StatusOr<ConsoleOrder> ParseConsoleOrder(const std::string& body);

}  // namespace skein::services
