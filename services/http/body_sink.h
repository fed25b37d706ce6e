// Where the body of a request goes, decided from its head.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "services/http/message.h"

namespace skein::services::http {

// Takes a body while it arrives, so that nobody holds all of it. Destroyed early if the client
// leaves, or the request turns out to be malformed.
class BodySink {
 public:
  virtual ~BodySink() = default;

  // Before the first Take. When Take has returned false, the sink calls `room` as soon as it can
  // take more: once for each false, on any thread, also from within Take. `room` may be called when
  // the connection has gone.
  virtual void Start(std::function<void()> room) = 0;
  // The next bytes, in order, on a server thread. Must not block. All are taken; false: the server
  // reads nothing more of the client until `room`.
  virtual bool Take(std::string_view bytes) = 0;
};

struct BodyPlan {
  size_t bytes_max = 0;                      // a longer body is refused with 413
  std::shared_ptr<BodySink> sink = nullptr;  // null: the body is collected in Request::body
  std::optional<Response> refusal = {};      // answered at once, without reading the body
};

// Of a request's head: it has no body, id and remote address yet. On a server thread; must not
// block.
using BodyPlanFn = std::function<BodyPlan(const Request& head)>;

}  // namespace skein::services::http
