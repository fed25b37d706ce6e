#include "services/skeinctl/cluster/drain_process.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/admin/admin_access.h"
#include "services/http/client.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
constexpr auto kLook = std::chrono::milliseconds(300);
constexpr auto kAnswer = std::chrono::milliseconds(10'000);

std::string Text(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

bool IsSafe(const Json& status) {
  const auto it = status.find("safe_to_delete");
  return it != status.end() && it->is_boolean() && it->get<bool>();
}

// "prefill-worker prefill-0: draining: 3 running, 1 waiting"
std::string Line(const Json& status) {
  const std::string reason = Text(status, "reason");
  return absl::StrCat(Text(status, "role"), " ", Text(status, "name"), ": ",
                      reason.empty() ? Text(status, "state") : reason);
}

class ProcessDrainer {
 public:
  explicit ProcessDrainer(const DrainFlags& flags) : flags_(flags) {}

  absl::Status Run() {
    const auto address = http::ParseAddress(flags_.admin);
    if (!address.ok()) return address.status();
    address_ = *address;
    const char* const force = flags_.force && !flags_.undo ? "?force=1" : "";
    auto status = Ask("POST", absl::StrCat(flags_.undo ? "/resume" : "/drain", force));
    if (!status.ok()) return status.status();
    if (flags_.undo || !flags_.wait) return Tell(*status);
    return Wait(*std::move(status));
  }

 private:
  bool text() const { return flags_.format == "text"; }

  absl::StatusOr<Json> Ask(const char* method, const std::string& target) const {
    http::ClientRequest request{method, target, {}};
    if (!flags_.admin_token_file.empty()) {
      const auto token = ReadAdminToken(flags_.admin_token_file);
      if (!token.ok()) return token.status();
      request.headers.push_back({"Authorization", "Bearer " + *token});
    }
    const auto response = http::Ask(address_, request, kAnswer);
    if (!response.ok()) return response.status();
    Json json = Json::parse(response->body, nullptr, /*allow_exceptions=*/false);
    if (response->status == 200 || response->status == 202) return json;
    const auto error = json.is_object() ? json.find("error") : json.end();
    const std::string why =
        error != json.end() && error->is_object() ? Text(*error, "message") : "";
    return absl::FailedPreconditionError(
        absl::StrCat(flags_.admin, ": ", response->status, " ", why));
  }

  absl::Status Tell(const Json& status) const {
    if (text()) {
      std::printf("%s\n", Line(status).c_str());
    } else {
      std::printf("%s\n", status.dump().c_str());
    }
    return absl::OkStatus();
  }

  absl::Status Wait(Json status) const {
    CatchStopSignals();
    const Clock::time_point end =
        Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(flags_.timeout_s * 1e3));
    std::string last;
    while (true) {
      if (text() && Line(status) != last) {
        last = Line(status);
        std::printf("%s\n", last.c_str());
        std::fflush(stdout);
      }
      if (IsSafe(status)) break;
      if (StopSignalled()) {
        return absl::AbortedError(absl::StrCat("interrupted; ", Line(status), "; the order stays"));
      }
      if (Clock::now() >= end) {
        return absl::DeadlineExceededError(absl::StrCat("not drained within ", flags_.timeout_s,
                                                        " s: ", Line(status), "; the order stays"));
      }
      WaitUnlessStopped(kLook);
      auto next = Ask("GET", "/status");
      if (absl::IsUnavailable(next.status())) {  // it was stopped meanwhile
        if (text()) std::printf("%s has ended\n", flags_.admin.c_str());
        return absl::OkStatus();
      }
      if (!next.ok()) return next.status();
      status = *std::move(next);
    }
    return text() ? absl::OkStatus() : Tell(status);
  }

  const DrainFlags flags_;
  http::Address address_;
};

}  // namespace

absl::Status DrainProcess(const DrainFlags& flags) { return ProcessDrainer(flags).Run(); }

}  // namespace skein::services
