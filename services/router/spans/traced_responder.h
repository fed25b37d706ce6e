// Ends a request's spans with its answer, whoever gives it.
#pragma once

#include <memory>

#include "services/http/responder.h"
#include "services/router/spans/request_spans.h"

namespace skein::services {

// A responder that passes everything on to `responder` and ends `spans` before the client is told
// of the end. Whoever answers may end them before, with more. A client that has gone ends nothing:
// who watches for it does.
std::shared_ptr<http::Responder> Traced(std::shared_ptr<RequestSpans> spans,
                                        std::shared_ptr<http::Responder> responder);

}  // namespace skein::services
