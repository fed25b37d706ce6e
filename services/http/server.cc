#include "services/http/server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <ctime>
#include <utility>

#include "services/http/connection.h"
#include "services/http/error.h"
#include "services/http/handshakes.h"
#include "services/http/request_id.h"
#include "services/http/server_core.h"

namespace skein::services::http {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

// A handshake that the kernel has answered ends within this time, or is reset when the socket
// closes: more than a round trip to a load balancer or a client of the same continent.
constexpr auto kHandshakeTime = std::chrono::milliseconds(100);

bool NoDescriptor(error_code ec) {
  return ec == asio::error::no_descriptors || ec.value() == ENFILE;
}

int SpareDescriptor() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

ServerCore::ServerCore(const ServerOptions& options, RequestFn fn)
    : options_(options),
      fn_(std::move(fn)),
      work_(asio::make_work_guard(io_)),
      acceptor_(asio::make_strand(io_)),
      retry_(acceptor_.get_executor()),
      spare_(SpareDescriptor()) {}

ServerCore::~ServerCore() {
  if (spare_ >= 0) ::close(spare_);
}

absl::Status ServerCore::Listen() {
  error_code ec;
  const std::string where = options_.host + ":" + std::to_string(options_.port);
  const auto address =
      asio::ip::make_address(options_.host == "localhost" ? "127.0.0.1" : options_.host, ec);
  if (ec)
    return absl::InvalidArgumentError("'" + options_.host + "' is not an IP address or localhost");
  const tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(4096, ec);
  if (!ec) port_ = acceptor_.local_endpoint(ec).port();
  if (ec) return absl::UnavailableError("cannot listen on " + where + ": " + ec.message());
  return absl::OkStatus();
}

void ServerCore::Run() {
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->Accept(); });
  for (int i = 0; i < std::max(1, options_.threads); ++i) {
    threads_.emplace_back([this] { io_.run(); });
  }
}

void ServerCore::Accept() {
  if (!acceptor_.is_open()) return;
  accepting_ = true;
  acceptor_.async_accept(asio::make_strand(io_),
                         [self = shared_from_this()](error_code ec, tcp::socket socket) {
                           self->OnAccept(ec, std::move(socket));
                         });
}

void ServerCore::OnAccept(error_code ec, tcp::socket socket) {
  accepting_ = false;
  if (!ec) Admit(std::move(socket));  // also if the acceptor was closed meanwhile
  if (!acceptor_.is_open()) return accept_ended_.set_value();
  if (!ec) return Accept();
  // Recover after running out of descriptors or memory: connections continue. New clients are
  // refused, so that they go elsewhere, and do not wait in the backlog.
  if (NoDescriptor(ec)) AdmitOrRefuseWaiting();
  retry_.expires_after(std::chrono::milliseconds(50));
  retry_.async_wait([self = shared_from_this()](error_code) { self->Accept(); });
}

void ServerCore::Admit(tcp::socket socket) {
  accepted_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Connection> connection;
  bool stopping = false, draining = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping = stopping_;
    draining = draining_;
    if (connections_.size() < options_.connections_max) {
      connection = std::make_shared<Connection>(std::move(socket), shared_from_this());
      connections_.insert(connection.get());
    }
  }
  if (connection != nullptr) {
    return asio::post(connection->executor(), [connection, stopping, draining] {
      if (draining) connection->EndAfterAnswer();
      connection->Start();
      if (stopping) connection->BeginStop();
    });
  }
  Refuse(std::move(socket), Refusal::kTooMany);
}

void ServerCore::AdmitOrRefuseWaiting() {
  error_code ec;
  acceptor_.non_blocking(true, ec);
  while (!ec) {
    tcp::socket socket(asio::make_strand(io_));  // a connection's calls run one at a time
    acceptor_.accept(socket, ec);
    if (!ec) {
      Admit(std::move(socket));
      continue;
    }
    if (!NoDescriptor(ec)) return;
    if (spare_ >= 0) ::close(std::exchange(spare_, -1));
    acceptor_.accept(socket, ec);
    if (!ec) Refuse(std::move(socket), Refusal::kNoDescriptor);
    spare_ = SpareDescriptor();  // fails if another thread was faster; then the next time
  }
}

