// Asks a server which model it serves.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "services/skeinctl/bench/http_client.h"
#include "services/skeinctl/bench/target.h"

namespace skein::services::bench {

// Runs `io` until the answer has come. REQUIRES client->Resolve. UNAVAILABLE: no answer within 10
// s, or a refusal. INVALID_ARGUMENT: the server lists no model, or several. The messages say which
// flag to give.
absl::StatusOr<std::string> AskForModel(boost::asio::io_context* io, HttpClient* client,
                                        const Target& target);

}  // namespace skein::services::bench
