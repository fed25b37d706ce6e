#include "services/store/host_identity.h"

#include <sys/vfs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/file.h"

namespace skein::services {
namespace {

struct SharedFileSystem {
  uint32_t magic;  // statfs(2), f_type
  const char* name;
};

constexpr SharedFileSystem kShared[] = {
    {0x6969, "NFS"},      {0x517b, "SMB"},        {0xff534d42, "CIFS"}, {0xfe534d42, "SMB2"},
    {0x00c36400, "Ceph"}, {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"}, {0x5346414f, "AFS"},
    {0x73757245, "Coda"}, {0x7461636f, "OCFS2"},  {0x01161970, "GFS2"}, {0x19830326, "BeeGFS"},
};

}  // namespace

absl::StatusOr<HostIdentity> ThisHost() {
  const auto boot = ReadFile("/proc/sys/kernel/random/boot_id");
  if (!boot.ok()) return absl::UnavailableError(boot.status().message());
  const auto machine = ReadFile("/etc/machine-id");
  HostIdentity host;
  host.boot = std::string(absl::StripAsciiWhitespace(*boot));
  if (machine.ok()) host.machine = std::string(absl::StripAsciiWhitespace(*machine));
  return host;
}

absl::Status CheckLocalFolder(const std::string& folder) {
  struct statfs found {};
  if (statfs(folder.c_str(), &found) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot look at the folder ", folder, ": ", std::strerror(errno)));
  }
  for (const SharedFileSystem& one : kShared) {
    if (static_cast<uint32_t>(found.f_type) != one.magic) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the embedded store is for the processes of one host, and ", folder, " is on ", one.name,
        ", which hosts share: take a folder on a disk of this host, or etcd for several hosts"));
  }
  return absl::OkStatus();
}

}  // namespace skein::services
