#include "engine/net/tcp_wire.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace skein::engine {
namespace {

std::unique_ptr<TcpWire> MakeWire() {
  auto wire = TcpWire::Make({.device = "lo"});
  EXPECT_TRUE(wire.ok()) << wire.status();
  return *std::move(wire);
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool Write(MessageChannel* channel, const std::string& head, const std::string& body) {
  const std::span<const std::byte> parts[] = {Bytes(head), Bytes(body)};
  return channel->Write(parts);
}

// The local address of the socket that listens at `port`, as /proc/net/tcp has it; "": none, or
// several.
std::string ListenerAt(int port) {
  std::ifstream table("/proc/net/tcp");
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, ":%04X", port);
  std::string found, line;
  std::getline(table, line);
  for (int listeners = 0; std::getline(table, line);) {
    std::istringstream words(line);
    std::string slot, local, remote, state;
    words >> slot >> local >> remote >> state;
    if (state != "0A" || local.substr(8) != wanted) continue;
    found = ++listeners == 1 ? local.substr(0, 8) : "";
  }
  return found;
}

TEST(TcpWireAddressTest, ListensAtTheGivenAddressAlone) {
  const auto wire = TcpWire::Make({.device = "lo", .address = "127.0.0.2"});
  ASSERT_TRUE(wire.ok()) << wire.status();
  const std::string& name = (*wire)->name();
  EXPECT_EQ(name.rfind("127.0.0.2:", 0), 0u) << name;
  EXPECT_EQ(ListenerAt(std::stoi(name.substr(name.find(':') + 1))), "0200007F");
  auto source = TcpWire::Make({.device = "lo"});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->Connect(name).ok());
}

TEST(TcpWireAddressTest, WhatIsNoAddressOfThisHostIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(TcpWire::Make({.address = "node-7"}).status()));
  EXPECT_FALSE(TcpWire::Make({.address = "192.0.2.1"}).ok());
}

