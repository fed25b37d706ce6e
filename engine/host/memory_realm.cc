#include "engine/host/memory_realm.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/host/process_watch.h"

namespace skein::engine {

std::string MemoryRealm() {
  const std::string process = ThisProcess();  // begins with the host's start and the pid namespace
  std::error_code error;
  const std::string ipc = std::filesystem::read_symlink("/proc/self/ns/ipc", error);
  const std::string user = std::filesystem::read_symlink("/proc/self/ns/user", error);
  if (process.empty() || ipc.empty() || user.empty()) return "";
  return absl::StrCat(process.substr(0, process.find(' ')), "/", ipc, "/", user,
                      "/uid:", geteuid());
}

}  // namespace skein::engine
