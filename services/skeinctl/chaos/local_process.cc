#include "services/skeinctl/chaos/local_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/base/file.h"

namespace skein::services::chaos {
namespace {

namespace fs = std::filesystem;

constexpr int kErrorPipe = 3;  // in a started process, until it runs its program

std::string ProcPath(pid_t pid, const char* name) { return absl::StrCat("/proc/", pid, "/", name); }

std::string LinkOf(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return error ? "" : target.string();
}

std::vector<std::string> Strings(const std::string& bytes) {
  std::vector<std::string> strings = absl::StrSplit(bytes, '\0');
  if (!strings.empty() && strings.back().empty()) strings.pop_back();
  return strings;
}

// Empty if it is no file, as a pipe or a terminal.
std::string RegularFile(const std::string& link) {
  std::error_code error;
  const std::string path = LinkOf(link);
  return fs::is_regular_file(path, error) && !error ? path : "";
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& one : strings) pointers.push_back(const_cast<char*>(one.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In the new process: only calls that are safe between fork and exec. Does not return.
[[noreturn]] void Become(const ProcessCommand& command, const std::vector<char*>& arguments,
                         const std::vector<char*>& environment) {
  const auto open_as = [](const char* file, int flags, int as) {
    const int opened = ::open(file, flags, 0644);
    if (opened >= 0 && opened != as) ::dup2(opened, as);
  };
  const auto output_of = [](const std::string& file) {
    return file.empty() ? "/dev/null" : file.c_str();
  };
  ::setsid();
  if (::chdir(command.folder.c_str()) == 0) {
    open_as("/dev/null", O_RDONLY, STDIN_FILENO);
    open_as(output_of(command.output), O_WRONLY | O_APPEND | O_CREAT, STDOUT_FILENO);
    open_as(output_of(command.errors), O_WRONLY | O_APPEND | O_CREAT, STDERR_FILENO);
    ::close_range(kErrorPipe + 1, ~0U, 0);
    ::fcntl(kErrorPipe, F_SETFD, FD_CLOEXEC);
    ::execve(command.program.c_str(), arguments.data(), environment.data());
  }
  const int why = errno;
  [[maybe_unused]] const ssize_t told = ::write(kErrorPipe, &why, sizeof why);
  ::_exit(127);
}

// The sockets that listen on a port, as /proc/net/tcp and tcp6 tell: "socket:[123]".
std::set<std::string> ListeningSockets(uint16_t port) {
  constexpr size_t kLocal = 1;
  constexpr size_t kState = 3;
  constexpr size_t kInode = 9;
  std::set<std::string> sockets;
  const std::string suffix = absl::StrFormat(":%04X", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto text = ReadFile(table);
    if (!text.ok()) continue;
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      const std::vector<std::string> fields =
          absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
      if (fields.size() <= kInode || fields[kState] != "0A") continue;
      if (!fields[kLocal].ends_with(suffix)) continue;
      sockets.insert(absl::StrCat("socket:[", fields[kInode], "]"));
    }
  }
  return sockets;
}

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : lines.back();
}

std::string ReadAll(int descriptor) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t size = 0; (size = ::read(descriptor, piece.data(), piece.size())) != 0;) {
    if (size > 0) text.append(piece.data(), static_cast<size_t>(size));
    if (size < 0 && errno != EINTR) break;
  }
  return text;
}

}  // namespace

absl::StatusOr<ProcessCommand> CommandOf(pid_t pid) {
  const auto arguments = ReadFile(ProcPath(pid, "cmdline"));
  if (!arguments.ok() || arguments->empty()) {
    return absl::NotFoundError(absl::StrCat("no process ", pid));
  }
  const auto environment = ReadFile(ProcPath(pid, "environ"));
  ProcessCommand command{.program = LinkOf(ProcPath(pid, "exe")),
                         .arguments = Strings(*arguments),
                         .environment = {},
                         .folder = LinkOf(ProcPath(pid, "cwd")),
                         .output = RegularFile(ProcPath(pid, "fd/1")),
                         .errors = RegularFile(ProcPath(pid, "fd/2"))};
  if (!environment.ok() || command.program.empty() || command.folder.empty()) {
    return absl::PermissionDeniedError(absl::StrCat("process ", pid, " belongs to another user"));
  }
  command.environment = Strings(*environment);
  // A file that was replaced, as by an upgrade: what stands there now.
  command.program = std::string(absl::StripSuffix(command.program, " (deleted)"));
  return command;
}

