// Fabric: how one process (in tests: one thread) reaches the others that it forms groups with. Not
// an interface of the data path: it only makes Communicators.
//
// A fabric connects to an address once, the first time that a group names it, and keeps the
// connection: a later group of the same processes creates nothing on the wire, and no rank waits
// for another while a group is made. A process that died and came back has a new address.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "scheduler/vocabulary/group_id.h"

namespace skein::engine {

class Fabric {
 public:
  virtual ~Fabric() = default;  // REQUIRES: its communicators are gone

  // Opaque bytes by which others reach this process, valid for its life.
  virtual const std::string& Address() const = 0;

  // This process's end of the group whose rank r is at addresses[r]; addresses[rank] is its own.
  // Returns at once; may be called from any thread. INVALID_ARGUMENT: malformed, duplicate or
  // foreign addresses (the rank is named); ALREADY_EXISTS: `id` is in use.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      GroupId id, std::span<const std::string> addresses, int rank) = 0;
};

}  // namespace skein::engine
