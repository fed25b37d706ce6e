// The address of a process that uses UCX, for engine/transport and engine/comm. Internal to them.
#pragma once

#include <optional>
#include <string>

namespace skein::engine {

struct UcxAddress {
  std::string process;  // ThisProcess() there
  std::string host;     // HostWire::name() there, if it has one
  std::string worker;   // as UcxContext::worker_address
  std::string tcp;      // TcpWire::name() there, if it has one
  bool fabric = false;  // UCX reaches other hosts from there, and not over tcp
};

// The address as bytes with a checksum. UCX trusts worker addresses, so a damaged one must not
// reach it.
std::string SealAddress(const UcxAddress& address);
std::optional<UcxAddress> OpenAddress(const std::string& sealed);

}  // namespace skein::engine
