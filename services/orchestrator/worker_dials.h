// WorkerDials: finds out whether a process listens at the address of a worker: once when it has
// come, and when its stream broke a few times within about two seconds, because a process that ends
// closes its connections and its listening socket in any order. Nothing is sent: an accepted
// connection is closed at once.
//
// A refused connection says that the host answers and no process listens. A name with several
// addresses is refused when all of them are, and accepted when one is. No answer, another error,
// and a name that is not found say nothing. Names are looked up on this object's thread, one after
// another.
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
  using Told = std::function<void(const scheduler::WorkerDialled&)>;

  static constexpr size_t kWaitingMax = 16384;  // further ones are left out
  static constexpr size_t kAtOnceMax = 256;     // others wait for these
  // Of one address whose stream broke, in microseconds since Dial.
  static constexpr std::array<int64_t, 5> kTriesUs = {0, 100'000, 300'000, 700'000, 1'500'000};
  static constexpr int64_t kPatienceUs = 1'000'000;  // of one try

  // `told` is called on this object's thread, for each try that was accepted or refused.
  explicit WorkerDials(Told told);
  ~WorkerDials();
  WorkerDials(const WorkerDials&) = delete;
  WorkerDials& operator=(const WorkerDials&) = delete;

  void Dial(const scheduler::DialWorker& worker);  // any thread; does not block
  void Stop();  // `told` is not called any more. Idempotent; not from `told`.

 private:
  struct Dialled {
    scheduler::DialWorker worker;
    int64_t asked_us = 0;  // MonotonicUs() at Dial
  };

  void Run();
  void Wake() const;
  // At most so many. False: it stops.
  bool TakeNew(size_t most, std::deque<Dialled>* taken);

  const Told told_;
  int wake_fd_;
  std::mutex mutex_;
  std::deque<Dialled> new_;  // guarded by it, as the next
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::services
