// How a process uses UCX, in engine/transport and engine/comm.
#pragma once

#include <chrono>
#include <string>

namespace skein::engine {

struct UcxOptions {
  std::string tls;  // as UCX_TLS, such as "shm" or "self,shm,tcp"; "" leaves it to the environment
  std::chrono::milliseconds keepalive{200};
  // With tcp: the port to listen on at the address of each network device; 0 for any free port.
  int tcp_port = 0;
  std::string net_device;  // as UCX_NET_DEVICES, such as "eth0"; "" leaves it to the environment
};

}  // namespace skein::engine
