// The one answer to one HTTP request.
//
// Either Send, or StartStream, any number of Write, then Finish. Calls are safe from any thread and
// never block; calls for one answer must not race with each other. After the end of the answer, or
// when the client has gone, every call is a no-op. Dropping the last reference to an unanswered
// Responder answers 500; dropping one in mid-stream closes the connection.
#pragma once

#include <functional>
#include <string>

#include "services/http/message.h"

namespace skein::services::http {

// Why an answer could not be delivered to its end.
enum class Gone {
  kClient,   // the client closed, reset or half-closed its connection
  kStalled,  // the client took no byte for `write_timeout`
  kStopped,  // the server was stopped and the answer's grace was over
};

class Responder {
 public:
  virtual ~Responder() = default;

  // The whole answer. `response.headers` need not carry length or connection headers.
  virtual void Send(Response response) = 0;

  // The head of an answer whose body comes in pieces (chunked; until close for HTTP/1.0).
  // `head.body` is the first piece and may be empty.
  virtual void StartStream(Response head) = 0;
  // Queues a piece. False: more than `buffer_bytes_max` bytes are unsent; the caller should stop
  // producing until on_drained. (Nothing is dropped; a client that reads nothing for
  // `write_timeout` is disconnected.)
  virtual bool Write(std::string piece) = 0;
  virtual void Finish() = 0;

  // Closes the connection without ending the answer properly.
  virtual void Abort() = 0;

  // At most one call of `gone`, on a server thread, as soon as the client closes or resets its
  // connection (or half-closes it) or stops reading before the answer's end, or the server stops;
  // at once when that has happened already. `drained`: after Write returned false, each time when
  // less than half of the bound is unsent, also if that was before this call. Both are forgotten
  // when the answer has ended. May be empty. Call this once.
  virtual void Watch(std::function<void(Gone)> gone, std::function<void()> drained) = 0;
};

}  // namespace skein::services::http
