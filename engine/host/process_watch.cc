#include "engine/host/process_watch.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace skein::engine {
namespace {

// When a process started, in clock ticks since boot (proc(5), the 22nd field of stat); empty if it
// is gone. Tells a process from a later one of the same number.
std::string StartOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return "";
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return fields ? field : "";
}

// Where a number means the same process. Empty if /proc has other numbers than this process.
std::string Realm() {
  std::error_code error;
  if (std::filesystem::read_symlink("/proc/self", error) != std::to_string(getpid())) return "";
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot.empty() || space.empty() ? "" : absl::StrCat(boot, "/", space);
}

struct Named {
  std::string realm, pid, start;
};

Named Parse(const std::string& process) {
  Named named;
  std::istringstream(process) >> named.realm >> named.pid >> named.start;
  return named;
}

// nullopt if it is not visible from here, whose Realm() is `realm`.
std::optional<Named> ParseVisible(const std::string& process, const std::string& realm) {
  Named named = Parse(process);
  if (named.start.empty() || named.realm != realm) return std::nullopt;
  return named;
}

}  // namespace

std::optional<pid_t> VisibleProcess(const std::string& process) {
  const auto named = ParseVisible(process, Realm());
  if (!named.has_value()) return std::nullopt;
  return std::atoi(named->pid.c_str());
}

std::string ThisProcess() {
  const std::string realm = Realm(), pid = std::to_string(getpid()), start = StartOf("self");
  if (realm.empty() || start.empty()) return "";
  return absl::StrCat(realm, " ", pid, " ", start);
}

ProcessWatch::ProcessWatch() : own_(ThisProcess()), epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {
  SKEIN_CHECK(epoll_fd_ >= 0);
}

ProcessWatch::~ProcessWatch() {
  for (const auto& [pidfd, token] : tokens_) close(pidfd);
  close(epoll_fd_);
}

bool ProcessWatch::Add(const std::string& process, void* token) {
  const auto visible = ParseVisible(process, Parse(own_).realm);
  if (process == own_ || !visible.has_value()) return true;
  const Named& named = *visible;
  // glibc 2.36 declares pidfd_open without C linkage.
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, std::atoi(named.pid.c_str()), 0));
  if (pidfd < 0) return errno != ESRCH;
  const std::string start = StartOf(named.pid);
  const bool same = start.empty() || start == named.start;
  epoll_event event{.events = EPOLLIN, .data = {.fd = pidfd}};
  if (same && epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, pidfd, &event) == 0) {
    tokens_[pidfd] = token;
  } else {
    close(pidfd);
  }
  return same;
}

void ProcessWatch::Remove(void* token) {
  for (auto it = tokens_.begin(); it != tokens_.end();) {
    const auto next = std::next(it);
    if (it->second == token) {
      close(it->first);
      tokens_.erase(it);
    }
    it = next;
  }
}

std::vector<void*> ProcessWatch::Ended() {
  std::vector<void*> ended;
  epoll_event event{};
  while (!tokens_.empty() && epoll_wait(epoll_fd_, &event, 1, 0) > 0) {
    ended.push_back(tokens_.extract(event.data.fd).mapped());
    close(event.data.fd);
  }
  return ended;
}

}  // namespace skein::engine
