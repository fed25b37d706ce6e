// NanSteps: when steps that give nothing but NaN cast doubt on the engine.
//
// A sequence whose logits are NaN ends alone, with INTERNAL (step.h). A step is bad when at least
// one of its sequences ended so and none showed usable logits. kLimit bad steps in a row are a
// reason to probe the engine (step_loop.h): the requests may be at fault as well. A request that
// gives NaN beside others that do not never counts, however often it is asked; a step that shows no
// logits at all (prompt slices, refused sequences) changes nothing.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/worker/steps/step.h"

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

  bool Doubtful() const { return in_a_row_ >= kLimit; }
  void Reset() { in_a_row_ = 0; }
  // Of an engine that cannot be probed.
  static absl::Status Failure() {
    return absl::InternalError(absl::StrCat("all logits of ", kLimit, " steps in a row are NaN"));
  }

 private:
  int in_a_row_ = 0;
};

}  // namespace skein::scheduler