bool IsAlive(pid_t pid) {
  const auto stat = ReadFile(ProcPath(pid, "stat"));
  if (!stat.ok()) return false;
  const size_t name_end = stat->rfind(')');  // the name may have brackets itself
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return false;
  const char state = (*stat)[name_end + 2];
  if (state != 'Z' && state != 'X') return true;
  // Its first thread has ended; others may still hold its ports.
  int threads = 0;
  std::error_code gone;
  for (fs::directory_iterator it(ProcPath(pid, "task"), gone), end; !gone && it != end;
       it.increment(gone)) {
    ++threads;
  }
  return threads > 1;
}

pid_t ListenerOn(uint16_t port) {
  const std::set<std::string> sockets = ListeningSockets(port);
  if (sockets.empty()) return 0;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    std::error_code hidden;  // another user's
    for (fs::directory_iterator fd(it->path() / "fd", hidden), last; !hidden && fd != last;
         fd.increment(hidden)) {
      if (sockets.contains(LinkOf(fd->path().string()))) return pid;
    }
  }
  return 0;
}

ProcessCommand AtPort(ProcessCommand command, uint16_t port) {
  std::vector<std::string>& arguments = command.arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--port=0") arguments[i] = absl::StrCat("--port=", port);
    const bool follows = i + 1 < arguments.size() && arguments[i + 1] == "0";
    if (arguments[i] == "--port" && follows) arguments[i + 1] = absl::StrCat(port);
  }
  return command;
}

// Its parent ends at once, so that init, and not this process, has to notice its end.
absl::Status StartDetached(const ProcessCommand& command) {
  const std::vector<char*> arguments = Pointers(command.arguments);
  const std::vector<char*> environment = Pointers(command.environment);
  std::array<int, 2> told{};
  if (::pipe2(told.data(), O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  const pid_t parent = ::fork();
  if (parent == 0) {
    if (::fork() != 0) ::_exit(0);
    ::dup2(told[1], kErrorPipe);
    Become(command, arguments, environment);
  }
  ::close(told[1]);
  int why = 0;
  ssize_t size = 0;
  if (parent > 0) {
    ::waitpid(parent, nullptr, 0);
    do {
      size = ::read(told[0], &why, sizeof why);
    } while (size < 0 && errno == EINTR);
  }
  ::close(told[0]);
  if (parent > 0 && size == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      command.program, " cannot be started: ", std::strerror(parent > 0 ? why : errno)));
}

absl::Status Signal(pid_t pid, int signal) {
  if (pid <= 1 || ::kill(pid, signal) == 0) {
    return pid > 1 ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("no process ", pid));
  }
  if (errno == ESRCH) return absl::NotFoundError(absl::StrCat("no process ", pid));
  return absl::PermissionDeniedError(
      absl::StrCat("process ", pid, " belongs to another user: run skeinctl as that user"));
}

absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments) {
  std::array<int, 2> output{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  std::FILE* const errors = std::tmpfile();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  if (errors != nullptr) {
    posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDERR_FILENO);
  }
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, arguments[0].c_str(), &actions, nullptr,
                                     Pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(output[1]);
  std::string text = failure == 0 ? ReadAll(output[0]) : "";
  ::close(output[0]);
  int ended = 0;
  if (failure == 0) ::waitpid(pid, &ended, 0);
  std::string told;
  if (errors != nullptr) {
    ::lseek(fileno(errors), 0, SEEK_SET);
    told = LastLine(ReadAll(fileno(errors)));
    std::fclose(errors);
  }
  if (failure != 0) {
    return absl::UnavailableError(
        absl::StrCat(arguments[0], " cannot be started: ", std::strerror(failure)));
  }
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return text;
  return absl::FailedPreconditionError(absl::StrCat(arguments[0], " failed: ", told));
}

}  // namespace skein::services::chaos
