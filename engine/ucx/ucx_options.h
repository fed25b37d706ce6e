// How a process uses UCX, in engine/transport and engine/comm.
#pragma once

#include <chrono>
#include <string>

namespace skein::engine {

struct UcxOptions {
  std::string tls;  // as UCX_TLS, such as "shm" or "self,shm,tcp"; "" leaves it to the environment
  std::chrono::milliseconds keepalive{200};
  // For tcp (engine/net/tcp_wire.h): the port to listen on; 0 for any free port. The network device
  // to listen at, such as "eth0"; "": all of them.
  int tcp_port = 0;
  std::string net_device;
};

}  // namespace skein::engine
