#include "services/skeinctl/chaos/socket_table.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/file.h"

namespace skein::services::chaos {
namespace {

namespace fs = std::filesystem;

// "0100007F:1F90": 8080.
uint16_t PortOf(const std::string& address) {
  uint32_t port = 0;
  const size_t colon = address.rfind(':');
  return colon != std::string::npos && absl::SimpleHexAtoi(address.substr(colon + 1), &port)
             ? static_cast<uint16_t>(port)
             : 0;
}

}  // namespace

std::vector<TcpSocket> TcpSocketsOf(const std::string& text) {
  constexpr size_t kLocal = 1;
  constexpr size_t kRemote = 2;
  constexpr size_t kState = 3;
  constexpr size_t kInode = 9;
  std::vector<TcpSocket> sockets;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (fields.size() <= kInode || fields[kInode] == "0" || PortOf(fields[kLocal]) == 0) continue;
    sockets.push_back({.local_port = PortOf(fields[kLocal]),
                       .remote_port = PortOf(fields[kRemote]),
                       .listens = fields[kState] == "0A",
                       .link = absl::StrCat("socket:[", fields[kInode], "]")});
  }
  return sockets;
}

SocketTable SocketTable::Of(const std::set<pid_t>& pids) {
  std::map<std::string, pid_t> owners;
  for (const pid_t pid : pids) {
    std::error_code error;  // it has ended
    for (fs::directory_iterator fd(absl::StrCat("/proc/", pid, "/fd"), error), last;
         !error && fd != last; fd.increment(error)) {
      std::error_code closed;
      const fs::path target = fs::read_symlink(fd->path(), closed);
      if (!closed && target.native().starts_with("socket:")) owners[target.string()] = pid;
    }
  }
  SocketTable table;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto text = ReadFile(file);
    if (!text.ok()) continue;
    for (const TcpSocket& one : TcpSocketsOf(*text)) {
      const auto owner = owners.find(one.link);
      if (owner == owners.end()) continue;
      if (one.listens) {
        table.listeners[one.local_port] = owner->second;
      } else {
        table.connections[{one.local_port, one.remote_port}] = owner->second;
      }
    }
  }
  return table;
}

pid_t SocketTable::OwnerOf(uint16_t port, uint16_t other_port) const {
  if (const auto it = listeners.find(port); it != listeners.end()) return it->second;
  const auto it = connections.find({port, other_port});
  return it == connections.end() ? 0 : it->second;
}

}  // namespace skein::services::chaos
