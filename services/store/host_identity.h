// Which start of which machine this is.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

struct HostIdentity {
  std::string boot;     // the kernel's boot id: another one after each start of the machine
  std::string machine;  // /etc/machine-id; "" where there is none, as in many containers

  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};

// UNAVAILABLE: the kernel does not tell its boot id.
absl::StatusOr<HostIdentity> ThisHost();

// FAILED_PRECONDITION names a folder that several hosts may share (NFS, SMB, Ceph and others):
// locks and shared memory there do not reach other hosts. UNAVAILABLE: the folder cannot be looked
// at.
absl::Status CheckLocalFolder(const std::string& folder);

}  // namespace skein::services
