// Where spans are sent.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/http/client.h"

namespace skein::services {

struct TraceEndpoint {
  http::Address address;
  std::string target;  // "/v1/traces", behind the path that the endpoint names
};

// "http://HOST[:PORT][/PATH]"; the port is 4318 if it is not named, as OTLP/HTTP has it.
// INVALID_ARGUMENT says what is wrong with it.
absl::StatusOr<TraceEndpoint> ParseTraceEndpoint(const std::string& text);

}  // namespace skein::services
