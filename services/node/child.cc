#include "services/node/child.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr size_t kLinesKept = 5;
constexpr size_t kLineBytesMax = 16 << 10;  // longer lines are split
constexpr int kReadsMax = 16;               // in a row, so that other children are read too

std::string HowEnded(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const char* const name = sigabbrev_np(WTERMSIG(wait_status));
    return absl::StrCat("killed by ", name == nullptr ? "signal " : "SIG",
                        name == nullptr ? std::to_string(WTERMSIG(wait_status)) : name);
  }
  if (WEXITSTATUS(wait_status) == 127)
    return "ended with exit code 127: the program could not be run";
  return absl::StrCat("ended with exit code ", WEXITSTATUS(wait_status));
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void Run(char* const* arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // the parent has ended meanwhile
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGHUP, SIG_IGN);  // programs that reload on SIGHUP wait for it anyway
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvp(arguments[0], arguments);
  const char* const why = strerror(errno);
  const char* const program = arguments[0];
  for (const char* const piece : {program, ": ", why, "\n"}) {
    if (write(STDERR_FILENO, piece, strlen(piece)) < 0) break;
  }
  _exit(127);
}

}  // namespace

Child::~Child() { CloseOutput(); }

void Child::CloseOutput() {
  if (output_fd_ >= 0) close(output_fd_);
  output_fd_ = -1;
}

absl::Status Child::Start(int64_t now_us) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot create a pipe: ", strerror(errno)));
  }
  fcntl(ends[1], F_SETFL, 0);  // the child's end blocks, like a terminal
  std::vector<char*> arguments;
  for (const std::string& argument : command_) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Run(arguments.data(), ends[1], parent);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::UnavailableError(absl::StrCat("cannot start a process: ", strerror(errno)));
  }
  CloseOutput();
  output_fd_ = ends[0];
  unfinished_.clear();
  lines_.clear();
  pid_ = pid;
  started_us_ = now_us;
  ++starts_;
  return absl::OkStatus();
}

void Child::Ended(int wait_status, int64_t now_us) {
  pid_ = 0;
  last_exit_ = HowEnded(wait_status);
  last_words_.clear();
  for (const std::string& line : lines_) {
    absl::StrAppend(&last_words_, last_words_.empty() ? "" : "\n", line);
  }
  const double ran_s = static_cast<double>(now_us - started_us_) * 1e-6;
  delay_s_ = delay_s_ == 0 || ran_s > delays_.max_s ? delays_.first_s
                                                    : std::min(2 * delay_s_, delays_.max_s);
  next_start_us_ = now_us + static_cast<int64_t>(delay_s_ * 1e6);
}

void Child::Signal(int signal) const {
  if (pid_ != 0) kill(pid_, signal);
}

std::vector<std::string> Child::ReadLines() {
  std::vector<std::string> lines;
  const auto add = [&](std::string line) {
    lines_.push_back(line);
    if (lines_.size() > kLinesKept) lines_.pop_front();
    lines.push_back(std::move(line));
  };
  char piece[16384];
  for (int reads = 0; output_fd_ >= 0 && reads < kReadsMax; ++reads) {
    const ssize_t got = read(output_fd_, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;  // nothing more now
    if (got == 0) {
      if (!unfinished_.empty()) add(std::exchange(unfinished_, {}));
      CloseOutput();
      break;
    }
    unfinished_.append(piece, static_cast<size_t>(got));
    for (size_t end; (end = unfinished_.find('\n')) != std::string::npos ||
                     unfinished_.size() > kLineBytesMax;) {
      const size_t size = std::min(end, kLineBytesMax);
      add(unfinished_.substr(0, size));
      unfinished_.erase(0, size + (size == end ? 1 : 0));
    }
  }
  return lines;
}

}  // namespace skein::services
