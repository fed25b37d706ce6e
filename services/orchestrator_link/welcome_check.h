// WelcomeCheck: the orchestrator's first message on a stream is the welcome, no later one is, and
// the stream's session is of the welcome's generation.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"

namespace skein::services {

class WelcomeCheck {
 public:
  // A received message, whose numbers MessageCounters has checked. `generation`: of the welcome;
  // empty: the message is another one. `session`: the stream's. INVALID_ARGUMENT names what is
  // wrong.
  absl::Status Take(std::optional<uint64_t> generation, uint64_t session) {
    if (generation.has_value() == welcomed_) {
      return absl::InvalidArgumentError(welcomed_ ? "welcome: already received"
                                                  : "welcome: must be the first message");
    }
    if (welcomed_) return absl::OkStatus();
    if (scheduler::GenerationOf(session) != *generation) {
      return absl::InvalidArgumentError(
          absl::StrCat("session: ", session, " is not of generation ", *generation));
    }
    welcomed_ = true;
    return absl::OkStatus();
  }
  bool welcomed() const { return welcomed_; }

 private:
  bool welcomed_ = false;
};

}  // namespace skein::services
