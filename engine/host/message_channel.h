// The path of messages to one other process: a ring (host_wire.h) or a socket (engine/net).
// Internal to the engine. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>

namespace skein::engine {

// The longest message that every path takes.
inline constexpr size_t kMessageMax = 256 << 10;

class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  // Sends these parts as one message of at most kMessageMax bytes. False: there is no room now.
  virtual bool Write(std::span<const std::span<const std::byte>> parts) = 0;
  // To be called before a sleep on the wire's fd(), which ends when there is room. False: there is
  // room now.
  virtual bool AwaitRoom(size_t bytes) = 0;
  // The other side is gone, and nothing arrives there any more. Of processes of this host
  // ProcessWatch tells more: this is false.
  virtual bool ended() const { return false; }
};

}  // namespace skein::engine
