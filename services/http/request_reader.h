// Parses a connection's bytes into Requests, one after the other. Internal to services/http.
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
    kMore,      // call Feed with more bytes
    kContinue,  // the client waits for "100 Continue"; then as kMore
    kDone,      // call Take()
    kError,     // error() is the answer; close the connection after it
  };

  // Parses the start of `bytes`, which must hold all bytes not consumed before, and sets
  // `*consumed`. Bytes after the request are left unconsumed.
  State Feed(std::string_view bytes, size_t* consumed);

  // At least one byte of the current request has arrived.
  bool started() const { return started_; }
  bool keep_alive() const { return keep_alive_; }
  bool http10() const { return http10_; }
  const Response& error() const { return error_; }
  // The part of the request that has arrived, without its body, for an error's answer.
  Request Seen() const;

  // Bytes of the current request's body that have arrived.
  size_t body_bytes() const;
  // Discards the current request.
  void Forget() { Reset(); }

  // The complete request; the reader then waits for the next one.
  Request Take();

 private:
  struct Parser;

  void Reset();
  State Fail(Response error);
  // Checks beyond the parser's own; sets `error_` on failure.
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
