#include "services/http/testing/raw_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace skein::services::http::testing {

RawClient::RawClient(uint16_t port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

RawClient::~RawClient() { Close(); }

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void RawClient::HalfClose() { ::shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::Reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

bool RawClient::Fill(int timeout_ms) {
  pollfd wait{fd_, POLLIN, 0};
  if (fd_ < 0 || ::poll(&wait, 1, timeout_ms) <= 0) return false;
  char buffer[16 << 10];
  const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  in_.append(buffer, static_cast<size_t>(n));
  return true;
}

bool RawClient::FillTo(size_t bytes, int timeout_ms) {
  while (in_.size() < bytes) {
    if (!Fill(timeout_ms)) return false;
  }
  return true;
}

bool RawClient::FillUntil(std::string_view mark, size_t* at, int timeout_ms) {
  while ((*at = in_.find(mark)) == std::string::npos) {
    if (!Fill(timeout_ms)) return false;
  }
  return true;
}

Response RawClient::ReadHead(int timeout_ms) {
  Response response;
  response.status = 0;
  size_t end = 0;
  if (!FillUntil("\r\n\r\n", &end, timeout_ms)) return response;
  const std::string head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  if (head.size() > 12) response.status = std::atoi(head.c_str() + 9);
  for (size_t line = head.find("\r\n") + 2; line < head.size();) {
    const size_t next = head.find("\r\n", line), colon = head.find(": ", line);
    if (colon < next) {
      response.headers.push_back(
          {head.substr(line, colon - line), head.substr(colon + 2, next - colon - 2)});
    }
    line = next + 2;
  }
  response.content_type = std::string(FindHeader(response.headers, "Content-Type"));
  return response;
}

bool RawClient::ReadChunk(std::string* chunk, int timeout_ms) {
  chunk->clear();
  size_t end = 0;
  if (!FillUntil("\r\n", &end, timeout_ms)) return false;
  const size_t size = std::strtoul(in_.c_str(), nullptr, 16);
  if (!FillTo(end + 2 + size + 2, timeout_ms)) return false;
  *chunk = in_.substr(end + 2, size);
  in_.erase(0, end + 2 + size + 2);
  return true;
}

Response RawClient::ReadResponse(bool head_only, int timeout_ms) {
  Response response = ReadHead(timeout_ms);
  while (response.status == 100) response = ReadHead(timeout_ms);
  if (response.status == 0 || head_only || response.status == 204) return response;
  if (FindHeader(response.headers, "Transfer-Encoding") == "chunked") {
    std::string chunk;
    do {
      if (!ReadChunk(&chunk, timeout_ms)) response.status = 0;
      response.body += chunk;
    } while (!chunk.empty() && response.status != 0);
    return response;
  }
  const std::string length(FindHeader(response.headers, "Content-Length"));
  if (length.empty()) {
    response.body = ReadAll(timeout_ms);
    return response;
  }
  const size_t size = std::strtoul(length.c_str(), nullptr, 10);
  if (!FillTo(size, timeout_ms)) response.status = 0;
  response.body = in_.substr(0, size);
  in_.erase(0, size);
  return response;
}

size_t RawClient::Skip(size_t bytes, int timeout_ms) {
  size_t skipped = 0;
  while (skipped < bytes && (!in_.empty() || Fill(timeout_ms))) {
    skipped += in_.size();
    in_.clear();
  }
  return skipped;
}

std::string RawClient::ReadAll(int timeout_ms) {
  while (Fill(timeout_ms)) {
  }
  return std::exchange(in_, {});
}

bool RawClient::AtEnd(int timeout_ms) {
  pollfd wait{fd_, POLLIN, 0};
  if (!in_.empty() || ::poll(&wait, 1, timeout_ms) <= 0) return false;
  char byte;
  return ::recv(fd_, &byte, 1, MSG_PEEK) <= 0;
}

std::string MakeRequest(std::string_view method, std::string_view target, std::string_view body,
                        const std::vector<Header>& headers) {
  std::string out;
  out.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: test\r\n");
  for (const Header& header : headers) out += header.name + ": " + header.value + "\r\n";
  if (!body.empty()) {
    if (FindHeader(headers, "Content-Type").empty()) out += "Content-Type: application/json\r\n";
    out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  out.append("\r\n").append(body);
  return out;
}

Response Fetch(uint16_t port, std::string_view method, std::string_view target,
               std::string_view body, const std::vector<Header>& headers) {
  RawClient client(port);
  client.Send(MakeRequest(method, target, body, headers));
  return client.ReadResponse(method == "HEAD");
}

}  // namespace skein::services::http::testing
