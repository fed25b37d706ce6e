#include "services/orchestrator/worker_dials.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/http/client.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

enum class Answer { kNone, kRefused, kOther };  // kNone: not yet

// One connection that is being opened.
class Knock {
 public:
  explicit Knock(const addrinfo& address)
      : fd_(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const int result = fd_ < 0 ? -1 : connect(fd_, address.ai_addr, address.ai_addrlen);
    if (result != 0 && errno == EINPROGRESS) return;
    answer_ = result != 0 && errno == ECONNREFUSED ? Answer::kRefused : Answer::kOther;
  }
  ~Knock() {
    if (fd_ >= 0) close(fd_);
  }
  Knock(const Knock&) = delete;
  Knock& operator=(const Knock&) = delete;

  int fd() const { return fd_; }
  Answer answer() const { return answer_; }
  void Ready() {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    answer_ = error == ECONNREFUSED ? Answer::kRefused : Answer::kOther;
  }

 private:
  const int fd_;
  Answer answer_ = Answer::kNone;
};

// The tries at one worker's address.
class Tries {
 public:
  Tries(scheduler::DialWorker worker, int64_t asked_us)
      : worker_(std::move(worker)), asked_us_(asked_us) {
    const auto address = http::ParseAddress(worker_.endpoint);
    if (!address.ok()) return;  // such as a path: there is nothing to dial
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(address->port);
    if (getaddrinfo(address->host.c_str(), port.c_str(), &hints, &found) == 0) found_.reset(found);
  }

  const scheduler::DialWorker& worker() const { return worker_; }
  bool over() const {
    return found_ == nullptr || (begun_ == WorkerDials::kTriesUs.size() && knocks_.empty());
  }
  int64_t due_us() const {
    if (!knocks_.empty()) return gives_up_us_;
    return asked_us_ + WorkerDials::kTriesUs[begun_];
  }
  void AddTo(std::vector<pollfd>* polled) const {
    for (const auto& knock : knocks_) {
      if (knock->answer() == Answer::kNone) polled->push_back({knock->fd(), POLLOUT, 0});
    }
  }
  // In the order of AddTo.
  void Take(std::vector<pollfd>::const_iterator* polled) {
    for (const auto& knock : knocks_) {
      if (knock->answer() == Answer::kNone && (*polled)++->revents != 0) knock->Ready();
    }
  }
  // Begins and ends what is due. True: the address refuses.
  bool Step(int64_t now_us) {
    if (knocks_.empty() && now_us >= due_us()) {
      ++begun_;
      gives_up_us_ = now_us + WorkerDials::kPatienceUs;
      for (const addrinfo* one = found_.get(); one != nullptr; one = one->ai_next) {
        knocks_.push_back(std::make_unique<Knock>(*one));
      }
    }
    const auto is = [](Answer answer) {
      return [answer](const auto& knock) { return knock->answer() == answer; };
    };
    const bool refused =
        !knocks_.empty() && std::all_of(knocks_.begin(), knocks_.end(), is(Answer::kRefused));
    const bool answered = std::none_of(knocks_.begin(), knocks_.end(), is(Answer::kNone));
    if (answered || now_us >= gives_up_us_) knocks_.clear();
    return refused;
  }

 private:
  const scheduler::DialWorker worker_;
  const int64_t asked_us_;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found_{nullptr, freeaddrinfo};
  size_t begun_ = 0;
  int64_t gives_up_us_ = 0;                     // what is under way
  std::vector<std::unique_ptr<Knock>> knocks_;  // of the try under way; at each address
};

}  // namespace

WorkerDials::WorkerDials(Refused refused)
    : refused_(std::move(refused)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

WorkerDials::~WorkerDials() {
  Stop();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void WorkerDials::Dial(const scheduler::DialWorker& worker) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || dialled_ >= kWaitingMax) return;
    ++dialled_;
    new_.push_back({worker, MonotonicUs()});
  }
  Wake();
}

void WorkerDials::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void WorkerDials::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

bool WorkerDials::TakeNew(std::deque<Dialled>* taken) {
  const std::lock_guard lock(mutex_);
  std::swap(*taken, new_);
  return !stopping_;
}

void WorkerDials::Run() {
  std::list<Tries> all;
  std::vector<pollfd> polled;
  for (;;) {
    std::deque<Dialled> taken;
    if (!TakeNew(&taken)) return;
    for (Dialled& one : taken) all.emplace_back(std::move(one.worker), one.asked_us);
    int64_t due_us = std::numeric_limits<int64_t>::max();
    for (auto it = all.begin(); it != all.end();) {
      if (!it->over() && it->Step(MonotonicUs())) refused_(it->worker());
      if (it->over()) {
        it = all.erase(it);
        const std::lock_guard lock(mutex_);
        --dialled_;
      } else {
        due_us = std::min(due_us, it->due_us());
        ++it;
      }
    }
    polled.assign(1, {wake_fd_, POLLIN, 0});
    for (const Tries& tries : all) tries.AddTo(&polled);
    const int64_t wait_us = std::max<int64_t>(due_us - MonotonicUs(), 0);
    poll(polled.data(), polled.size(), all.empty() ? -1 : static_cast<int>(wait_us / 1000 + 1));
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t taken_wakes = read(wake_fd_, &woken, sizeof woken);
    auto answered = polled.cbegin() + 1;
    for (Tries& tries : all) tries.Take(&answered);
  }
}

}  // namespace skein::services
