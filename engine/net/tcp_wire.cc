#include "engine/net/tcp_wire.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr uint64_t kMagic = 0x31504354'4e494b53;  // "SKINTCP1"
constexpr size_t kReadBytes = 512 << 10;
constexpr int kSocketBytes = 4 << 20;
constexpr size_t kPartsMax = 32;

struct Greeting {
  uint64_t magic = kMagic;
  uint64_t token = 0;
};

constexpr size_t Padded(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

struct Address {
  std::string device;
  in_addr ip{};
  in_addr mask{};
  bool loopback = false;
};

// The IPv4 addresses of this host that are up.
std::vector<Address> Addresses() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, freeifaddrs);
  std::vector<Address> addresses;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0) continue;
    addresses.push_back({one->ifa_name, reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr,
                         reinterpret_cast<sockaddr_in*>(one->ifa_netmask)->sin_addr,
                         (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return addresses;
}

std::string TextOf(in_addr ip) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &ip, text, sizeof text);
  return text;
}

// The address to connect to: one of a network that this host is in; else the first. A loopback
// address is only tried if there is no other: on another host it means that host.
std::optional<in_addr> Choose(const std::vector<in_addr>& candidates) {
  const auto is_loopback = [](in_addr ip) { return (ntohl(ip.s_addr) >> 24) == 127; };
  std::vector<in_addr> far;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(far),
               [&](in_addr ip) { return !is_loopback(ip); });
  const std::vector<in_addr>& tried = far.empty() ? candidates : far;
  const std::vector<Address> own = Addresses();
  for (const in_addr ip : tried) {
    for (const Address& here : own) {
      const bool same = ((ip.s_addr ^ here.ip.s_addr) & here.mask.s_addr) == 0;
      if (same && here.mask.s_addr != 0) return ip;
    }
  }
  if (tried.empty()) return std::nullopt;
  return tried.front();
}

bool IsFull() { return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM; }

absl::Status Failed(const char* what) {
  const bool full = IsFull();
  const std::string text = absl::StrCat("tcp: ", what, ": ", std::strerror(errno));
  return full ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

int BytesOf(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return kSocketBytes;
  char* unit = nullptr;
  const long number = std::strtol(text, &unit, 10);
  const long factor = *unit == 'K' || *unit == 'k'   ? 1 << 10
                      : *unit == 'M' || *unit == 'm' ? 1 << 20
                                                     : 1;
  return number > 0 ? static_cast<int>(number * factor) : kSocketBytes;
}

template <typename Value>
void Set(int fd, int level, int option, Value value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

void Tune(int fd) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  const auto silence = std::chrono::milliseconds(TcpWire::kSilenceMax).count();
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<unsigned>(silence));
}

void SetBuffers(int fd) {
  Set(fd, SOL_SOCKET, SO_SNDBUF, BytesOf("UCX_TCP_SNDBUF"));
  Set(fd, SOL_SOCKET, SO_RCVBUF, BytesOf("UCX_TCP_RCVBUF"));
}

bool MayComeAgain() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

// ---- a channel ----

TcpChannel::~TcpChannel() {
  wire_->channels_.erase(id_);
  if (fd_ >= 0) close(fd_);
}

void TcpChannel::End() {
  if (fd_ < 0) return;
  close(fd_);  // and leaves the epoll
  fd_ = -1;
  ++wire_->ended_;
}

void TcpChannel::WatchRoom(bool watch) {
  if (fd_ < 0 || watches_room_ == watch) return;
  watches_room_ = watch;
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | (watch ? EPOLLOUT : 0u), .data = {.u64 = id_}};
  epoll_ctl(wire_->epoll_, EPOLL_CTL_MOD, fd_, &event);
}

bool TcpChannel::Flush() {
  while (sent_ < pending_.size()) {
    const ssize_t sent =
        send(fd_, pending_.data() + sent_, pending_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && MayComeAgain()) return false;
    if (sent <= 0) {
      End();
      return false;
    }
    sent_ += static_cast<size_t>(sent);
  }
  pending_.clear();
  sent_ = 0;
  WatchRoom(false);
  return true;
}

bool TcpChannel::OnEvents(uint32_t events) {
  if (fd_ < 0) return false;
  // The listener sends nothing: whatever can be read is the connection's end.
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    End();
    return true;
  }
  return (events & EPOLLOUT) != 0 && Flush();
}

