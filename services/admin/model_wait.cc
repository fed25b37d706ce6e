#include "services/admin/model_wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(500);

}  // namespace

void RegisterModelWait(double* seconds, FlagSet* flags) {
  flags->Double(seconds, "wait-for-model-s",
                "Time to wait for a model folder that is missing or incomplete; 0: that "
                "is an error at once.",
                0, 604800);
}

absl::Status WaitForModel(const std::string& folder, engine::CheckpointParts parts, double seconds,
                          const std::function<void(const std::string&)>& say) {
  if (seconds == 0) return absl::OkStatus();
  const Clock::time_point start = Clock::now();
  const auto waited_s = [start] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  bool logged = false;
  while (true) {
    const absl::Status missing = engine::CheckCheckpointFiles(folder, parts);
    if (missing.ok()) break;
    const std::string what(missing.message());
    say(what);
    if (!logged) {
      LogWarning("waiting for the model", {{"missing", what}, {"at_most_s", seconds}});
    }
    logged = true;
    if (waited_s() >= seconds) {
      return absl::DeadlineExceededError(absl::StrCat(
          "--wait-for-model-s: the model is not complete after ", seconds, " s: ", what));
    }
    std::this_thread::sleep_for(
        std::min<Clock::duration>(kLook, std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(seconds - waited_s()))));
  }
  if (logged) LogInfo("model folder complete", {{"folder", folder}, {"waited_s", waited_s()}});
  return absl::OkStatus();
}

}  // namespace skein::services
