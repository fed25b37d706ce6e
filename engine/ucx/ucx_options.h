// How a process uses UCX, in engine/transport and engine/comm.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace skein::engine {

struct UcxOptions {
  std::string tls;  // as UCX_TLS, such as "shm" or "self,shm,tcp"; "" leaves it to the environment
  std::chrono::milliseconds keepalive{200};
  // Whether Skein's own wires are used: rings and mapped memory within a host, tcp between hosts.
  // Without them UCX carries everything, also within a host: for tests and measurements of that.
  bool own_wires = true;
  // For tcp (engine/net/tcp_wire.h): the port to listen on; 0 for any free port.
  int tcp_port = 0;
  // The network device to listen at, such as "eth0"; "": all of them. UCX then uses the RDMA
  // devices behind it and no others, unless UCX_NET_DEVICES names some.
  std::string net_device;
  // For tcp: the IPv4 address to listen at, alone; "": all addresses of net_device.
  std::string tcp_address = "";
  // Not empty: connections to other hosts are refused (FAILED_PRECONDITION), for this reason. The
  // owner leaves tcp and fabrics out of `tls` then, so that none comes from there either.
  std::string far_refused = "";
  // Of tcp: told of each connection of another process that was closed, since `limit` others were
  // open (TcpWire::Options::refused). Must not block. May be null.
  std::function<void(size_t limit)> tcp_refused = nullptr;
};

}  // namespace skein::engine
