// Tells when processes of this host end, at once, whether anybody has waited for them or not.
// Internal to the engine.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein::engine {

// This process, in words by which others of its host and pid namespace find it. Empty if /proc
// does not tell.
std::string ThisProcess();

// The number here of the process whose ThisProcess() is `process`; nullopt if it is not visible
// from here. It may have ended, and another have its number.
std::optional<pid_t> VisibleProcess(const std::string& process);

// Whether the process whose ThisProcess() is `process` has ended, waited for or not. One that is
// not visible from here counts as alive for ever; so does one of which there is no descriptor left
// to ask.
bool HasEnded(const std::string& process);

// Not thread-safe.
class ProcessWatch {
 public:
  ProcessWatch();
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;

  // Watches the process whose ThisProcess() is `process`; `token` names it in Ended. False: it has
  // ended. One that is not visible from here, or this one, counts as alive for ever.
  bool Add(const std::string& process, void* token);

  // Not any more.
  void Remove(void* token);

  // Those that ended since the last call. Begins to watch those for which there was no descriptor
  // or memory left before.
  std::vector<void*> Ended();

  // Readable when Ended has something to tell.
  int fd() const { return epoll_fd_; }

 private:
  // Whether it lives; nullopt: for lack of descriptors or memory it cannot be watched.
  std::optional<bool> Watch(const std::string& process, void* token);

  const std::string own_;
  const int epoll_fd_;
  std::map<int, void*> tokens_;                           // by the pidfd that is watched
  std::vector<std::pair<std::string, void*>> unwatched_;  // for lack of descriptors or memory
};

}  // namespace skein::engine
