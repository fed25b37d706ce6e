// State shared by all connections of one server. Internal to services/http.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "services/http/server.h"

namespace skein::services::http {

class Connection;

class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  ServerCore(const ServerOptions& options, RequestFn fn);
  ~ServerCore();

  absl::Status Listen();
  void Run();  // starts the threads
  void BeginDrain();
  void EndDrain();
  void Stop(std::chrono::milliseconds grace);

  const ServerOptions& options() const { return options_; }
  const RequestFn& fn() const { return fn_; }
  uint16_t port() const { return port_; }
  // For a connection that begins now; null: plain text.
  tls::Context ContextNow() const {
    return options_.certificates != nullptr ? options_.certificates->ServerContext() : nullptr;
  }
  ServerStats stats() const;

  // Adds the common headers to an answer before it is sent.
  void Complete(const Request& request, Response* response) const;
  void CountRequest() { requests_.fetch_add(1, std::memory_order_relaxed); }
  void Remove(Connection* connection);  // called by a closed connection; idempotent

 private:
  void Accept();
  void OnAccept(boost::system::error_code ec, boost::asio::ip::tcp::socket socket);
  void Admit(boost::asio::ip::tcp::socket socket);
  // Why a connection is refused: the server has as many as it may, or no descriptor is left.
  enum class Refusal { kTooMany, kNoDescriptor };
  Response RefusalResponse(Refusal why) const;
  void Refuse(boost::asio::ip::tcp::socket socket, Refusal why);
  // Those that are in the backlog. On the acceptor's strand.
  void AdmitOrRefuseWaiting();
  void ForEachConnection(void (Connection::*call)());
  void StopAccepting();  // on the acceptor's strand, once
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point until);

  const ServerOptions options_;
  const RequestFn fn_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::ip::tcp::acceptor acceptor_;  // used on its own strand
  boost::asio::steady_timer retry_;
  bool accepting_ = false;           // a call of async_accept has not ended; on the strand
  std::promise<void> accept_ended_;  // the acceptor is closed, and all that it accepted is admitted
  std::vector<std::thread> threads_;
  uint16_t port_ = 0;
  int spare_ = -1;  // a descriptor that is given up to refuse a connection when there is none left
  std::atomic<uint64_t> accepted_{0}, refused_{0}, requests_{0};

  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  std::unordered_set<Connection*> connections_;  // guarded by mutex_
  bool draining_ = false;                        // guarded by mutex_
  bool stopping_ = false;                        // guarded by mutex_
};

}  // namespace skein::services::http