bool TcpChannel::Write(std::span<const std::span<const std::byte>> parts) {
  if (fd_ < 0 || !pending_.empty()) return false;
  static constexpr std::array<std::byte, 8> kPad{};
  uint64_t bytes = 0;
  std::array<iovec, kPartsMax> from;
  size_t count = 1;
  SKEIN_CHECK(parts.size() + 2 <= kPartsMax);
  for (const std::span<const std::byte> part : parts) {
    if (part.empty()) continue;
    from[count++] = {const_cast<std::byte*>(part.data()), part.size()};
    bytes += part.size();
  }
  SKEIN_CHECK(bytes <= kMessageMax);
  from[0] = {&bytes, sizeof bytes};
  if (const size_t pad = Padded(bytes) - bytes; pad > 0) {
    from[count++] = {const_cast<std::byte*>(kPad.data()), pad};
  }
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (!MayComeAgain()) End();
    return false;
  }
  // The rest is copied: the message counts as sent.
  auto done = static_cast<size_t>(sent);
  for (size_t i = 0; i < count; ++i) {
    const auto* const begin = static_cast<const std::byte*>(from[i].iov_base);
    const size_t skip = std::min(done, from[i].iov_len);
    pending_.insert(pending_.end(), begin + skip, begin + from[i].iov_len);
    done -= skip;
  }
  if (!pending_.empty()) WatchRoom(true);
  return true;
}

bool TcpChannel::AwaitRoom(size_t) {
  if (fd_ < 0) return true;  // it will never have room; its end is reported
  WatchRoom(true);
  return true;
}

// ---- the wire ----

absl::StatusOr<std::unique_ptr<TcpWire>> TcpWire::Make(const Options& options) {
  std::unique_ptr<TcpWire> wire(new TcpWire(options));
  std::random_device random;
  wire->token_ = uint64_t{random()} << 32 | random();
  wire->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (wire->epoll_ < 0) return Failed("epoll_create1");
  wire->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (wire->timer_ < 0) return Failed("timerfd_create");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kAcceptId}};
  if (epoll_ctl(wire->epoll_, EPOLL_CTL_ADD, wire->timer_, &event) != 0) {
    return Failed("epoll_ctl");
  }
  wire->scratch_.resize(kReadBytes);
  const std::vector<std::string> wanted = absl::StrSplit(options.device, ',', absl::SkipEmpty());
  std::vector<Address> addresses = Addresses();
  if (!options.address.empty()) {
    addresses = {{.device = options.device}};
    if (inet_pton(AF_INET, options.address.c_str(), &addresses[0].ip) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("tcp: '", options.address, "' is not an IPv4 address"));
    }
  } else if (!wanted.empty()) {
    std::erase_if(addresses, [&](const Address& address) {
      return std::find(wanted.begin(), wanted.end(), address.device) == wanted.end();
    });
  }
  if (addresses.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tcp: device '", options.device, "' has no IPv4 address"));
  }
  // One port for all addresses, so that --data-port names it.
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(options.port));
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool at_one = !options.address.empty() || (!wanted.empty() && addresses.size() == 1);
  if (at_one) at.sin_addr = addresses[0].ip;
  if (auto status = wire->Listen(at); !status.ok()) return status;
  socklen_t bytes = sizeof at;
  getsockname(wire->listeners_[0], reinterpret_cast<sockaddr*>(&at), &bytes);
  for (const Address& address : addresses) {
    absl::StrAppend(&wire->name_, wire->name_.empty() ? "" : ",", TextOf(address.ip));
  }
  absl::StrAppend(&wire->name_, ":", ntohs(at.sin_port), "/", wire->token_);
  return wire;
}

absl::Status TcpWire::Listen(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Failed("socket");
  listeners_.push_back(fd);
  Set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  SetBuffers(fd);  // those that it accepts have them
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Failed(absl::StrCat("port ", ntohs(address.sin_port)).c_str());
  }
  if (listen(fd, 1024) != 0) return Failed("listen");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kAcceptId}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return Failed("epoll_ctl");
  return absl::OkStatus();
}

TcpWire::~TcpWire() {
  SKEIN_CHECK_MSG(channels_.empty(), "a channel outlives its wire");
  for (const auto& [id, inbound] : inbound_) close(inbound.fd);
  for (const int fd : listeners_) close(fd);
  for (const int fd : {timer_, epoll_}) {
    if (fd >= 0) close(fd);
  }
}

