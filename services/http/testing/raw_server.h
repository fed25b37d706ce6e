// An HTTP server for tests that answers every request with the same bytes, and keeps the connection
// open until it ends, whatever the client asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace skein::services::http::testing {

class RawServer {
 public:
  // Listens on a free port of 127.0.0.1. Each connection has one request, with a Content-Length.
  explicit RawServer(std::string answer);
  ~RawServer();  // closes all connections
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  uint16_t port() const { return port_; }
  int answered() const { return answered_.load(); }

 private:
  void Run();

  const std::string answer_;
  const int listener_;
  uint16_t port_ = 0;
  std::atomic<int> answered_{0};
  std::vector<int> connections_;  // of the thread
  std::thread thread_;            // last: it uses the above
};

}  // namespace skein::services::http::testing
