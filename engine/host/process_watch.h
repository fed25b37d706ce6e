// Tells at once when a process of this host ends, whether or not its parent has reaped it. Internal
// to the engine.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein::engine {

// An opaque id by which other processes of this host and pid namespace can identify this process.
// Empty if /proc does not allow it.
std::string ThisProcess();

// The pid of the process whose ThisProcess() is `process`; nullopt if it is not visible from here.
// The process may have ended since, and another one may have its pid.
std::optional<pid_t> VisibleProcess(const std::string& process);

// Whether the process whose ThisProcess() is `process` has ended, reaped or not. A process that is
// not visible from here counts as alive; so does one that cannot be checked because this process
// has no free descriptor.
bool HasEnded(const std::string& process);

// Not thread-safe.
class ProcessWatch {
 public:
  ProcessWatch();
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;

  // Watches the process whose ThisProcess() is `process`; Ended returns `token` for it. False: it
  // has ended already. A process that is not visible from here, and this process itself, count as
  // alive.
  bool Add(const std::string& process, void* token);

  // Stops watching.
  void Remove(void* token);

  // The processes that ended since the last call. Also retries those that could not be watched
  // before, for want of descriptors or memory.
  std::vector<void*> Ended();

  // Readable when Ended has a process to return.
  int fd() const { return epoll_fd_; }

 private:
  // Whether it is alive; nullopt: it cannot be watched, for want of descriptors or memory.
  std::optional<bool> Watch(const std::string& process, void* token);

  const std::string own_;
  const int epoll_fd_;
  std::map<int, void*> tokens_;                           // by the pidfd that is watched
  std::vector<std::pair<std::string, void*>> unwatched_;  // for lack of descriptors or memory
};

}  // namespace skein::engine