absl::StatusOr<std::unique_ptr<TcpChannel>> TcpWire::Connect(const std::string& name) {
  const absl::Status malformed = absl::InvalidArgumentError("not the name of a tcp wire");
  const std::vector<std::string> halves = absl::StrSplit(name, '/');
  const std::vector<std::string> place =
      absl::StrSplit(halves[0], ':');  // addresses and their port
  uint32_t port = 0;
  Greeting greeting;
  if (halves.size() != 2 || place.size() != 2 || !absl::SimpleAtoi(place[1], &port) ||
      port > 65535 || !absl::SimpleAtoi(halves[1], &greeting.token)) {
    return malformed;
  }
  std::vector<in_addr> candidates;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(place[0], ','))) {
    in_addr ip{};
    if (inet_pton(AF_INET, text.c_str(), &ip) != 1) return malformed;
    candidates.push_back(ip);
  }
  const std::optional<in_addr> ip = Choose(candidates);
  if (!ip.has_value()) return malformed;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Failed("socket");
  Tune(fd);
  SetBuffers(fd);
  const uint64_t id = next_id_++;
  std::unique_ptr<TcpChannel> channel(new TcpChannel(this, id, fd));
  channels_[id] = channel.get();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr = *ip;
  channel->pending_.resize(sizeof greeting);
  std::memcpy(channel->pending_.data(), &greeting, sizeof greeting);
  channel->watches_room_ = true;
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLOUT, .data = {.u64 = id}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return Failed("epoll_ctl");
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
    channel->End();
  }
  return channel;
}

std::vector<TcpWire::Event> TcpWire::Wait() {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) events.push_back({ready[i].data.u64, ready[i].events});
  return events;
}

// A connection that cannot be taken leaves its listener readable. So that the progress thread does
// not spin, nothing is asked of the listeners for a while.
void TcpWire::Pause(bool pause) {
  paused_ = pause;
  epoll_event event{.events = pause ? 0u : EPOLLIN, .data = {.u64 = kAcceptId}};
  for (const int listener : listeners_) epoll_ctl(epoll_, EPOLL_CTL_MOD, listener, &event);
  itimerspec once{};
  if (pause) once.it_value.tv_nsec = std::chrono::nanoseconds(kAcceptPause).count();
  timerfd_settime(timer_, 0, &once, nullptr);
}

void TcpWire::Accept() {
  if (paused_) Pause(false);
  for (const int listener : listeners_) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (IsFull()) Pause(true);
      continue;
    }
    // One that has said nothing yet makes room for another.
    if (inbound_.size() >= inbound_max_) {
      const auto silent = std::find_if(inbound_.begin(), inbound_.end(),
                                       [](const auto& inbound) { return !inbound.second.greeted; });
      if (silent == inbound_.end()) {
        close(fd);
        if (refused_ != nullptr) refused_(inbound_max_);
        continue;
      }
      Close(silent->first);
    }
    Tune(fd);
    const uint64_t id = next_id_++;
    inbound_[id].fd = fd;
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = id}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) Close(id);
  }
}

std::span<const std::byte> TcpWire::ReadSome(Inbound* inbound, bool* ended) {
  const size_t kept = inbound->partial.size();
  if (kept > 0) std::memcpy(scratch_.data(), inbound->partial.data(), kept);
  const ssize_t bytes = recv(inbound->fd, scratch_.data() + kept, scratch_.size() - kept, 0);
  if (bytes < 0) {
    *ended = !MayComeAgain();
    return std::span(scratch_).first(kept);
  }
  *ended = bytes == 0;
  return std::span(scratch_).first(kept + static_cast<size_t>(bytes));
}

std::optional<std::span<const std::byte>> TcpWire::TakeMessage(Inbound* inbound,
                                                               std::span<const std::byte>* data,
                                                               bool* broken) const {
  if (!inbound->greeted) {
    Greeting greeting;
    if (data->size() < sizeof greeting) return std::nullopt;
    std::memcpy(&greeting, data->data(), sizeof greeting);
    inbound->greeted = greeting.magic == kMagic && greeting.token == token_;
    *data = inbound->greeted ? data->subspan(sizeof greeting) : data->first(0);
    *broken |= !inbound->greeted;
  }
  uint64_t bytes = 0;
  if (data->size() < sizeof bytes) return std::nullopt;
  std::memcpy(&bytes, data->data(), sizeof bytes);
  if (bytes > kMessageMax) {
    *broken = true;
    *data = data->first(0);
    return std::nullopt;
  }
  if (data->size() - sizeof bytes < Padded(bytes)) return std::nullopt;
  const std::span<const std::byte> message = data->subspan(sizeof bytes, bytes);
  *data = data->subspan(sizeof bytes + Padded(bytes));
  return message;
}

void TcpWire::Close(uint64_t id) {
  const auto inbound = inbound_.find(id);
  close(inbound->second.fd);
  inbound_.erase(inbound);
}

}  // namespace skein::engine
