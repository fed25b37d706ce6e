#include "engine/emulated/faulty_engine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

bool AnyHas(std::span<const SequenceStep> sequences, int64_t token) {
  return token >= 0 && std::any_of(sequences.begin(), sequences.end(), [token](const auto& one) {
           return std::find(one.prompt.begin(), one.prompt.end(), token) != one.prompt.end();
         });
}

}  // namespace

absl::Status FaultyEngine::Step(std::span<const SequenceStep> sequences,
                                const std::function<void(int layer)>& layer_done,
                                std::vector<SequenceResult>* results) {
  while (AnyHas(sequences, faults_.hang_token)) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (AnyHas(sequences, faults_.fail_token)) {
    return absl::InternalError(
        absl::StrCat("token ", faults_.fail_token, " fails this emulated device"));
  }
  return engine_->Step(sequences, layer_done, results);
}

}  // namespace skein::engine
