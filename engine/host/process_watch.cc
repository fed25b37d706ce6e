#include "engine/host/process_watch.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// Fields of /proc/PID/stat (proc(5)).
struct Life {
  bool over = false;  // by the 3rd field
  // The 22nd: when it started, in clock ticks since boot, which tells a process from a later one of
  // the same number. Empty: it is gone, or cannot be asked.
  std::string start;
};

Life LifeOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  for (int i = 4; i <= 22; ++i) fields >> field;
  if (!fields) return {};
  return {state == "Z" || state == "X", field};
}

// Kept: later there may be no descriptor left to read it by.
std::string BootId() {
  static std::mutex mutex;
  static std::string& id = *new std::string;
  const std::lock_guard lock(mutex);
  if (id.empty()) std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

bool IsLack(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

// Where a number means the same process. Empty if /proc has other numbers than this process.
std::string Realm() {
  std::error_code error;
  if (std::filesystem::read_symlink("/proc/self", error) != std::to_string(getpid())) return "";
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  const std::string boot = BootId();
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

bool HasEnded(const std::string& process) {
  const auto named = ParseVisible(process, Realm());
  if (!named.has_value()) return false;
  if (kill(std::atoi(named->pid.c_str()), 0) != 0 && errno == ESRCH) return true;
  const Life life = LifeOf(named->pid);
  return !life.start.empty() && (life.over || life.start != named->start);
}

std::string ThisProcess() {
  const std::string realm = Realm(), pid = std::to_string(getpid()), start = LifeOf("self").start;
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
  const std::optional<bool> lives = Watch(process, token);
  if (!lives.has_value()) unwatched_.emplace_back(process, token);
  return lives.value_or(true);
}

std::optional<bool> ProcessWatch::Watch(const std::string& process, void* token) {
  const auto visible = ParseVisible(process, Parse(own_).realm);
  if (process == own_ || !visible.has_value()) return true;
  const Named& named = *visible;
  // glibc 2.36 declares pidfd_open without C linkage.
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, std::atoi(named.pid.c_str()), 0));
  if (pidfd < 0) return IsLack(errno) ? std::nullopt : std::optional(errno != ESRCH);
  const std::string start = LifeOf(named.pid).start;
  const bool same = start.empty() || start == named.start;
  epoll_event event{.events = EPOLLIN, .data = {.fd = pidfd}};
  if (same && epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, pidfd, &event) == 0) {
    tokens_[pidfd] = token;
    return true;
  }
  const bool lack = same && IsLack(errno);
  close(pidfd);
  return lack ? std::nullopt : std::optional(same);
}

void ProcessWatch::Remove(void* token) {
  std::erase_if(unwatched_, [&](const auto& entry) { return entry.second == token; });
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
  for (const auto& [process, token] : std::exchange(unwatched_, {})) {
    if (!Add(process, token)) ended.push_back(token);
  }
  epoll_event event{};
  while (!tokens_.empty() && epoll_wait(epoll_fd_, &event, 1, 0) > 0) {
    ended.push_back(tokens_.extract(event.data.fd).mapped());
    close(event.data.fd);
  }
  return ended;
}

}  // namespace skein::engine
