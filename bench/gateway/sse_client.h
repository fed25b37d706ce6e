// A client of /v1/completions: many connections on one thread, each reused for stream after stream.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/gateway/load.h"

namespace skein::bench {

class SseClient {
 public:
  // Connects to 127.0.0.1:`port`; a connection that cannot be made is fatal.
  SseClient(int port, int connections);
  ~SseClient();
  SseClient(const SseClient&) = delete;
  SseClient& operator=(const SseClient&) = delete;

  // Sends `body`, a streamed request, on every connection, again as soon as its answer has ended.
  // An answer counts when it is 200, has a token, ends with [DONE] and stopped at max_tokens; any
  // other is an error, and its connection is made anew. A connection that the server closes between
  // two answers is made anew, too; that is no error.
  Samples Run(const std::string& body, const Limit& limit);
  // The same with a body of its own for each request.
  Samples Run(const std::function<std::string()>& next_body, const Limit& limit);

  // The body of a plain answer to a request of one connection, for what is not measured.
  std::string Post(const std::string& path, const std::string& body);

 private:
  struct Connection {
    int fd = -1;
    bool busy = false;  // a request awaits its answer
    std::string in;     // of this answer, so far
    int64_t start_us = 0;
    int64_t first_us = 0;  // 0: no token yet
  };
  enum class Progress { kMore, kEnded, kFailed };

  void Connect(size_t index);
  void Send(size_t index, const std::string& request);
  // Takes what has arrived.
  Progress Read(Connection* connection);
  Progress Judge(Connection* connection);
  void Wait(Samples* samples, size_t* busy, const std::function<std::string()>& next_body,
            const Limit& limit, int64_t start_us, int64_t* started);

  const int port_;
  const int epoll_;
  std::vector<Connection> connections_;
};

}  // namespace skein::bench
