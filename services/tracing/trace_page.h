// The page /debug/trace?id=ID of the admin port: what this process has kept of a request's latest
// spans (recent_spans.h). ID: see RecentSpans::Find. `skeinctl trace` reads it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "services/http/routes.h"
#include "services/tracing/recent_spans.h"

namespace skein::services {

// {"tracing":true,"spans":[…]}; each span has "trace", "span" and "parent" (hexadecimal; no parent:
// ""), "name", "start_unix_ns", "end_unix_ns", "attributes", "events" and "failed", "failure".
std::string SpansJson(const std::vector<SpanPtr>& spans);

// `recent` is called for each request, on the server's threads. Null: tracing is off here, and the
// page says {"tracing":false,"spans":[]}. 400 without an id.
void AddTracePage(std::function<const RecentSpans*()> recent, http::Routes* routes);

}  // namespace skein::services
