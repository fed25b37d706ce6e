// WorkerDials: finds out whether a process still listens at the address of a worker whose stream
// broke. Each address is dialled a few times within about two seconds, because a process that ends
// closes its connections and its listening socket in any order. Nothing is sent: an accepted
// connection is closed at once.
//
// Only a refused connection says something: the host answers, and no process listens. A name with
// several addresses is refused when all of them are. No answer, another error, and a name that is
// not found say nothing. Names are looked up on this object's thread, one after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "scheduler/orchestrator/orchestrator_events.h"

namespace skein::services {

class WorkerDials {
 public:
  using Refused = std::function<void(const scheduler::DialWorker&)>;

  static constexpr size_t kWaitingMax = 1024;  // further ones are left out
  // Of one address, in microseconds since Dial.
  static constexpr std::array<int64_t, 5> kTriesUs = {0, 100'000, 300'000, 700'000, 1'500'000};
  static constexpr int64_t kPatienceUs = 1'000'000;  // of one try

  // `refused` is called on this object's thread, once for each try that was refused.
  explicit WorkerDials(Refused refused);
  ~WorkerDials();
  WorkerDials(const WorkerDials&) = delete;
  WorkerDials& operator=(const WorkerDials&) = delete;

  void Dial(const scheduler::DialWorker& worker);  // any thread; does not block
  void Stop();  // `refused` is not called any more. Idempotent; not from `refused`.

 private:
  struct Dialled {
    scheduler::DialWorker worker;
    int64_t asked_us = 0;  // MonotonicUs() at Dial
  };

  void Run();
  void Wake() const;
  bool TakeNew(std::deque<Dialled>* taken);  // false: it stops

  const Refused refused_;
  int wake_fd_;
  std::mutex mutex_;
  std::deque<Dialled> new_;  // guarded by it, as the others
  size_t dialled_ = 0;       // those in new_ included
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::services
