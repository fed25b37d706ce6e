// The address of a process that uses UCX, for the transport and for the fabric of communicators.
// Internal to these two folders.
#pragma once

#include <optional>
#include <string>

namespace skein::engine {

struct UcxAddress {
  std::string process;  // ThisProcess() there
  std::string host;     // HostWire::name() there, if it has one
  std::string worker;   // as UcxContext::worker_address
};

// As bytes with a checksum: UCX trusts worker addresses, and torn ones must not reach it.
std::string SealAddress(const UcxAddress& address);
std::optional<UcxAddress> OpenAddress(const std::string& sealed);

}  // namespace skein::engine
