// NanSteps: tells an engine that computes nothing but NaN from a request that does.
//
// A sequence whose logits are NaN ends alone, with INTERNAL (step.h). A step is bad when at least
// one of its sequences ended so and none showed usable logits. kLimit bad steps in a row mean that
// the engine has failed. A request that gives NaN beside others that do not never counts, however
// often it is asked; a step that shows no logits at all (chunks of prompts, refused sequences)
// changes nothing. Each bad step ends its sequences, so the steps in a row are of other requests.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/worker/step.h"

namespace skein::scheduler {

class NanSteps {
 public:
  static constexpr int kLimit = 3;

  // The results of a step that the engine ran.
  void Add(const std::vector<StepResult>& results) {
    bool nan = false, usable = false;
    for (const StepResult& result : results) {
      nan = nan || absl::IsInternal(result.status);
      const bool shown = result.token >= 0 || !result.prompt_logprobs.empty();
      usable = usable || (result.status.ok() && shown);
    }
    if (usable) {
      in_a_row_ = 0;
    } else if (nan) {
      ++in_a_row_;
    }
  }

  bool EngineFailed() const { return in_a_row_ >= kLimit; }
  static absl::Status Failure() {
    return absl::InternalError(absl::StrCat("all logits of ", kLimit, " steps in a row are NaN"));
  }

 private:
  int in_a_row_ = 0;
};

}  // namespace skein::scheduler
