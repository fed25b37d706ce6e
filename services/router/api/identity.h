// What a request's headers say of it: its trace, its session, its priority, its goals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/http/message.h"
#include "services/openai/api_error.h"

namespace skein::services {

// The client's traceparent when it is well-formed (W3C Trace Context), as version 00; else "".
std::string TraceparentOf(const http::Request& request);

// One meaning each, under the names that clients and gateways of other servers use. Sessions and
// tenants stand in the log; a session's requests go to one cell, where there are several.
// Priorities of headers are checked and logged, and have no effect: their scales differ. That of
// the body, or of the API key, takes their place in the log. Where requests have keys, the key's
// tenant takes the place of the header's.
struct ClientHints {
  std::string session;
  std::string tenant;
  std::string
      priority;  // "x-dynamo-request-priority: 3", or "priority: 3" of the body or the API key
  // What the client wants of its latency, at best: until the first token, and for each further one.
  // 0: it does not say.
  int64_t ttft_goal_us = 0;
  int64_t tpot_goal_us = 0;
};

// The key by which requests of one session go to the same cell; 0: there is none. The same in every
// router, of any build.
uint64_t AffinityOf(const ClientHints& hints);

// 400 names a header of a priority or a goal whose value is none. Of several headers of one meaning
// the first in the table counts; names that are not plain (http::IsPlainName) are passed over.
openai::MaybeError ReadHints(const std::vector<http::Header>& headers, ClientHints* hints);

}  // namespace skein::services