class TcpWireTest : public testing::Test {
 protected:
  void Move() {
    source_->Progress([](std::span<const std::byte>) { FAIL() << "a message at the source"; });
    target_->Progress([this](std::span<const std::byte> message) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(message.data()) % 8, 0u);
      came_.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    });
  }
  void MoveUntil(size_t messages) {
    while (came_.size() < messages) Move();
  }
  // A connection of our own to the target's port.
  int Stranger() {
    const std::string name = target_->name();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(name.substr(name.find(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  std::string Greeting() const {
    const uint64_t magic = 0x31504354'4e494b53;
    const std::string name = target_->name();
    const uint64_t token = std::stoull(name.substr(name.find('/') + 1));
    std::string text(16, '\0');
    std::memcpy(text.data(), &magic, 8);
    std::memcpy(text.data() + 8, &token, 8);
    return text;
  }

  std::unique_ptr<TcpWire> source_ = MakeWire();
  std::unique_ptr<TcpWire> target_ = MakeWire();
  std::vector<std::string> came_;
};

TEST_F(TcpWireTest, MessagesOfAnyLengthArriveWholeAndInOrder) {
  auto channel = *source_->Connect(target_->name());
  std::mt19937 random(1);
  std::vector<std::string> sent;
  for (int i = 0; i < 3000; ++i) {
    const size_t bytes = i % 3 == 0 ? random() % (kMessageMax - 7) : random() % 200;
    sent.push_back(std::string(bytes, static_cast<char>('a' + i % 26)));
    while (!Write(channel.get(), "head" + std::to_string(i % 10), sent.back())) Move();
    sent.back() = "head" + std::to_string(i % 10) + sent.back();
    if (random() % 3 == 0) Move();
  }
  MoveUntil(sent.size());
  EXPECT_EQ(came_, sent);
  EXPECT_FALSE(channel->ended());
}

TEST_F(TcpWireTest, AStoppedReaderHoldsUpTheWriterAndLosesNothing) {
  auto channel = *source_->Connect(target_->name());
  const std::string body(200 << 10, 'x');
  size_t sent = 0;
  for (bool full = false; !full;) {
    full = true;
    for (int i = 0; i < 1000 && full; ++i) {  // the connection is made, the socket takes a while
      source_->Progress([](std::span<const std::byte>) {});
      if (sent == 0) target_->Progress([](std::span<const std::byte>) {});
      full = !Write(channel.get(), "", body);
    }
    if (!full) ++sent;
  }
  EXPECT_GT(sent, 10u);
  EXPECT_TRUE(channel->AwaitRoom(1));
  MoveUntil(sent);
  while (!Write(channel.get(), "", "last")) Move();
  MoveUntil(sent + 1);
  EXPECT_EQ(came_.back(), "last");
}

TEST_F(TcpWireTest, TheEndOfEitherSideIsSeen) {
  auto channel = *source_->Connect(target_->name());
  while (!Write(channel.get(), "", "hello")) Move();
  MoveUntil(1);
  EXPECT_EQ(target_->inbound(), 1u);
  channel.reset();
  while (target_->inbound() > 0) Move();
  channel = *source_->Connect(target_->name());
  while (!Write(channel.get(), "", "hello")) Move();
  MoveUntil(2);
  target_.reset();
  while (!channel->ended()) source_->Progress([](std::span<const std::byte>) {});
  EXPECT_EQ(source_->ended(), 1u);
  EXPECT_FALSE(Write(channel.get(), "", "late"));
}

TEST_F(TcpWireTest, AProcessThatIsNotThereIsAnEndedChannel) {
  const std::string name = target_->name();
  target_.reset();
  auto channel = source_->Connect(name);
  ASSERT_TRUE(channel.ok());
  while (!(*channel)->ended()) source_->Progress([](std::span<const std::byte>) {});
}

TEST_F(TcpWireTest, NamesThatAreNoneAreRefused) {
  for (const std::string name : {"", "/", ":/", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:70000/1",
                                 "127.0.0.1:x/1", "nowhere:1/1", "127.0.0.1:1/x", ":1/1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(name).status())) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(TcpWire::Make({.device = "none"}).status()));
}

// Cut at every byte, and with every byte changed: only that connection is closed.
TEST_F(TcpWireTest, WhatAStrangerSendsEndsNothingButHisConnection) {
  auto channel = *source_->Connect(target_->name());
  std::string good = Greeting();
  const uint64_t bytes = 5;
  good.append(reinterpret_cast<const char*>(&bytes), 8).append("whole").append(3, '\0');
  const auto try_it = [&](const std::string& text) {
    const int fd = Stranger();
    ASSERT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    while (target_->inbound() < 2) Move();
    close(fd);
    while (target_->inbound() > 1) Move();
  };
  while (!Write(channel.get(), "", "hello")) Move();
  MoveUntil(1);
  for (size_t cut = 0; cut <= good.size(); ++cut) try_it(good.substr(0, cut));
  EXPECT_EQ(came_.size(), 2u) << "the whole one";
  for (size_t i = 0; i < 24; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    const int fd = Stranger();
    ASSERT_GT(send(fd, bad.data(), bad.size(), MSG_NOSIGNAL), 0);
    // It is accepted, and then closed by the target, or it waits for what it announced.
    for (int round = 0; round < 10; ++round) Move();
    close(fd);
    while (target_->inbound() > 1) Move();
  }
  while (!Write(channel.get(), "", "still here")) Move();
  while (came_.back() != "still here") Move();
  EXPECT_LE(came_.size(), 4u) << "no token, no message";
}

TEST_F(TcpWireTest, AtTheLimitOnlyOneThatIsSilentMakesRoom) {
  std::vector<size_t> refused;  // with these limits
  target_ = *TcpWire::Make({.device = "lo", .inbound_max = 2, .refused = [&refused](size_t limit) {
                              refused.push_back(limit);
                            }});
  const std::string ok("\x02\0\0\0\0\0\0\0ok\0\0\0\0\0\0", 16);
  const auto say = [](int fd, const std::string& text) {
    EXPECT_EQ(send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  };
  const auto await_closed = [this](int fd) {
    char none = 0;
    while (recv(fd, &none, 1, MSG_DONTWAIT) != 0) Move();
  };
  const int first = Stranger();
  say(first, Greeting() + ok);
  MoveUntil(1);
  const int silent = Stranger();
  while (target_->inbound() < 2) Move();
  const int second = Stranger();
  say(second, Greeting() + ok);
  await_closed(silent);
  MoveUntil(2);
  EXPECT_TRUE(refused.empty()) << "the silent one made room";
  const int third = Stranger();
  await_closed(third);
  EXPECT_EQ(refused, std::vector<size_t>{2}) << "the one that may have had something to say";
  EXPECT_EQ(target_->inbound(), 2u);
  for (const int fd : {first, second}) say(fd, ok);
  MoveUntil(4);  // those that greeted stay
  EXPECT_EQ(came_, std::vector<std::string>(4, "ok"));
  for (const int fd : {first, silent, second, third}) close(fd);
}

// Names listen where they are told to.
// This process gets no descriptor while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest = dup(STDERR_FILENO);
    close(lowest);
    Set({.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before_.rlim_max});
  }
  ~NoDescriptors() { Set(before_); }

 private:
  static void Set(const rlimit& limit) { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0); }
  rlimit before_{};
};

TEST_F(TcpWireTest, WithoutADescriptorItPausesAndTakesTheConnectionLater) {
  const int stranger = Stranger();
  const auto progress = [this] { return target_->Progress([](std::span<const std::byte>) {}); };
  {
    const NoDescriptors none;
    const auto begin = std::chrono::steady_clock::now();
    int64_t tries = 0;
    for (int i = 0; i < 10'000; ++i) tries += progress() ? 1 : 0;
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(tries, 1);
    EXPECT_LE(tries, 2 + took / TcpWire::kAcceptPause);  // however slow this machine is
    EXPECT_EQ(target_->inbound(), 0u);
  }
  // Its fd tells when to go on.
  while (target_->inbound() == 0) {
    pollfd ready{.fd = target_->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&ready, 1, -1), 1);
    progress();
  }
  close(stranger);
}

TEST_F(TcpWireTest, ItListensAtItsDeviceOnly) {
  EXPECT_EQ(target_->name().substr(0, 10), "127.0.0.1:");
}

}  // namespace
}  // namespace skein::engine
