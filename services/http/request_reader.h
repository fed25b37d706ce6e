// Parses a connection's bytes into Requests, one after the other. Internal to services/http.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "services/http/body_sink.h"
#include "services/http/message.h"

namespace skein::services::http {

class RequestReader {
 public:
  // `plan`: what becomes of a body; empty: it is collected, up to `body_bytes_max`.
  // `planned_bytes_max`: the most that a plan allows.
  RequestReader(size_t header_bytes_max, size_t body_bytes_max, BodyPlanFn plan = {},
                size_t planned_bytes_max = 0);
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

  // Bytes of the current request's body that have arrived and are held here.
  size_t body_bytes() const;
  // What takes the current request's body; null: it is collected, or its head is not complete.
  const std::shared_ptr<BodySink>& sink() const { return request_.sink; }
  // What has come of its body since the last call.
  std::string TakeBody();
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
  // What becomes of the body; the same.
  bool PlanBody();
  State Classify(std::string_view rest);

  const size_t header_bytes_max_, body_bytes_max_, planned_bytes_max_;
  const BodyPlanFn plan_;
  std::unique_ptr<Parser> parser_;
  bool started_ = false;
  bool header_checked_ = false;
  bool keep_alive_ = false;
  bool http10_ = false;
  size_t bytes_max_ = 0;  // of the current request's body, once its head is complete
  size_t taken_bytes_ = 0;
  Request request_;
  Response error_;
};

}  // namespace skein::services::http
