// What becomes of a launch that fails: it ends the process, unless the thread records work for a
// graph. Then nothing has run, and the recording is given up.
#pragma once

#include <string>

namespace skein::engine {

// While one lives, failed launches of the calling thread are kept here. One at a time a thread.
class LaunchFailures {
 public:
  LaunchFailures();
  ~LaunchFailures();
  LaunchFailures(const LaunchFailures&) = delete;
  LaunchFailures& operator=(const LaunchFailures&) = delete;

  // The first failure's text; empty when all launches went well.
  const std::string& first() const { return first_; }

 private:
  friend void LaunchFailed(const std::string& what);
  std::string first_;
};

// To be called where a launch failed, with what and why. Returns only while the calling thread has
// a LaunchFailures: elsewhere a launch that fails is a programmer error or a sticky one.
void LaunchFailed(const std::string& what);

}  // namespace skein::engine
