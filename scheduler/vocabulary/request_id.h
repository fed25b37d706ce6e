// RequestId: a request of one router, or a further attempt at one.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace skein {

// `router` is the random incarnation of the router's process and `serial` grows, so an id is never
// reused. A client request with `n` = k is k requests.
//
// A request whose instances were lost is tried again under an id of its own: what still comes of
// an attempt before cannot be mistaken for it. The upper bits of `serial` are the attempt, from 0.
struct RequestId {
  static constexpr int kAttemptBit = 40;

  uint64_t router = 0;
  uint64_t serial = 0;
  auto operator<=>(const RequestId&) const = default;

  uint64_t attempt() const { return serial >> kAttemptBit; }
  // The id of its attempt 0, and of its attempt `number` (below 2^24).
  RequestId First() const { return {router, serial & ((uint64_t{1} << kAttemptBit) - 1)}; }
  RequestId Attempt(uint64_t number) const {
    return {router, First().serial | number << kAttemptBit};
  }
};

// As in "7/12", and "7/12.3" for attempt 3.
inline std::string ToString(RequestId id) {
  std::string text = std::to_string(id.router) + "/" + std::to_string(id.First().serial);
  return id.attempt() == 0 ? text : text + "." + std::to_string(id.attempt());
}

}  // namespace skein
