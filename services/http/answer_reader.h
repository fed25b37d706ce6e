// Reads one HTTP/1.1 answer from the bytes of a connection. It ends where its head says (RFC 9112,
// section 6.3): after Content-Length bytes, or with its last chunk; only without either where the
// server closes. So nobody waits for a server that keeps the connection open.
#pragma once

#include <boost/beast/core/error.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "services/http/message.h"

namespace skein::services::http {

// Pure. One thread.
class AnswerReader {
 public:
  static constexpr size_t kBytesMax = 16 << 20;      // of the body
  static constexpr size_t kLineBytesMax = 64 << 10;  // of the head, and of what frames chunks

  enum class State {
    kMore,    // the answer goes on
    kWhole,   // it is complete; what follows it is passed over
    kBroken,  // problem() says why
  };

  // `method`: of the request. The answer to a HEAD has no body.
  explicit AnswerReader(std::string_view method);
  ~AnswerReader();

  // What the server sent next. REQUIRES: the state is kMore.
  State Take(std::string_view bytes);
  // The server has closed. REQUIRES: the state is kMore.
  State TakeEnd();

  const std::string& problem() const { return problem_; }
  // REQUIRES: kWhole. Once.
  Response TakeResponse();

 private:
  struct Parser;

  void Reset();
  bool BeginsAsHttp() const;
  State Classify();
  State Break(boost::beast::error_code why);

  const bool of_head_;
  std::unique_ptr<Parser> parser_;
  std::string held_;  // what was received, and not parsed yet
  std::string problem_;
};

}  // namespace skein::services::http
