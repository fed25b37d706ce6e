// A batch of OpenAI's API that is computed while a process is broken, and what is in its output.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/chaos/chaos_load.h"
#include "services/skeinctl/chaos/judge.h"

namespace skein::services::chaos {

struct BatchOptions {
  int64_t lines = 1;
  int64_t prompt_tokens = 1;
  int64_t tokens = 1;  // of the shortest answer; the longest is nearly twice as long
  uint64_t seed = 1;
};

// The line `index`, of the request `index` modulo their number, as it is in a batch's input.
std::string BatchLine(const std::string& model, const std::vector<StreamRequest>& requests,
                      int64_t index);

// What became of so many lines, by what was written of them, in the files of output and of errors:
// failed (it has an error), lost (it is not there), doubled (it is there again), wrong (other
// tokens than `references` has, or no line of the batch). Pure.
Counts JudgeBatch(const std::string& written, int64_t lines,
                  const std::vector<Reference>& references);

class BatchLoad {
 public:
  // `load` has the routers, the model, the key and hung_after.
  BatchLoad(LoadOptions load, const BatchOptions& options);
  ~BatchLoad();

  // All block, and may be called again. UNAVAILABLE: no router answered.

  // Asks each request alone, at the first call.
  absl::Status Prepare();
  // Sends the file and makes the batch. UNIMPLEMENTED: this cluster takes no batches.
  absl::Status Start();
  // Until some of its lines are answered. DEADLINE_EXCEEDED: none was. FAILED_PRECONDITION: all
  // are, so there are too few. ABORTED: a stop signal came.
  absl::Status AwaitMidst();
  // Until it has ended, or hangs. What became of its lines, all of the kind "batch".
  absl::StatusOr<Row> Await();

 private:
  class Client;
  struct Progress {
    bool ended = false;
    std::string status;
    int64_t completed = 0;
    std::vector<std::string> files;  // of output and of errors, as far as there are any
  };

  absl::StatusOr<Progress> Look();
  void Remove(const std::string& file);

  const LoadOptions load_;
  const BatchOptions options_;
  std::unique_ptr<Client> client_;
  std::vector<Reference> references_;
  std::string input_file_;
  std::string batch_;
};

}  // namespace skein::services::chaos
