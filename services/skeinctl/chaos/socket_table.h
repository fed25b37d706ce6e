// Which process has which TCP connection of this host, by /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace skein::services::chaos {

struct TcpSocket {
  uint16_t local_port = 0;
  uint16_t remote_port = 0;  // 0 if it listens
  bool listens = false;
  std::string link;  // what a descriptor of its process shows: "socket:[123]"
};

// The lines of /proc/net/tcp or tcp6. Sockets that no process has any more are left out. Pure.
std::vector<TcpSocket> TcpSocketsOf(const std::string& text);

// The sockets of some processes in this network namespace, as they are now.
struct SocketTable {
  std::map<uint16_t, pid_t> listeners;                         // by port
  std::map<std::pair<uint16_t, uint16_t>, pid_t> connections;  // by local and remote port

  static SocketTable Of(const std::set<pid_t>& pids);

  // The process at the end of a connection that has `port`, of the two; 0: none of them. A port at
  // which a process listens is its own: a connection that it has not taken yet has no owner.
  pid_t OwnerOf(uint16_t port, uint16_t other_port) const;
};

}  // namespace skein::services::chaos
