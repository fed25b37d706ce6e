// Deadline: what must end soon, or the process does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace skein::engine {

class Deadline {
 public:
  // Unless it is destroyed within `limit`, `cause` goes to stderr and the process ends.
  Deadline(std::chrono::milliseconds limit, std::string cause);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void Watch(std::chrono::milliseconds limit);

  const std::string cause_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread watcher_;
};

}  // namespace skein::engine
