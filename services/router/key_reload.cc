#include "services/router/key_reload.h"

#include <string>

#include "services/log/log.h"
#include "services/log/repeat_limit.h"

namespace skein::services {
namespace {

// `repeats`: it is logged in part.
void NoteReload(const absl::Status& read, bool repeats) {
  if (read.ok() || (repeats && !AdmitRepeated("keys not reloaded"))) return;
  LogError("API keys not reloaded; the previous keys stay valid",
           {{"reason", std::string(read.message())}});
}

}  // namespace

KeyReload::KeyReload(Edge* edge, double every_s)
    : edge_(edge), every_us_(static_cast<int64_t>(every_s * 1e6)) {
  if (every_s > 0 && edge->access().required()) Watch();
}

absl::Status KeyReload::Reload() {
  absl::Status read = edge_->ReadKeys();
  NoteReload(read, /*repeats=*/false);
  return read;
}

void KeyReload::Watch() {
  next_look_us_ = MonotonicUs() + every_us_;
  watch_.Start(
      "keys", [this] { return next_look_us_; },
      [this] {
        NoteReload(edge_->ReadChangedKeys(), /*repeats=*/true);
        next_look_us_ = MonotonicUs() + every_us_;
      });
}

}  // namespace skein::services
