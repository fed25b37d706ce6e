// Messages between processes over TCP: what engine/host's rings are within a host. Internal to the
// engine. Not thread-safe, except that another thread may poll the fd.
//
// Why not UCX's tcp: its first message makes two processes shake hands, and a source that dies
// meanwhile ends the target (an assertion of UCX 1.13). Here nothing that comes over a socket, and
// no end of one at any instant, does more than close that socket.
//
// A connection carries messages one way, from the process that opened it. It begins with a greeting
// that holds the listener's token, which only a reader of its name knows. Then come messages, each
//   u64 bytes | bytes | up to 7 bytes, so that the next begins at a multiple of 8
// (numbers as the machine has them: all are little-endian). What breaks these rules is closed.
//
// A connection whose other end is gone is noticed at once, as the kernel closes it. That a host
// went away without a word shows within kSilenceMax while something is under way, else by
// keepalive.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/host/message_channel.h"

namespace skein::engine {

class TcpWire;

class TcpChannel : public MessageChannel {
 public:
  ~TcpChannel() override;
  bool Write(std::span<const std::span<const std::byte>> parts) override;
  bool AwaitRoom(size_t bytes) override;
  bool ended() const override { return fd_ < 0; }

 private:
  friend TcpWire;
  TcpChannel(TcpWire* wire, uint64_t id, int fd) : wire_(wire), id_(id), fd_(fd) {}
  // Something happened at the socket. True if there may be room now.
  bool OnEvents(uint32_t events);
  bool Flush();
  void End();
  void WatchRoom(bool watch);

  TcpWire* const wire_;
  const uint64_t id_;
  int fd_;                          // -1: ended
  std::vector<std::byte> pending_;  // of messages that the socket took in part
  size_t sent_ = 0;                 // of those
  bool watches_room_ = false;
};

class TcpWire {
 public:
  static constexpr auto kSilenceMax = std::chrono::seconds(10);
  static constexpr size_t kInboundMax = 4096;
  // When this process has no descriptor left, connections of others wait so long before it tries
  // again to take one.
  static constexpr auto kAcceptPause = std::chrono::milliseconds(100);

  struct Options {
    // The network device to listen at, by all of its IPv4 addresses; "": all devices. Several may
    // be named, with commas.
    std::string device;
    // The IPv4 address to listen at, alone, such as "127.0.0.2"; "": those of `device`.
    std::string address = "";
    int port = 0;  // 0: any free one
    // Connections of others at a time. At the limit, a further one takes the place of one that has
    // not greeted yet, or is closed.
    size_t inbound_max = kInboundMax;
    // Called for each connection that is closed because of inbound_max, with that limit, by the
    // thread that calls Progress. May be null.
    std::function<void(size_t inbound_max)> refused = nullptr;
  };
  // INVALID_ARGUMENT: no such device, or one without an IPv4 address. UNAVAILABLE: the port is in
  // use, or `address` is not this host's. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<TcpWire>> Make(const Options& options);
  ~TcpWire();
  TcpWire(const TcpWire&) = delete;

  // The name by which other processes connect to this one.
  const std::string& name() const { return name_; }

  // Returns at once; a process that cannot be reached shows as a channel that has ended. Channels
  // end before this. INVALID_ARGUMENT: not a name, or no address of it can be reached from here.
  // RESOURCE_EXHAUSTED: this process has no descriptors left at the moment.
  absl::StatusOr<std::unique_ptr<TcpChannel>> Connect(const std::string& name);

  // Passes received messages to `receive`, of each connection as many as one system call reads.
  // True if anything arrived, was sent or ended.
  template <typename Receive>
  bool Progress(const Receive& receive);

  // Readable when Progress has something to do.
  int fd() const { return epoll_; }
  // How many channels have ended so far.
  uint64_t ended() const { return ended_; }
  size_t inbound() const { return inbound_.size(); }

 private:
  friend TcpChannel;
  struct Inbound {
    int fd = -1;
    bool greeted = false;
    std::vector<std::byte> partial;  // of a message
  };
  static constexpr uint64_t kAcceptId = 0;  // of events of listeners_ and timer_
  struct Event {
    uint64_t id = 0;
    uint32_t events = 0;
  };

  explicit TcpWire(const Options& options)
      : inbound_max_(options.inbound_max), refused_(options.refused) {}
  absl::Status Listen(const sockaddr_in& address);
  std::vector<Event> Wait();
  void Accept();
  void Pause(bool pause);
  // What has arrived, behind what was partial; empty if nothing. Sets `ended`.
  std::span<const std::byte> ReadSome(Inbound* inbound, bool* ended);
  // The next message of `data`, which it shortens; nullopt: no whole one. Sets `broken`.
  std::optional<std::span<const std::byte>> TakeMessage(Inbound* inbound,
                                                        std::span<const std::byte>* data,
                                                        bool* broken) const;
  void Close(uint64_t id);

  const size_t inbound_max_;
  const std::function<void(size_t)> refused_;
  int epoll_ = -1;
  int timer_ = -1;  // readable when a pause is over
  bool paused_ = false;
  std::vector<int> listeners_;
  std::string name_;
  uint64_t token_ = 0;
  uint64_t next_id_ = 1;
  uint64_t ended_ = 0;
  std::map<uint64_t, Inbound> inbound_;
  std::map<uint64_t, TcpChannel*> channels_;
  std::vector<std::byte> scratch_;
};

template <typename Receive>
bool TcpWire::Progress(const Receive& receive) {
  bool moved = false;
  for (const auto& [id, events] : Wait()) {
    if (id == kAcceptId) {
      Accept();
      moved = true;
    } else if (const auto channel = channels_.find(id); channel != channels_.end()) {
      moved |= channel->second->OnEvents(events);
    } else if (const auto inbound = inbound_.find(id); inbound != inbound_.end()) {
      bool ended = false;
      std::span<const std::byte> data = ReadSome(&inbound->second, &ended);
      while (const auto message = TakeMessage(&inbound->second, &data, &ended)) receive(*message);
      inbound->second.partial.assign(data.begin(), data.end());
      if (ended) Close(id);
      moved = true;
    }
  }
  return moved;
}

}  // namespace skein::engine
