// The orchestrator's generation, kept in the file `generation` of a folder (--state-dir).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

// The number for this start: one more than the file has, and kept there before this returns. A file
// that is not there counts as 0, and so does one without a number, which is logged: workers and
// routers tell the orchestrator of a higher one. UNAVAILABLE: the file cannot be read or written.
absl::StatusOr<uint64_t> NextGeneration(const std::string& folder);

// Keeps the number, on the disk when this returns.
absl::Status StoreGeneration(const std::string& folder, uint64_t generation);

// Stores generations on a thread of its own, so that the orchestrator does not wait for the disk. A
// number that is lost costs one refusal at the next start.
class GenerationKeeper {
 public:
  explicit GenerationKeeper(std::string folder);  // empty: keeps nothing
  ~GenerationKeeper();                            // waits until the last number is stored
  GenerationKeeper(const GenerationKeeper&) = delete;
  GenerationKeeper& operator=(const GenerationKeeper&) = delete;

  // Any thread; does not wait for the disk. Of several numbers that wait, the last one is stored.
  // A failure is logged.
  void Keep(uint64_t generation);

 private:
  void Run();

  const std::string folder_;
  std::mutex mu_;
  std::condition_variable changed_;
  uint64_t wanted_ = 0;  // to be stored; 0: none
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::services
