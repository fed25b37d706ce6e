#include "services/worker/process/worker_end.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "services/flags/command_line.h"
#include "services/log/log.h"

namespace skein::services {

WorkerEnd::WorkerEnd() : failed_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WorkerEnd::~WorkerEnd() { close(failed_fd_); }

void WorkerEnd::Drained() {
  {
    std::lock_guard lock(mu_);
    drained_ = true;
  }
  changed_.notify_all();
}

void WorkerEnd::EngineFailed(const absl::Status& status, double leaves_within_s) {
  {
    std::lock_guard lock(mu_);
    if (engine_.ok()) leaves_within_s_ = leaves_within_s;
  }
  Fail(status, "the engine failed", &engine_);
}

void WorkerEnd::Refused(const absl::Status& status) {
  Fail(status, "the orchestrator refuses this worker", &refused_);
}

void WorkerEnd::Fail(const absl::Status& status, const char* message, absl::Status* first) {
  {
    std::lock_guard lock(mu_);
    if (!first->ok()) return;
    *first = status;
  }
  LogError(message, {{"reason", std::string(status.message())}});
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(failed_fd_, &one, sizeof one);
}

absl::Status WorkerEnd::refused() const {
  std::lock_guard lock(mu_);
  return refused_;
}

absl::Status WorkerEnd::engine() const {
  std::lock_guard lock(mu_);
  return engine_;
}

double WorkerEnd::leaves_within_s() const {
  std::lock_guard lock(mu_);
  return leaves_within_s_;
}

void WorkerEnd::AwaitStop() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  pollfd watched[] = {{.fd = signals, .events = POLLIN, .revents = 0},
                      {.fd = failed_fd_, .events = POLLIN, .revents = 0}};
  while (poll(watched, 2, -1) < 0) {
  }
  signalfd_siginfo taken;
  while (read(signals, &taken, sizeof taken) > 0) {
  }
  close(signals);
}

bool WorkerEnd::AwaitDrained(double seconds) {
  std::unique_lock lock(mu_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return drained_; });
}

bool RunWithin(double seconds, std::function<void()> stop) {
  std::packaged_task<void()> task(std::move(stop));
  const std::future<void> end = task.get_future();
  std::thread thread(std::move(task));
  const bool ended =
      end.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  ended ? thread.join() : thread.detach();
  return ended;
}

void ExitWithFailedEngine(const absl::Status& why) {
  LogError("the process ends: its engine failed",
           {{"reason", std::string(why.message())}, {"exit_code", int{kEngineFailed}}});
  FlushLog();
  std::_Exit(kEngineFailed);
}

}  // namespace skein::services
