// The address of a PathFabric: properties of a member, and the address by which the fabric of the
// hosts reaches it. Internal to engine/comm.
#pragma once

#include <optional>
#include <string>

#include "engine/comm/paths/comm_path.h"

namespace skein::engine {

struct MemberAddress {
  CommMember member;
  std::string host;  // of the fabric below
};

// The address as bytes with a checksum.
std::string SealMember(const MemberAddress& address);
// nullopt if the bytes are damaged or not an address of this kind.
std::optional<MemberAddress> OpenMember(const std::string& sealed);

}  // namespace skein::engine
