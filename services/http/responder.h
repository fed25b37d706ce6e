// The one answer to one HTTP request.
//
// Call either Send, or StartStream, any number of Write, then Finish. Any thread; never blocks;
// calls for one answer must not race with each other. After the end of the answer, or when the
// client has gone, every call is a no-op. Dropping the last reference to an unanswered Responder
// answers 500. Dropping it in mid-stream closes the connection.
#pragma once

#include <functional>
#include <string>

#include "services/http/message.h"

namespace skein::services::http {

// Why an answer could not be completed.
enum class Gone {
  kClient,   // the client closed, reset or half-closed its connection
  kStalled,  // the client took no byte for `write_timeout`, or not all in time (`answer_timeout`)
  kStopped,  // the server was stopped and the grace period is over
};

class Responder {
 public:
  virtual ~Responder() = default;

  // The whole answer. `response.headers` need not carry length or connection headers.
  virtual void Send(Response response) = 0;

  // Starts an answer whose body comes in pieces (chunked; for HTTP/1.0 until close). `head.body` is
  // the first piece and may be empty.
  virtual void StartStream(Response head) = 0;
  // Queues a piece. False: more than `buffer_bytes_max` bytes are unsent; the caller should stop
  // producing until on_drained. (Nothing is dropped; a client that reads nothing for
  // `write_timeout`, or too slowly for `answer_timeout`, is disconnected.)
  virtual bool Write(std::string piece) = 0;
  virtual void Finish() = 0;

  // Closes the connection without ending the answer properly.
  virtual void Abort() = 0;

  // Calls `gone` at most once, on a server thread, when the client closes, half-closes or resets
  // its connection or stops reading before the answer's end, or the server stops; at once if that
  // has already happened. Calls `drained` each time when, after Write returned false, less than
  // half of the bound is unsent, also if that happened before Watch. Both are dropped when the
  // answer has ended. Either may be empty. Call Watch once.
  virtual void Watch(std::function<void(Gone)> gone, std::function<void()> drained) = 0;
};

}  // namespace skein::services::http
