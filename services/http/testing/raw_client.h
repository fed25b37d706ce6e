// A blocking HTTP client for tests; sends its bytes unchanged. Every wait is bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/http/message.h"

namespace skein::services::http::testing {

class RawClient {
 public:
  explicit RawClient(uint16_t port);  // connects to 127.0.0.1
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool Send(std::string_view bytes);
  void HalfClose();
  void Close();
  void Reset();  // closes with RST

  // The next answer; joins chunked bodies. status 0: the connection ended or `timeout_ms` passed.
  // `head_only`: the answer to a HEAD request.
  Response ReadResponse(bool head_only = false, int timeout_ms = 20'000);
  // Only the head; then call ReadChunk for each chunk ("" at the end).
  Response ReadHead(int timeout_ms = 20'000);
  bool ReadChunk(std::string* chunk, int timeout_ms = 20'000);
  // Drops the next `bytes` bytes or some 16 KiB more, and gives their number; fewer: the peer has
  // closed, or `timeout_ms` passed.
  size_t Skip(size_t bytes, int timeout_ms = 20'000);
  // Everything until the peer closes.
  std::string ReadAll(int timeout_ms = 20'000);
  // Whether the peer has closed.
  bool AtEnd(int timeout_ms = 20'000);

 private:
  bool Fill(int timeout_ms);
  bool FillTo(size_t bytes, int timeout_ms);
  bool FillUntil(std::string_view mark, size_t* at, int timeout_ms);

  int fd_ = -1;
  std::string in_;
};

// "GET /path HTTP/1.1\r\nHost: test\r\n...\r\n\r\n"; with Content-Length and a JSON content type if
// there is a body.
std::string MakeRequest(std::string_view method, std::string_view target,
                        std::string_view body = {}, const std::vector<Header>& headers = {});

// One request on its own connection.
Response Fetch(uint16_t port, std::string_view method, std::string_view target,
               std::string_view body = {}, const std::vector<Header>& headers = {});

}  // namespace skein::services::http::testing
