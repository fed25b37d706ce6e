// Turns a connection's bytes into one Request after the other. Internal to services/http.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "services/http/message.h"

namespace skein::services::http {

class RequestReader {
 public:
  RequestReader(size_t header_bytes_max, size_t body_bytes_max);
  ~RequestReader();

  enum class State {
    kMore,      // feed what follows
    kContinue,  // the client waits for "100 Continue"; feed what follows
    kDone,      // Take()
    kError,     // error() is the answer; the connection must be closed after it
  };

  // Parses from the front of `bytes`, which hold all that arrived and was not consumed before, and
  // sets `*consumed`. Bytes after the request are left alone.
  State Feed(std::string_view bytes, size_t* consumed);

  // Any byte of the present request was seen.
  bool started() const { return started_; }
  bool keep_alive() const { return keep_alive_; }
  bool http10() const { return http10_; }
  const Response& error() const { return error_; }
  // The request as far as it has come, without its body: what an error answers to.
  Request Seen() const;

  // Bytes of the present request's body that have arrived.
  size_t body_bytes() const;
  // Frees what has come of the present request.
  void Forget() { Reset(); }

  // The finished request; the reader then waits for the next one.
  Request Take();

 private:
  struct Parser;

  void Reset();
  State Fail(Response error);
  // Checks what the parser does not; on failure `error_` is set.
  bool CheckHeader();
  State Classify(std::string_view rest);

  const size_t header_bytes_max_, body_bytes_max_;
  std::unique_ptr<Parser> parser_;
  bool started_ = false;
  bool header_checked_ = false;
  bool keep_alive_ = false;
  bool http10_ = false;
  Request request_;
  Response error_;
};

}  // namespace skein::services::http
