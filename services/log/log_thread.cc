#include "services/log/log_thread.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

namespace skein::services {
namespace {

// Uses one write where the reader takes it whole, so that lines of processes sharing a file do not
// mix. False: standard error is closed or its disk is full, and the line is lost.
bool WriteWhole(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

LogThread::LogThread(std::function<std::string(int64_t)> lost_line)
    : lost_line_(std::move(lost_line)) {
  Start();
}

// The thread blocks all signals; other threads wait for them (signals.h).
void LogThread::Start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] {
    pthread_setname_np(pthread_self(), "log");
    Run();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LogThread::Push(std::string line) {
  {
    std::lock_guard lock(mu_);
    if (lost_ > 0 && queued_bytes_ <= kBytesMax / 2) TellLost();
    if (lost_ > 0 || queued_bytes_ + line.size() > kBytesMax) {
      ++lost_;
      refused_.fetch_add(1);
      lost_total_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    Append({std::move(line)});
  }
  wake_.notify_one();
}

// REQUIRES: mu_ held.
void LogThread::Append(Line line) {
  queued_bytes_ += line.text.size();
  queued_.fetch_add(1);
  queue_.push_back(std::move(line));
}

// REQUIRES: mu_ held.
void LogThread::TellLost() {
  const int64_t lines = std::exchange(lost_, 0);
  Append({lost_line_(lines), lines});
}

void LogThread::Run() {
  std::unique_lock lock(mu_);
  for (;;) {
    wake_.wait(lock, [this] { return !queue_.empty(); });
    const Line line = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    // Lost lines that could not be written only raise the total: a line that reports them would be
    // lost too.
    if (!WriteWhole(line.text) && line.tells == 0) {
      lost_total_.fetch_add(1, std::memory_order_relaxed);
    }
    lock.lock();
    queued_bytes_ -= line.text.size();
    if (queue_.empty() && lost_ > 0) TellLost();
    written_.fetch_add(1);
    told_.fetch_add(line.tells);
  }
}

bool LogThread::Flush(std::chrono::milliseconds patience) const {
  constexpr int64_t kNapMs = 1;
  const timespec nap{0, kNapMs * 1'000'000};
  const int64_t queued = queued_.load(), refused = refused_.load();
  const auto done = [&] { return written_.load() >= queued && told_.load() >= refused; };
  for (int64_t waited_ms = 0; !done(); waited_ms += kNapMs) {
    if (waited_ms >= patience.count()) return false;
    nanosleep(&nap, nullptr);
  }
  return true;
}

}  // namespace skein::services
