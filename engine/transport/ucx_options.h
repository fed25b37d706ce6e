// How a process uses UCX: for the transport and for the fabric of communicators.
#pragma once

#include <chrono>
#include <string>

namespace skein::engine {

struct UcxOptions {
  std::string tls;  // as UCX_TLS, such as "shm" or "self,shm,tcp"; "" leaves it to the environment
  std::chrono::milliseconds keepalive{200};
};

}  // namespace skein::engine
