// What all endpoints do with a JSON body: whether it is one, and what is said of members that the
// API does not have.
#pragma once

#include <string>
#include <vector>

#include "services/http/message.h"
#include "services/openai/body_check.h"
#include "services/router/router_metrics.h"

namespace skein::services {

// What keeps the body from being read as JSON; "" when nothing does.
std::string WhyNotPlainJson(const http::Request& request);

// Counts what a body has that this API does not know; the headers that tell the client so.
std::vector<http::Header> NoteBody(const http::Request& request, const openai::BodyNotes& notes,
                                   RouterMetrics* metrics);

}  // namespace skein::services
