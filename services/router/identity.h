// Names of requests and traces, and random bits for them.
#pragma once

#include <cstdint>
#include <string>

#include "services/http/message.h"

namespace skein::services {

uint64_t RandomBits();
std::string RandomHex();  // 32 hexadecimal digits

// The client's X-Request-Id when it is 1 to 128 printable ASCII characters, else one made up.
std::string RequestIdOf(const http::Request& request);

// The client's traceparent when it is well-formed (W3C Trace Context, version 00), else "".
std::string TraceparentOf(const http::Request& request);

}  // namespace skein::services
