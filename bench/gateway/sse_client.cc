#include "bench/gateway/sse_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "scheduler/vocabulary/check.h"

namespace skein::bench {
namespace {

constexpr char kPath[] = "/v1/completions";
constexpr int kStallMs = 30'000;  // nothing at all arrives for this long: the run is broken

std::string RequestText(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Whether a connection is open and nothing has arrived on it.
bool IsQuiet(int fd) {
  char next;
  return recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

bool Holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

SseClient::SseClient(int port, int connections) : port_(port), epoll_(epoll_create1(0)) {
  SKEIN_CHECK(epoll_ >= 0);
  connections_.resize(static_cast<size_t>(connections));
  for (size_t i = 0; i < connections_.size(); ++i) Connect(i);
}

SseClient::~SseClient() {
  for (const Connection& connection : connections_) close(connection.fd);
  close(epoll_);
}

void SseClient::Connect(size_t index) {
  Connection& connection = connections_[index];
  if (connection.fd >= 0) close(connection.fd);
  connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  SKEIN_CHECK(connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const int on = 1;
  setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(connection.fd, F_SETFL, O_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = index;
  SKEIN_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event) == 0);
}

// A request is far smaller than a socket's buffer, which is empty here: it goes out whole, or the
// connection is broken and reading from it will say so.
void SseClient::Send(size_t index, const std::string& request) {
  if (!IsQuiet(connections_[index].fd)) Connect(index);
  Connection& connection = connections_[index];
  connection.busy = true;
  connection.in.clear();
  connection.first_us = 0;
  connection.start_us = NowUs();
  const ssize_t sent = send(connection.fd, request.data(), request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request.size())) shutdown(connection.fd, SHUT_RDWR);
}

SseClient::Progress SseClient::Read(Connection* connection) {
  std::array<char, 16384> buffer;
  const ssize_t bytes = recv(connection->fd, buffer.data(), buffer.size(), 0);
  if (bytes < 0 && errno == EAGAIN) return Progress::kMore;
  if (bytes <= 0) return Progress::kFailed;
  connection->in.append(buffer.data(), static_cast<size_t>(bytes));
  return Judge(connection);
}

SseClient::Progress SseClient::Judge(Connection* connection) {
  const std::string_view in = connection->in;
  if (!in.starts_with(std::string_view("HTTP/1.1 200").substr(0, in.size()))) {
    return Progress::kFailed;
  }
  if (connection->first_us == 0 && Holds(in, "\ndata: {")) connection->first_us = NowUs();
  if (!in.ends_with("\r\n0\r\n\r\n")) return Progress::kMore;
  const bool good = connection->first_us > 0 && Holds(in, "data: [DONE]") &&
                    Holds(in, R"("finish_reason":"length")");
  return good ? Progress::kEnded : Progress::kFailed;
}

Samples SseClient::Run(const std::string& body, const Limit& limit) {
  return Run([&body] { return body; }, limit);
}

Samples SseClient::Run(const std::function<std::string()>& next_body, const Limit& limit) {
  Samples samples;
  const int64_t start_us = NowUs();
  int64_t started = 0;
  size_t busy = 0;
  for (size_t i = 0; i < connections_.size() && started < limit.streams_max; ++i) {
    Send(i, RequestText(kPath, next_body()));
    ++started;
    ++busy;
  }
  while (busy > 0) Wait(&samples, &busy, next_body, limit, start_us, &started);
  samples.seconds = std::min(static_cast<double>(NowUs() - start_us) * 1e-6, limit.seconds_max);
  return samples;
}

void SseClient::Wait(Samples* samples, size_t* busy, const std::function<std::string()>& next_body,
                     const Limit& limit, int64_t start_us, int64_t* started) {
  std::array<epoll_event, 256> events;
  const int ready = epoll_wait(epoll_, events.data(), events.size(), kStallMs);
  SKEIN_CHECK(ready > 0);
  for (int i = 0; i < ready; ++i) {
    const size_t index = events[static_cast<size_t>(i)].data.u64;
    Connection& connection = connections_[index];
    if (!connection.busy) {
      if (!IsQuiet(connection.fd)) Connect(index);
      continue;
    }
    const Progress progress = Read(&connection);
    if (progress == Progress::kMore) continue;
    connection.busy = false;
    const int64_t now = NowUs();
    const bool in_time = static_cast<double>(now - start_us) * 1e-6 < limit.seconds_max;
    if (progress == Progress::kEnded) {
      samples->streams.push_back({connection.first_us - connection.start_us,
                                  now - connection.start_us, connection.start_us - start_us});
      samples->in_time += in_time ? 1 : 0;
    } else {
      samples->Fail("HTTP: " + connection.in.substr(0, 600));
      Connect(index);
    }
    if (in_time && *started < limit.streams_max) {
      Send(index, RequestText(kPath, next_body()));
      ++*started;
    } else {
      --*busy;
    }
  }
}

std::string SseClient::Post(const std::string& path, const std::string& body) {
  Send(0, RequestText(path, body));
  Connection& connection = connections_.front();
  for (;;) {
    pollfd wait{connection.fd, POLLIN, 0};
    SKEIN_CHECK(poll(&wait, 1, kStallMs) == 1);
    const Progress progress = Read(&connection);
    SKEIN_CHECK(progress != Progress::kFailed);
    const size_t head = connection.in.find("\r\n\r\n");
    const size_t length = connection.in.find("Content-Length: ");
    if (head == std::string::npos || length == std::string::npos) continue;
    const size_t bytes = std::stoul(connection.in.substr(length + 16));
    if (connection.in.size() < head + 4 + bytes) continue;
    connection.busy = false;
    return connection.in.substr(head + 4, bytes);
  }
}

}  // namespace skein::bench
