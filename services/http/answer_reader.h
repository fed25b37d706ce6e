// Reads one HTTP/1.1 answer from the bytes of a connection. It ends where its head says (RFC 9112,
// section 6.3): after Content-Length bytes, or with its last chunk; only without either where the
// server closes. So nobody waits for a server that keeps the connection open.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "services/http/message.h"

namespace skein::services::http {

// Pure. One thread.
class AnswerReader {
 public:
  static constexpr size_t kBytesMax = 16 << 20;      // of head and body
  static constexpr size_t kLineBytesMax = 64 << 10;  // of the head, and of what frames chunks

  enum class State {
    kMore,    // the answer goes on
    kWhole,   // it is complete; what follows it is passed over
    kBroken,  // problem() says why
  };

  // `method`: of the request. The answer to a HEAD has no body.
  explicit AnswerReader(std::string_view method) : of_head_(method == "HEAD") {}

  // What the server sent next. REQUIRES: the state is kMore.
  State Take(std::string_view bytes);
  // The server has closed.
  State TakeEnd();

  const std::string& problem() const { return problem_; }
  // REQUIRES: kWhole. Once.
  Response TakeResponse();

 private:
  enum class Part { kHead, kLength, kChunkSize, kChunk, kTrailer, kUntilClose, kOver };

  // Each reads what it can of held_; kMore: it needs more bytes, or another part has begun.
  State Read();
  State ReadHead();
  State ChooseBody();
  State ReadLength();
  State ReadChunkSize();
  State ReadChunk();
  State ReadTrailer();
  State AwaitLine();
  bool TakeLine(std::string_view* line);  // without its CRLF; false: it is not complete
  State Break(const char* problem);

  const bool of_head_;
  Part part_ = Part::kHead;
  std::string held_;   // what was received
  size_t at_ = 0;      // so much of it was read
  size_t length_ = 0;  // of the body, or of the chunk that is read
  Response response_;
  std::string problem_;
};

}  // namespace skein::services::http
