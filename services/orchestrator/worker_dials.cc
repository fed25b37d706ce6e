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

enum class Answer { kNone, kAccepted, kRefused, kOther };  // kNone: not yet

Answer AnswerOf(int error) {
  if (error == 0) return Answer::kAccepted;
  return error == ECONNREFUSED ? Answer::kRefused : Answer::kOther;
}

// One connection that is being opened.
class Knock {
 public:
  explicit Knock(const addrinfo& address)
      : fd_(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const int result = fd_ < 0 ? -1 : connect(fd_, address.ai_addr, address.ai_addrlen);
    const int error = result == 0 ? 0 : errno;
    if (error != EINPROGRESS) answer_ = AnswerOf(error);
  }
  ~Knock() {
    if (fd_ >= 0) close(fd_);
  }
  Knock(const Knock&) = delete;
  Knock& operator=(const Knock&) = delete;

  int Fd() const { return fd_; }
  Answer GetAnswer() const { return answer_; }
  void Ready() {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    answer_ = AnswerOf(error);
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

  const scheduler::DialWorker& Worker() const { return worker_; }
  size_t CountTries() const { return worker_.broke ? WorkerDials::kTriesUs.size() : 1; }
  bool IsOver() const { return found_ == nullptr || (begun_ == CountTries() && knocks_.empty()); }
  int64_t DueUs() const {
    if (!knocks_.empty()) return gives_up_us_;
    return asked_us_ + WorkerDials::kTriesUs[begun_];
  }
  void AddTo(std::vector<pollfd>* polled) const {
    for (const auto& knock : knocks_) {
      if (knock->GetAnswer() == Answer::kNone) polled->push_back({knock->Fd(), POLLOUT, 0});
    }
  }
  // In the order of AddTo.
  void Take(std::vector<pollfd>::const_iterator* polled) {
    for (const auto& knock : knocks_) {
      if (knock->GetAnswer() == Answer::kNone && (*polled)++->revents != 0) knock->Ready();
    }
  }
  // Begins and ends what is due; what the try that has ended says.
  Answer Step(int64_t now_us) {
    if (knocks_.empty() && now_us >= DueUs()) {
      ++begun_;
      gives_up_us_ = now_us + WorkerDials::kPatienceUs;
      for (const addrinfo* one = found_.get(); one != nullptr; one = one->ai_next) {
        knocks_.push_back(std::make_unique<Knock>(*one));
      }
    }
    const auto count = [this](Answer answer) {
      return std::count_if(knocks_.begin(), knocks_.end(),
                           [answer](const auto& knock) { return knock->GetAnswer() == answer; });
    };
    const bool all_refused =
        !knocks_.empty() && count(Answer::kRefused) == static_cast<int64_t>(knocks_.size());
    const Answer said = count(Answer::kAccepted) > 0 ? Answer::kAccepted
                        : all_refused                ? Answer::kRefused
                                                     : Answer::kNone;
    const bool ends = said != Answer::kNone || count(Answer::kNone) == 0 || now_us >= gives_up_us_;
    if (ends) knocks_.clear();
    return said;
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

WorkerDials::WorkerDials(Told told)
    : told_(std::move(told)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

WorkerDials::~WorkerDials() {
  Stop();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void WorkerDials::Dial(const scheduler::DialWorker& worker) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || new_.size() >= kWaitingMax) return;
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

bool WorkerDials::TakeNew(size_t most, std::deque<Dialled>* taken) {
  const std::lock_guard lock(mutex_);
  for (; !new_.empty() && taken->size() < most; new_.pop_front()) {
    taken->push_back(std::move(new_.front()));
  }
  return !stopping_;
}

void WorkerDials::Run() {
  std::list<Tries> all;
  std::vector<pollfd> polled;
  for (;;) {
    std::deque<Dialled> taken;
    if (!TakeNew(kAtOnceMax - all.size(), &taken)) return;
    for (Dialled& one : taken) all.emplace_back(std::move(one.worker), one.asked_us);
    int64_t due_us = std::numeric_limits<int64_t>::max();
    bool ended = false;
    for (auto it = all.begin(); it != all.end();) {
      const Answer said = it->IsOver() ? Answer::kNone : it->Step(MonotonicUs());
      if (said != Answer::kNone) {
        const scheduler::DialWorker& worker = it->Worker();
        told_({worker.instance, worker.incarnation, said == Answer::kAccepted});
      }
      if (it->IsOver()) {
        it = all.erase(it);
        ended = true;
      } else {
        due_us = std::min(due_us, it->DueUs());
        ++it;
      }
    }
    if (ended) continue;  // others may wait for its place
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
