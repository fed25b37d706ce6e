#include "services/node/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/http/error.h"
#include "services/log/log.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

constexpr size_t kPieceBytes = 4096;  // a writable pipe takes this much at once (PIPE_BUF)

// Writes a line to standard error. False: it was not read in time; the supervisor does not wait.
bool WriteLine(std::string_view line) {
  for (size_t at = 0; at < line.size();) {
    pollfd one{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    // For the rest of a started line, wait a little.
    if (poll(&one, 1, at == 0 ? 0 : 100) != 1) return false;
    const ssize_t wrote =
        write(STDERR_FILENO, line.data() + at, std::min(kPieceBytes, line.size() - at));
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) at += static_cast<size_t>(wrote);
  }
  return true;
}

// A line of an instance as a log line that names the instance.
std::string Named(size_t index, const std::string& line) {
  if (line.rfind("{\"", 0) == 0)
    return absl::StrCat("{\"index\":", index, ",", line.substr(1), "\n");
  return absl::StrCat("{\"index\":", index, ",\"level\":\"info\",\"msg\":", http::JsonString(line),
                      "}\n");
}

}  // namespace

Supervisor::Supervisor(const NodeOptions& options, const std::vector<InstanceCommand>& commands,
                       InstanceView* view)
    : stop_grace_s_(options.stop_grace_s), view_(view) {
  for (const InstanceCommand& one : commands) {
    children_.push_back(std::make_unique<Child>(one.command, options.delays));
  }
}

absl::Status Supervisor::Run() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) return absl::UnavailableError("no descriptor for signals");
  while (!stopping_ || AnyRuns()) {
    if (!stopping_) StartDue();
    Poll();
    Reap();
    if (MonotonicUs() >= kill_at_us_) {
      LogWarning("killing running instances", {{"stop_grace_s", stop_grace_s_}});
      for (const auto& child : children_) child->Signal(SIGKILL);
      kill_at_us_ = INT64_MAX;
    }
  }
  close(signal_fd_);
  return absl::OkStatus();
}

bool Supervisor::AnyRuns() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const auto& child) { return child->running(); });
}

void Supervisor::StartDue() {
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = *children_[i];
    const int64_t now_us = MonotonicUs();
    if (child.running() || now_us < child.next_start_us()) continue;
    Forward(i);  // the remaining output of the previous process
    const absl::Status started = child.Start(now_us);
    if (!started.ok()) {
      LogError("instance not started",
               {{"index", static_cast<int64_t>(i)}, {"reason", std::string(started.message())}});
      child.Ended(127 << 8, now_us);
    } else {
      LogInfo("started", {{"index", static_cast<int64_t>(i)},
                          {"child_pid", static_cast<int64_t>(child.pid())},
                          {"program", child.command().front()},
                          {"restarts", child.starts() - 1}});
    }
    Tell(i);
  }
}

void Supervisor::Tell(size_t index) {
  const Child& child = *children_[index];
  view_->Set(index, {.pid = child.pid(),
                     .starts = child.starts(),
                     .last_exit = child.last_exit(),
                     .last_words = child.last_words(),
                     .next_start_us = child.running() || stopping_ ? 0 : child.next_start_us()});
}

void Supervisor::Forward(size_t index) {
  for (const std::string& line : children_[index]->ReadLines()) {
    if (lines_dropped_ > 0) {
      LogWarning("log lines dropped: standard error was not read fast enough",
                 {{"lines", lines_dropped_}});
      lines_dropped_ = 0;
    }
    if (!WriteLine(Named(index, line))) ++lines_dropped_;
  }
}

void Supervisor::Reap() {
  int wait_status = 0;
  while (true) {
    const pid_t pid = waitpid(-1, &wait_status, WNOHANG);
    if (pid <= 0) return;
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = *children_[i];
      if (child.pid() != pid) continue;
      Forward(i);  // the end of its log
      const int64_t now_us = MonotonicUs();
      child.Ended(wait_status, now_us);
      const double delay_s = static_cast<double>(child.next_start_us() - now_us) * 1e-6;
      if (stopping_) {
        LogInfo("instance ended", {{"index", static_cast<int64_t>(i)}, {"how", child.last_exit()}});
      } else {
        LogError("instance failed", {{"index", static_cast<int64_t>(i)},
                                     {"how", child.last_exit()},
                                     {"last_words", child.last_words()},
                                     {"starts_again_in_s", delay_s}});
      }
      Tell(i);
    }
  }
}

void Supervisor::Stop(int signal) {
  LogInfo("stopping", {{"signal", signal == SIGINT ? "SIGINT" : "SIGTERM"}});
  if (!stopping_ && stop_grace_s_ > 0) {
    kill_at_us_ = MonotonicUs() + static_cast<int64_t>(stop_grace_s_ * 1e6);
  }
  stopping_ = true;
  view_->Stopping();
  for (size_t i = 0; i < children_.size(); ++i) {
    children_[i]->Signal(SIGTERM);
    Tell(i);
  }
}

void Supervisor::TakeSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGTERM || signal == SIGINT) Stop(signal);
    if (signal != SIGHUP) continue;
    LogInfo("forwarding SIGHUP");
    for (const auto& child : children_) child->Signal(SIGHUP);
  }
}

int Supervisor::PollTimeoutMs() const {
  int64_t next_us = kill_at_us_;
  for (const auto& child : children_) {
    if (!child->running() && !stopping_) next_us = std::min(next_us, child->next_start_us());
  }
  if (next_us == INT64_MAX) return -1;
  return static_cast<int>(std::clamp<int64_t>((next_us - MonotonicUs()) / 1000 + 1, 0, 60'000));
}

void Supervisor::Poll() {
  std::vector<pollfd> fds = {{.fd = signal_fd_, .events = POLLIN, .revents = 0}};
  for (const auto& child : children_) {
    fds.push_back({.fd = child->output_fd(), .events = POLLIN, .revents = 0});  // poll ignores -1
  }
  poll(fds.data(), fds.size(), PollTimeoutMs());
  if (fds[0].revents != 0) TakeSignals();
  for (size_t i = 0; i < children_.size(); ++i) {
    if (fds[i + 1].revents != 0) Forward(i);
  }
}

}  // namespace skein::services
