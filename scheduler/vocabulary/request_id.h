// RequestId: a request of one router.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace skein {

// `router` is the random incarnation of the router's process and `serial` grows, so an id is never
// reused. A client request with `n` = k is k requests.
struct RequestId {
  uint64_t router = 0;
  uint64_t serial = 0;
  auto operator<=>(const RequestId&) const = default;
};

inline std::string ToString(RequestId id) {
  return std::to_string(id.router) + "/" + std::to_string(id.serial);
}

}  // namespace skein