Response ServerCore::RefusalResponse(Refusal why) const {
  switch (why) {
    case Refusal::kTooMany:
      return ErrorResponse(429,
                           "Too many connections: the limit is " +
                               std::to_string(options_.connections_max) + ". Retry later.",
                           {}, "too_many_connections");
    case Refusal::kNoDescriptor:
      break;
  }
  return ErrorResponse(503,
                       "This server has no file descriptor left for a connection. Retry later.", {},
                       "unavailable");
}

// Nothing was read, so the answer belongs to no request.
void ServerCore::Refuse(tcp::socket socket, Refusal why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  Response response = RefusalResponse(why);
  response.headers.push_back({"Retry-After", "1"});
  Request request;
  error_code ignored;
  request.remote = socket.remote_endpoint(ignored).address().to_string();
  request.id = RequestIdOf({});
  Complete(request, &response);
  if (options_.certificates != nullptr) return;  // a handshake would have to come first
  const std::string text =
      SerializeHead(response, Framing::kLength, false, std::time(nullptr)) + response.body;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void ServerCore::Complete(const Request& request, Response* response) const {
  if (FindHeader(response->headers, "X-Request-Id").empty()) {
    response->headers.push_back({"X-Request-Id", request.id});
  }
  if (options_.complete) options_.complete(request, response);
}

void ServerCore::Remove(Connection* connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  connections_.erase(connection);
  if (connections_.empty()) emptied_.notify_all();
}

// A connection leaves the set in its destructor at the latest. So while the lock is held, every
// pointer in the set is valid.
void ServerCore::ForEachConnection(void (Connection::*call)()) {
  std::vector<std::shared_ptr<Connection>> held;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Connection* connection : connections_) held.push_back(connection->weak_from_this().lock());
  }
  for (auto& connection : held) {
    if (connection == nullptr) continue;
    const auto executor = connection->executor();
    asio::post(executor, [held = std::move(connection), call] { (held.get()->*call)(); });
  }
}

void ServerCore::BeginDrain() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(draining_, true)) return;
  }
  ForEachConnection(&Connection::BeginDrain);
}

void ServerCore::EndDrain() {
  std::lock_guard<std::mutex> lock(mutex_);
  draining_ = false;
}

bool ServerCore::WaitUntilEmpty(std::chrono::steady_clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  return emptied_.wait_until(lock, until, [this] { return connections_.empty(); });
}

// What waits in the backlog would be reset by the close.
void ServerCore::StopAccepting() {
  AdmitOrRefuseWaiting();
  error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  if (!accepting_) accept_ended_.set_value();
}

void ServerCore::Stop(std::chrono::milliseconds grace) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  const auto until = std::chrono::steady_clock::now() + grace;
  asio::post(acceptor_.get_executor(),
             [self = shared_from_this()] { DropNewHandshakes(self->acceptor_.native_handle()); });
  ForEachConnection(&Connection::BeginStop);
  std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(kHandshakeTime, grace / 2));
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->StopAccepting(); });
  accept_ended_.get_future().wait();
  if (!WaitUntilEmpty(until)) {
    ForEachConnection(&Connection::Stop);
    WaitUntilEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(5));
  }
  work_.reset();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

ServerStats ServerCore::stats() const {
  ServerStats stats;
  stats.accepted = accepted_.load();
  stats.refused = refused_.load();
  stats.requests = requests_.load();
  std::lock_guard<std::mutex> lock(mutex_);
  stats.connections = connections_.size();
  return stats;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, RequestFn fn) {
  auto core = std::make_shared<ServerCore>(options, std::move(fn));
  absl::Status status = core->Listen();
  if (!status.ok()) return status;
  core->Run();
  return std::unique_ptr<Server>(new Server(std::move(core)));
}

Server::Server(std::shared_ptr<ServerCore> core) : core_(std::move(core)) {}
Server::~Server() { Stop(std::chrono::milliseconds(0)); }
uint16_t Server::port() const { return core_->port(); }
ServerStats Server::stats() const { return core_->stats(); }
void Server::BeginDrain() { core_->BeginDrain(); }

void Server::EndDrain() { core_->EndDrain(); }
void Server::Stop(std::chrono::milliseconds grace) { core_->Stop(grace); }

}  // namespace skein::services::http
